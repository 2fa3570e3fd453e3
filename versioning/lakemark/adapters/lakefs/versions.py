"""lakeFS as `DataVersions`, through lakefs-client 1.44, which is under Apache-2.0 and works with any server 1.x."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial, wraps
from itertools import islice
from random import Random
from typing import Final, ParamSpec, TypeVar, cast

from lakemark.adapters.lakefs import errors, history
from lakemark.adapters.lakefs.pins import Pins
from lakemark.adapters.lakefs.samples import drawn
from lakemark.adapters.lakefs.server import LakeFSServer, full
from lakemark.errors import Conflict, Corrupt, DataGone, Denied, NotFound, Refused, quoted
from lakemark.model.values.data_ids import is_commit_id
from lakemark.ports.data import (
    DataCommit,
    DataDiff,
    HeadAt,
    MadePin,
    Patience,
    PinAsked,
    PinSeen,
    Sampled,
    Strength,
)

TIMEOUT_SECONDS: Final = (5.0, 30.0)
CALL_SECONDS: Final = 45.0
SETTLE_SECONDS: Final = 8.0
_ATTEMPTS: Final = 5
_SAMPLE: Final = 10
_RESTORES: Final = "lakemark_restores"


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _timed(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """A method of few requests, over within CALL_SECONDS: a server that answers each of them late holds nobody up for minutes."""

    @wraps(call)
    def timed(*given: _P.args, **named: _P.kwargs) -> _R:
        with cast("LakeFSVersions", given[0]).within(CALL_SECONDS):
            return call(*given, **named)

    return timed


class LakeFSVersions:
    """The data repositories of one lakeFS server.

    endpoint: its address, without a path. timeout_seconds: to connect, and between two bytes of an answer.
    settle_seconds: how long `pin` waits at most for a new protection rule to hold; servers take up to six.
    patience_seconds: see `Server`. server: what to talk through. Nothing is sent yet.
    """

    def __init__(
        self,
        endpoint: str,
        access_key_id: str,
        secret_access_key: str,
        *,
        timeout_seconds: tuple[float, float] = TIMEOUT_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
        patience_seconds: float | None = None,
        server: Callable[..., LakeFSServer] = LakeFSServer,
    ) -> None:
        self._server = server(
            endpoint,
            access_key_id,
            secret_access_key,
            timeout_seconds=timeout_seconds,
            patience_seconds=patience_seconds,
        )
        self._pins = Pins(self._server, settle_seconds=settle_seconds)

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """See `Server.within`."""
        return self._server.within(seconds)

    def patient(self, patience: Patience) -> AbstractContextManager[None]:
        return self._server.patient(patience)

    @_timed
    def resolve(self, repository: str, ref: str) -> DataCommit:
        if is_commit_id(ref):
            return self._server.commit(repository, ref)
        commit = self._server.head(repository, ref) or self._server.tag(repository, ref)
        if commit is None:
            raise NotFound(
                f"data repository {quoted(repository)} has no branch or tag {quoted(ref)}",
                advice="Name a branch, a tag, or a commit by its full id of 64 hex digits.",
            )
        return self._server.commit(repository, commit)

    @_timed
    def pin(self, repository: str, commit: str, *, branch: str, nonce: str) -> MadePin:
        return self._pins.make(repository, full(commit), branch=branch, nonce=nonce)

    @_timed
    def pin_strength(self, repository: str, commit: str, *, branch: str) -> Strength:
        return self._pins.strength(repository, full(commit), branch=branch)

    @_timed
    def unpin(self, repository: str, commit: str, *, branch: str, nonce: str, reason: str) -> None:
        self._pins.release(repository, full(commit), branch=branch, nonce=nonce, reason=reason)

    @_timed
    def pins_seen(
        self, repository: str, pins: Sequence[PinAsked], *, tries: Collection[str] = ()
    ) -> Mapping[str, PinSeen]:
        return self._pins.seen(repository, pins, tries=tries)

    def readable(self, repository: str, commit: str, *, sample: int | None, seed: int) -> Sampled:
        def page(prefix: str, after: str, amount: int) -> tuple[list[tuple[str, int]], bool]:
            return self._server.objects(repository, commit, prefix=prefix, after=after, page=amount)

        self._server.commit(repository, commit)
        if sample is None:
            chosen = list(self.list(repository, commit))
            of, whole = len(chosen), True
        else:
            chosen, of, whole = drawn(page, sample, chance=Random(seed))  # noqa: S311 - chooses objects, keeps no secret
        lost = tuple(path for path, size_bytes in chosen if self._lost(repository, commit, path, size_bytes))
        return Sampled(lost=lost, read=len(chosen), of=of, whole=whole, seed=seed)

    @_timed
    def branch_at(self, repository: str, name: str, commit: str) -> None:
        made = self._server.make_branch(repository, name, commit, hidden=False, expect=(errors.CONFLICT,))
        if made.ok:
            return
        # Taken: by an earlier try of the same call, or by somebody else.
        head = self._server.head(repository, name)
        if head != commit:
            raise Conflict(
                f"branch {quoted(name)} of {quoted(repository)} exists, at {head or 'nothing'} and not at {commit}",
                advice="Look at what it is for; another name works.",
            )

    @_timed
    def delete_branch(self, repository: str, name: str, *, only_at: str) -> bool:
        """As in `DataVersions`; False too where it has uncommitted changes. Comparing and deleting are two steps."""
        if self._server.head(repository, name) != full(only_at) or self._server.staged(repository, name):
            return False
        return self._server.drop_branch(repository, name, expect=(errors.NOT_FOUND,)).ok

    @_timed
    def head(self, repository: str, branch: str) -> str | None:
        return self._server.head(repository, branch)

    def branches(self, repository: str, *, prefix: str = "") -> Mapping[str, str]:
        return self._server.branches(repository, prefix=prefix, hidden=False)

    @_timed
    def head_at(self, repository: str, branch: str, at: datetime) -> HeadAt:
        """As in `DataVersions`. A naive `at` is a ValueError; NotFound where there is no such branch now."""
        if at.tzinfo is None:
            message = f"{at.isoformat()} has no offset"
            raise ValueError(message)
        return history.head_at(self._server.history(repository, self._head(repository, branch), remembered=True), at)

    @_timed
    def move_branch(
        self, repository: str, branch: str, commit: str, *, message: str, only_at: str | None = None
    ) -> str:
        """As in `DataVersions`. Called again with the same arguments, it answers what it made, while nothing follows that."""
        target, head = self._server.commit(repository, commit), self._head(repository, branch)
        if not target.meta_range:
            raise Refused(
                f"{commit} is the empty first commit of {quoted(repository)}: there is nothing to restore",
                advice="Name a commit that has data.",
            )
        for _ in range(_ATTEMPTS):
            before = self._server.commit(repository, head)
            # What an earlier try made, whose answer got lost, is the answer again.
            mine = before.metadata.get(_RESTORES) == commit and before.message == message
            if mine and before.meta_range == target.meta_range:
                return before.id
            if only_at is not None and head != only_at:
                raise Conflict(
                    f"branch {quoted(branch)} of {quoted(repository)} is at {head[:12]}, no longer at {only_at[:12]}",
                    advice="Look at what was committed there since, then plan again.",
                )
            # The server takes any meta-range for granted; that this one loads is seen before the branch depends on it.
            next(self._server.differences(repository, before.id, commit, page=1), None)
            made = self._server.record(
                repository,
                branch,
                message,
                metadata={"lakemark": "restore", _RESTORES: commit},
                source=target.meta_range,
                expect=(errors.BAD_REQUEST, *errors.RACES),
            )
            if made.ok:
                return self._moved(repository, branch, before=before, target=target, made=str(made.value.id))
            if made.status not in errors.RACES or not self._pins.left(repository, branch, head):
                break
            head = self._head(repository, branch)
        if "uncommitted" in made.message:
            raise Refused(
                f"branch {quoted(branch)} of {quoted(repository)} has uncommitted changes, which a restore would bury",
                advice="Commit or reset them in lakeFS, or open a new branch instead.",
            )
        raise errors.error_for(made.status, made.message, about=f"restoring {commit} on branch {quoted(branch)}")

    @_timed
    def movable(self, repository: str, branch: str) -> str | None:
        if self._server.head(repository, branch) is None:
            return "there is no such branch"
        if self._server.staged(repository, branch):
            return "it has uncommitted changes, which a restore would bury"
        try:
            rules = self._server.protected(repository)[0]
        except Denied:
            return None  # who may not read the rules learns by trying
        rule = next((rule for rule in rules if fnmatchcase(branch, rule)), None)
        return None if rule is None else f"the protection rule {rule} forbids commits to it"

    def diff(self, repository: str, left: str, right: str, *, limit: int = 10_000) -> DataDiff:
        counts = {"added": 0, "removed": 0, "changed": 0}
        sample: list[str] = []
        differences = self._server.differences(repository, left, right)
        for kind, path in islice(differences, limit):
            counts[kind if kind in counts else "changed"] += 1
            if len(sample) < _SAMPLE:
                sample.append(path)
        complete = next(differences, None) is None
        return DataDiff(**counts, complete=complete, sample=tuple(sample))

    def list(self, repository: str, commit: str, *, prefix: str = "") -> Iterator[tuple[str, int]]:
        ask = partial(self._server.objects, repository, commit, prefix=prefix)
        found, more = ask()
        yield from found
        # A page without objects that says there is more would be asked for without an end.
        while more and found:
            found, more = ask(after=found[-1][0])
            yield from found

    def read(self, repository: str, commit: str, path: str) -> Iterator[bytes]:
        """As in `DataVersions`. Raises at the call, not at the first chunk, where the object is missing or gone."""
        answer = self._server.opened(repository, commit, path)
        if answer.ok:
            return self._server.body(answer.value)
        if answer.status == errors.GONE:
            raise DataGone(
                f"{quoted(path)} in {commit} of {quoted(repository)}: its bytes were collected",
                advice="Take another data version; `lakemark verify` lists what else is lost.",
                lost=(path,),
            )
        raise errors.error_for(
            answer.status, answer.message, about=f"{quoted(path)} in {commit} of data repository {quoted(repository)}"
        )

    def altered(self, repository: str, commit: str, *, limit: int) -> tuple[str, ...]:
        return history.altered(islice(self._server.history(repository, commit), limit))

    def _head(self, repository: str, branch: str) -> str:
        """The branch's head. Raises NotFound."""
        head = self._server.head(repository, branch)
        if head is None:
            raise NotFound(
                f"data repository {quoted(repository)} has no branch {quoted(branch)}",
                advice="See lakeFS for its name.",
            )
        return head

    def _lost(self, repository: str, commit: str, path: str, size_bytes: int) -> bool:
        """Whether the object's first byte can't be read. An empty object has none: it is asked for whole."""
        # A byte, not the name: lakeFS lists an object whose bytes were collected, and finds out when they are asked for.
        answer = self._server.opened(repository, commit, path, byte_range="bytes=0-0" if size_bytes else None)
        if not answer.ok:
            return True
        return size_bytes > 0 and not next(self._server.body(answer.value), b"")

    def _moved(self, repository: str, branch: str, *, before: DataCommit, target: DataCommit, made: str) -> str:
        """Looks at the commit that was made on the branch, and answers its id. Conflict where it buries somebody's change."""
        if next(self._server.differences(repository, target.id, made, page=1), None) is not None:
            raise Corrupt(
                f"{made} on branch {quoted(branch)} of {quoted(repository)} differs from {target.id} that it restores",
                advice="Do not train on that branch: report it with both ids.",
            )
        parent = self._server.commit(repository, self._server.commit(repository, made).parents[0])
        if parent.meta_range not in (before.meta_range, target.meta_range):
            raise Conflict(
                f"branch {quoted(branch)} of {quoted(repository)} got {parent.id} while it was being moved; "
                f"{made} restores {target.id} on top of that",
                advice="Nothing is lost: whoever committed it finds it in the branch's history.",
            )
        return made
