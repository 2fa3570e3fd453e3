"""`replicate`, `release`, `restore`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lakemark.cli.commands.commits import record_answer
from lakemark.cli.options import Reason, absolute, is_directory
from lakemark.cli.output import plain, short, size
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import Denied, NotFound, Refused, Usage, quoted

if TYPE_CHECKING:
    from lakemark.model.ledger.run import RecordState
    from lakemark.services.back.restore import RestoredRecord
    from lakemark.services.saves.roles import Roles

_FROM = Parameter(name="--from")
_MANY = Parameter(consume_multiple=True)


def replicate(record: str, /, *, to: str, dry_run: bool = False) -> Answer:
    """Add a verified replica in a tier: copy, read back, record.

    Parameters
    ----------
    record: str
        Which: id:HEX, RUN@STEP, RUN@latest, RUN@WHEN, RUN@best:METRIC.
    to: str
        The tier.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.tiers.replicate import replicate as add_replica
    from lakemark.services.tiers.sources import nearest

    here = session()
    found = here.history.found(record, now=here.now)
    # Before the dry run, too: a tier that there is not must be refused by both.
    target = here.site.store(to)
    run, identity = found.record.run, found.record.id
    if dry_run:
        here.require_sound()
        standing = found.replicas.get(target.place)
        if standing is not None and standing.sound:
            return would(f"change nothing: {shown(found)} has a sound replica in {to}", record=identity)
        # Raises where no source is in reach, as the copy would.
        source = nearest(here.site, found)[0][1].name
        # A pass leaves such a place alone; a person who names it wants the try.
        refused = found.refused.get(target.place)
        if refused is not None:
            return would(f"try {shown(found)} once more, which {to} refused: {refused}", record=identity)
        return would(f"copy {shown(found)}, {size(found.record.size_bytes)}, from {source} to {to}", record=identity)
    add_replica(here.site, run, identity, to=to)
    return record_answer(here, identity, run)


def release(
    record: str,
    /,
    *,
    from_: Annotated[str, _FROM],
    reason: Reason = "asked for",
    dry_run: bool = False,
) -> Answer:
    """Drop a replica from a tier. Slower ones in other failure domains are read back in full first.

    Parameters
    ----------
    record: str
        Which: id:HEX, RUN@STEP, RUN@latest, RUN@WHEN, RUN@best:METRIC.
    from_: str
        The tier.
    reason: str
        Why; it stays in the history.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.tiers.release import release as drop_replica

    here = session()
    found = here.history.found(record, now=here.now)
    store = here.site.store(from_)
    run, identity = found.record.run, found.record.id
    if dry_run:
        here.require_sound()
        # Only names: whether they bear it shows when they are read back, which a dry run does not do.
        others = sorted({place.tier for place, one in found.replicas.items() if one.sound and place != store.place})
        if store.place not in found.replicas:
            return would(f"raise NotFound: {shown(found)} has no replica in {from_}", record=identity)
        backed = f"read {', '.join(others)} back, then " if others else "raise Refused: there is no other replica to "
        return would(f"{backed}drop {shown(found)} from {from_}", record=identity)
    drop_replica(here.site, run, identity, tier=from_, reason=reason)
    return record_answer(here, identity, run)


def restore(
    record: str,
    /,
    *,
    to: Path,
    from_: Annotated[str | None, _FROM] = None,
    role: Annotated[tuple[str, ...], _MANY] = (),
    part: str | None = None,
    tier_path: Path | None = None,
    dry_run: bool = False,
) -> Answer:
    """Bring a checkpoint's files back to an empty directory; every byte is compared with the manifest.

    Parameters
    ----------
    record: str
        Which: id:HEX, RUN@STEP, RUN@latest, RUN@WHEN, RUN@best:METRIC.
    to: Path
        A directory that is absent or empty, or our own interrupted restore.
    from_: str
        From this tier only; else from the nearest replica that has each file right.
    role: tuple[str, ...]
        Only what is of these roles, with configuration files. Where files mix roles (PyTorch DCP), only their bytes.
    part: str
        The part of this node; this version keeps checkpoints of one part.
    tier_path: Path
        The directory of a tier, to restore `id:HEX` from it alone: neither a site nor a ledger is needed then.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.back.restore import restore as bring_back
    from lakemark.services.saves.roles import require_words

    if tier_path is not None:
        if from_ is not None or role or part is not None:
            raise Usage("--tier-path goes with --to alone", advice="Restore the whole checkpoint from that directory.")
        # Before a session is asked for its site: neither configuration nor ledger may be needed.
        return _restored_alone(record, tier_path, to=absolute(to), dry_run=dry_run)
    here = session()
    if part is not None:
        raise Usage("--part: this version keeps checkpoints of one part", advice="Leave --part out.")
    require_words(role, option="--role")
    found = wanted_record(here, record)
    where = absolute(to)
    if dry_run:
        return _would_restore(here, found, to=where, tier=from_, roles=role)
    done = bring_back(here.site, found.record.run, found.record.id, to=where, tier=from_, roles=role)
    # The restore is right by then: each such file came from another replica.
    for place, path in done.restored.damaged:
        here.warn(f"{path} was damaged in {place.tier}; it came from elsewhere")
    for error in dict.fromkeys(map(str, done.unrecorded)):
        here.warn(f"the ledger does not know of the damage yet: {error}")
    return _restored(found, done, seconds=round(done.seconds, 3), roles=role)


def _restored_alone(text: str, tier_path: Path, *, to: Path, dry_run: bool) -> Answer:
    from lakemark.ports import Quiet
    from lakemark.services.back.restore_alone import found_alone, restore_alone
    from lakemark.site import tier_at

    where = absolute(tier_path)
    store, restorer = tier_at(where)
    if dry_run:
        record = found_alone(store, text).record
        _require_free(to)
        said = (
            f"restore {record.run}@{record.step} ({short(record.id)}), {size(record.size_bytes)}, from {where} to {to}"
        )
        return would(said, record=record.id)
    begun = time.monotonic()
    done = restore_alone(store, restorer, text, to=to, where=where, progress=Quiet())
    seconds = round(time.monotonic() - begun, 3)
    record, restored = done.checkpoint.record, done.restored
    files = sum(restored.files_by_place.values())
    document = {
        "record": record.id,
        "path": str(restored.path),
        "sources": [{"tier": name, "node": None, "files": count} for name, count in restored.files_by_place.items()],
        "size_bytes": restored.size_bytes,
        "restored_seconds": seconds,
        "verified": True,
    }
    lines = [
        plain(f"{record.run}@{record.step} ({short(record.id)}) is in {restored.path}"),
        f"{size(restored.size_bytes)} in {seconds:g} s, {files} file(s) from {plain(where)}; its id and every byte were compared",
    ]
    return Answer(document=document, lines=lines)


def _would_restore(here: Session, found: RecordState, *, to: Path, tier: str | None, roles: tuple[str, ...]) -> Answer:
    from lakemark.services.back.restore import chosen
    from lakemark.services.tiers.sources import nearest

    # Files that mix roles come in part, and how much of them shows only when they are read: then it is at most that.
    picked = chosen(here.site, here.site.ledger.manifest(found.record.run, found.record.id), roles)
    source = nearest(here.site, found, only=tier)[0][1].name
    _require_free(to)
    amount = f"{'at most ' if picked.sparse else ''}{size(picked.manifest.size_bytes)}"
    return would(f"restore {shown(found)}, {amount}, from {source} to {to}", record=found.record.id)


def _require_free(to: Path) -> None:
    try:
        # Our own interrupted restore lies beside it under a name of its own, and leaves this one free.
        taken = any(to.iterdir())
    except FileNotFoundError:
        return
    # A file there is in the way like a full directory.
    except NotADirectoryError:
        taken = True
    except PermissionError as error:
        raise Denied(f"{quoted(str(to))}: {error.strerror}", advice="Give lakemark's user the right to it.") from None
    except OSError as error:
        raise Refused(f"{quoted(str(to))}: {error.strerror}", advice="Choose another place or name.") from None
    if taken:
        raise Refused(f"{quoted(str(to))} is not empty", advice="Restore to a directory that is absent or empty.")


def _restored(found: RecordState, done: RestoredRecord, *, seconds: float, roles: tuple[str, ...]) -> Answer:
    sources = [_source(name, files) for name, files in done.restored.files_by_place.items()]
    document = {
        "record": found.record.id,
        "path": str(done.restored.path),
        "sources": sources,
        "size_bytes": done.restored.size_bytes,
        "restored_seconds": seconds,
        "verified": done.verified,
        "roles": done.roles.as_json(),
        "along": list(done.along),
        "mixed": list(done.mixed),
        "partial": None if done.partial is None else asdict(done.partial),
    }
    told = ", ".join(f"{one['files']} file(s) from {one['tier']}" for one in sources)
    lines = [
        plain(f"{shown(found)} is in {done.restored.path}"),
        f"{size(done.restored.size_bytes)} in {seconds:g} s, {told}",
        *_compared(done, roles),
        *(role_lines(done.roles) if not roles else _only(done.roles, roles)),
    ]
    return Answer(document=document, lines=lines)


def wanted_record(here: Session, text: str, *, look: Path | None = None) -> RecordState:
    """The record that is named. Where there is none of that step, what lies of it in the run's directories is said too.

    look: a directory to look in first.
    """
    from lakemark.model.selectors import AtStep, parse_record
    from lakemark.services.back.resume import lying_there
    from lakemark.services.directories import directories

    try:
        return here.history.found(text, now=here.now)
    except NotFound as error:
        selector = parse_record(text, now=here.now)
        # Only a step can lie in a directory: ids, times and bests are the ledger's.
        if not isinstance(selector, AtStep):
            raise
        state = here.history.structure(selector.run)
        places = [*([look] if look else []), *directories(here.site, state)]
        there = (lying_there(here.site, place, selector.step) for place in places if is_directory(place))
        said = next((one for one in there if one), None)
        if said is None:
            raise
        # What the trainer left there is why people ask: unfinished, refused, or not looked at yet.
        raise NotFound(
            f"{error}; {said}", advice="Resume from a step that is there, or let the trainer finish."
        ) from None


def role_lines(roles: Roles) -> list[str]:
    """What is there of the state of training, a line each."""
    pairs = (
        ("roles", roles.present),
        ("may hold", roles.possible),
        ("missing", roles.missing),
        ("short", roles.short),
    )
    return [f"{name}: {', '.join(words)}" for name, words in pairs if words]


def _only(there: Roles, asked: tuple[str, ...]) -> list[str]:
    """Of what was asked for, what came: the record may hold more, and less."""
    came = [role for role in asked if role not in there.missing]
    missing = [role for role in asked if role in there.missing]
    return [f"only: {', '.join(came)}", *([f"missing: {', '.join(missing)}"] if missing else [])]


def _compared(done: RestoredRecord, roles: tuple[str, ...]) -> list[str]:
    lines = []
    if done.along:
        lines.append(f"came along: {', '.join(done.along)}")
    if done.mixed and roles:
        lines.append(f"the files hold {', '.join(done.mixed)} too: they can't be taken apart")
    if done.partial is None:
        return [*lines, "every byte was compared with the manifest"]
    fetched, holes = size(done.partial.bytes_fetched), size(done.partial.bytes_sparse)
    lines.append(f"{len(done.partial.files)} file(s) in part: {fetched} are there, {holes} are holes")
    return [
        *lines,
        "every part that is there was compared with its digest; of such a file as a whole that can't be said",
    ]


def _source(name: str, files: int) -> dict[str, Any]:
    # `hot@node-a`: hot of a node is named with it.
    tier, _, node = name.partition("@")
    return {"tier": tier, "node": node or None, "files": files}


def shown(found: RecordState) -> str:
    """As people are told of a record."""
    return f"{found.record.run}@{found.record.step} ({short(found.record.id)})"
