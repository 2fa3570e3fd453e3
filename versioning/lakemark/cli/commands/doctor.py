"""`doctor`: the guarantees lakemark counts on, tried on the user's own stores under names of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lakemark.cli.checks import deployments, local, readers, servers
from lakemark.cli.output import AMBER, RED, coloured, plain, short
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import Incomplete, LakemarkError, Usage, quoted
from lakemark.services.health.doctor import Examination, examine

if TYPE_CHECKING:
    from lakemark.contract import Check
    from lakemark.ports import CheckpointStore


def doctor(*, as_user: str | None = None, who: tuple[str, ...] = (), dry_run: bool = False) -> Answer:
    """Check tiers, conditional writes, failure domains, lakeFS, pins, Prefect, clock, disk and rights.

    Stores are tried with a few kilobytes under names of their own, which are removed; a machine that only reads tries none.
    Exits with 4 where a check fails.

    Parameters
    ----------
    as_user: str
        Check nothing but what this account of the machine may do here; for another than one's own, root asks.
    who: tuple[str, ...]
        What it is to be: trainer (reads run files, announces saves), reader (restores), colleague (commits, approves, rolls
        back, resumes); by default all of it.
    dry_run: bool
        Say what would be checked, and try nothing.
    """
    here = session()
    if as_user is not None or who:
        return _of_account(here, as_user, who, dry_run=dry_run)
    examinations: list[Examination] = [
        *local.examinations(here),
        *_tiers(here),
        *readers.examinations(here),
        *servers.examinations(here),
        *deployments.examinations(here),
        local.dot(),
    ]
    if dry_run:
        return would(*(f"check {one.name}" for one in examinations))
    return _answer(here, examinations)


def _of_account(here: Session, name: str | None, who: tuple[str, ...], *, dry_run: bool) -> Answer:
    from lakemark.accounts import account_named
    from lakemark.cli.doctoring_account import WHO, examinations

    # --who alone would check this account, which is not what was asked.
    if name is None:
        raise Usage("--who goes with --as-user", advice="Name the account: lakemark doctor --as-user NAME.")
    unknown = [one for one in who if one not in WHO]
    if unknown:
        raise Usage(
            f"--who {quoted(unknown[0])} is none of {', '.join(WHO)}", advice="Take one of these, or leave it out."
        )
    login = account_named(name)
    if dry_run:
        return would(f"check what {login.name} may do as {', '.join(who or WHO)}")
    return _answer(here, list(examinations(here, name, who or WHO)))


def _answer(here: Session, examinations: Iterable[Examination]) -> Answer:
    findings = [replace(one, advice=here.advised(one.advice)) for one in examine(examinations)]
    ok = all(one.ok for one in findings)
    document = {
        "ok": ok,
        "checks": [
            {"name": one.name, "ok": one.ok, "noted": one.noted, "detail": one.detail, "advice": one.advice}
            for one in findings
        ],
    }
    lines: list[str] = []
    for one in findings:
        mark = coloured("FAIL", RED) if not one.ok else coloured("note", AMBER) if one.noted else "ok  "
        lines.append(f"{mark}  {plain(f'{one.name}: {one.detail}')}")
        lines += [plain(f"      {one.advice}")] if one.advice else []
    return Answer(document=document, lines=lines, exit_code=0 if ok else Incomplete.exit_code)


class _Tiers:
    """The site's tiers, each asked once whether it is there: one that is away keeps nobody waiting again and again."""

    def __init__(self, here: Session) -> None:
        self.here = here
        self._seen: dict[str, CheckpointStore | LakemarkError] = {}

    def store(self, name: str) -> CheckpointStore:
        """Raises what the first question raised."""
        if name not in self._seen:
            try:
                self._seen[name] = self._look(name)
            except LakemarkError as error:
                self._seen[name] = error
        found = self._seen[name]
        if isinstance(found, LakemarkError):
            raise found
        return found

    def _look(self, name: str) -> CheckpointStore:
        from lakemark.services.ledger import require_identity

        endpoint = getattr(self.here.settings.tiers[name], "endpoint", None)
        # Before its client is asked, which tries several times: a port that nobody listens on shows at once.
        if endpoint is not None:
            servers.require_listening(endpoint)
        store = self.here.site.store(name)
        require_identity(self.here.site, store)
        return store


def _tiers(here: Session) -> Iterator[Examination]:
    tiers = _Tiers(here)
    if here.parts.reads_only:
        yield from _only_read(tiers)
        return
    for name in here.settings.tiers:
        yield Examination(name=f"tier {name}", run=partial(_identity, tiers, name))
        yield from _contract(tiers, name)
    yield Examination(
        name="failure domains",
        run=partial(_domains, here),
        advice="Give tiers of one disk or array the same `domain`, and lower `copies` or add a tier.",
    )


def _only_read(tiers: _Tiers) -> Iterator[Examination]:
    """What a reader may look at: it has no hot of its own, and the site's tiers are not its to write to."""
    for name, tier in tiers.here.settings.tiers.items():
        if tier.tier_class != "hot":
            yield Examination(name=f"tier {name}", run=partial(_identity, tiers, name))
    yield Examination(name="guarantees", run=lambda: "not tried: this node only reads")


def _identity(tiers: _Tiers, name: str) -> str:
    store = tiers.store(name)
    found = store.identity()
    return f"is tier {short(found.id if found else None)}, {store.kind}, failure domain {store.domain}"


def _contract(tiers: _Tiers, name: str) -> Iterator[Examination]:
    """The contract's checks that are safe on a store in use; for a hot tree none writes, so its guarantees are the tests'."""
    from lakemark.contract import blobs, store

    tier = tiers.here.settings.tiers[name]
    # A tree keeps no objects; what it guarantees are renames and links of the file system.
    if tier.kind != "tree":
        for below in blobs.CHECKS:
            yield Examination(
                name=f"tier {name}, {below.name}",
                run=partial(_tried, below, partial(_blobs, tiers, name)),
                advice="Without this guarantee the store can't be a tier: see its settings or its maker.",
                part_of=f"tier {name}",
            )
    for check in store.CHECKS:
        # The others of the contract write and delete in the store: they are for tests on a store of their own.
        if check.probe:
            yield Examination(
                name=f"tier {name}, {check.name}",
                run=partial(_tried, check, partial(_shelf, tiers, name)),
                advice="The store does not keep what lakemark counts on: `lakemark verify` before trusting it.",
                part_of=f"tier {name}",
            )


def _tried(check: Check[Any], on: Callable[[], Any]) -> str:
    check.run(on())
    return check.guarantee


def _blobs(tiers: _Tiers, name: str) -> Any:  # noqa: ANN401 - contract.blobs.Blobs
    return getattr(tiers.store(name), "blobs")  # noqa: B009 - a store of blobs has them; the port does not say so


def _shelf(tiers: _Tiers, name: str) -> Any:  # noqa: ANN401 - contract.store.Shelf
    from lakemark.contract.store import StoreUnderCheck
    from lakemark.site import digests_of

    site = tiers.here.site
    return StoreUnderCheck(store=tiers.store(name), digests=digests_of, now=site.now(), ledger=site.ledger.id)


def _domains(here: Session) -> str:
    settings = here.settings
    shared = {name: tier.domain or name for name, tier in settings.tiers.items() if tier.tier_class != "hot"}
    # hot is left out: a record is safe only by what a node's loss does not take.
    domains = sorted(set(shared.values()))
    if shared and len(domains) < settings.copies:
        raise Incomplete(
            f"`copies: {settings.copies}` needs as many failure domains beyond hot; there are {len(domains)}",
            advice="Add a tier in another domain, or lower `copies`: no record would ever be safe.",
        )
    same = list(local.same_disk(here))
    if same:
        raise (
            Incomplete(
                f"{' and '.join(same[0])} say they are different failure domains and lie on one file system",
                advice="Give both the same `domain`, or move one: a broken disk takes both.",
            )
            if settings.copies > 1
            else _OneDisk(same[0])
        )
    return f"{len(domains)} beyond hot ({', '.join(domains) or 'none'}), copies: {settings.copies}"


class _OneDisk(LakemarkError):
    """Two tiers on one disk where one copy is asked for: worth knowing, and no rule is broken."""

    exit_code = Incomplete.exit_code

    def __init__(self, pair: tuple[str, str]) -> None:
        super().__init__(f"{' and '.join(pair)} lie on one file system", advice="A broken disk takes both.")
