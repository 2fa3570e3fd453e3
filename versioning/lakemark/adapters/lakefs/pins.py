"""Pins: hidden branches that keep a data commit alive and refuse, by themselves, to be deleted or moved.

lakeFS keeps what a branch's head holds, and nothing else: no tag keeps anything. So a pin is a branch. Where the
repository allows it, it stands at a commit of ours, the guard: its parent is the data commit, and it differs from that
in one file, an action that lakeFS runs before anybody deletes, reverts or commits to the branch. The action says no
until the branch `lakemark-released` holds a marker with this pin's nonce. Writing and resetting is refused by a
protection rule for `pin-*`.

Making one goes through a branch of its own name, so that the pin appears finished or not at all, and a process that is
killed at any point leaves what the next one goes on from::

    making-<pin> at C -> upload the action -> commit G -> pin at G -> see that it resists deleting -> drop making-<pin>

Whether the guard holds is never taken from how it looks alone: `make`, and `seen` for the pins it is told to try, ask the
server to delete the pin while making-<pin> holds the same commit. A server whose actions are off lets it go.

A merge *into* a pin is judged by the actions of what is merged: lakeFS lets through a source without the guard.
`strength` sees it, as everything else, by looking.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lakemark.adapters.lakefs import errors
from lakemark.adapters.lakefs.server import LakeFSServer
from lakemark.errors import Conflict, Denied, NotFound, PinReleased, Refused, StoreUnavailable, Usage, quoted
from lakemark.ports.data import MadePin, PinAsked, PinSeen, Strength

GUARD_PATH: Final = "_lakefs_actions/lakemark.yaml"
RELEASED: Final = "lakemark-released"
PATTERN: Final = "pin-*"
_PIN: Final = re.compile(r"pin-[A-Za-z0-9_-]{1,200}", re.ASCII)
_NONCE: Final = re.compile(r"[A-Za-z0-9_-]{4,64}", re.ASCII)
_NONCE_LINE: Final = re.compile(r"^# nonce: ([A-Za-z0-9_-]{4,64})$", re.ASCII | re.MULTILINE)
_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.25
# 403: a protection rule, or no right to it. 412: a hook of the repository said no.
_REFUSALS: Final = (errors.FORBIDDEN, errors.PRECONDITION_FAILED)

_GUARD: Final = """\
name: lakemark pin
description: keeps a data version that checkpoints were trained with
# nonce: {nonce}
on:
  pre-delete-branch:
    branches: ["pin-*"]
  pre-commit:
    branches: ["pin-*"]
  pre-merge:
    branches: ["pin-*"]
  pre-revert:
    branches: ["pin-*"]
  pre-cherry-pick:
    branches: ["pin-*"]
hooks:
  - id: until_released
    type: lua
    properties:
      script: |
        local lakefs = require("lakefs")
        local marker = action.branch_id .. "/{nonce}"
        local code = lakefs.get_object(action.repository_id, "lakemark-released", marker)
        if code ~= 200 then
          error("checkpoints were trained with this data: `lakemark pins` says which")
        end
"""


def guard(nonce: str) -> bytes:
    """The action file of a pin: it opens only for a marker that carries `nonce`."""
    return _GUARD.format(nonce=nonce).encode()


@dataclass(frozen=True, slots=True)
class _Standing:
    """What is at a pin's name now. guard_nonce: None for a plain branch at the commit itself."""

    head: str
    guard_nonce: str | None


class Pins:
    """Makes, judges and releases the pins of one server."""

    def __init__(
        self, server: LakeFSServer, *, settle_seconds: float, sleep: Callable[[float], None] | None = None
    ) -> None:
        self._server = server
        self._polls = max(1, round(settle_seconds / _PAUSE_SECONDS))
        self._sleep = sleep or server.sleep

    def make(self, repository: str, commit: str, *, branch: str, nonce: str) -> MadePin:
        """See `DataVersions.pin`. Raises Conflict where the name is taken by anything but this pin."""
        _names(branch, nonce)
        # Raises where there is no such commit, before anything is made for it.
        self._server.commit(repository, commit)
        # Then in rounds, each by what stands there now: other processes may be making, or releasing, the same pin.
        open_rule, unguarded = self._protect(repository), None
        for _ in range(_ATTEMPTS):
            standing = self._standing(repository, commit, branch)
            if standing is None:
                unguarded = self._try(repository, commit, branch=branch, nonce=nonce)
                continue
            if standing.guard_nonce is None and unguarded is None:
                unguarded = self._strengthened(repository, commit, branch=branch, nonce=nonce)
                continue
            if standing.guard_nonce not in (None, nonce):
                raise Conflict(
                    f"branch {branch} of {quoted(repository)} is a pin of {commit[:12]} with another nonce",
                    advice="Pin under a new name.",
                )
            if standing.guard_nonce == nonce:
                unguarded = unguarded or self._let_go(repository, branch, standing.head, commit=commit)
            self._server.drop_branch(repository, _making(branch), expect=(errors.NOT_FOUND, *_REFUSALS))
            # Last, since it may wait for seconds: a server takes up to six until a new rule holds.
            why = unguarded or open_rule or self._unprotected(repository, branch) or ""
            return MadePin(
                repository=repository,
                commit=commit,
                branch=branch,
                strength=Strength.PLAIN if why else Strength.GUARDED,
                why_plain=why or None,
            )
        raise Conflict(
            f"branch {branch} of {quoted(repository)} came and went {_ATTEMPTS} times while it was being made",
            advice="Something deletes branches there; find it before training on this data.",
        )

    def seen(self, repository: str, pins: Sequence[PinAsked], *, tries: Collection[str]) -> Mapping[str, PinSeen]:
        """See `DataVersions.pins_seen`."""
        # One listing for all of them: asking for each of a thousand pins would take longer than a call may.
        heads = self._server.branches(repository, prefix="pin-", hidden=True)
        ruled, released = self._has_rule(repository), self._server.written(repository, RELEASED)
        found: dict[str, PinSeen] = {}
        for pin in pins:
            try:
                found[pin.branch] = self._seen(repository, pin, heads, ruled=ruled, released=released)
            except StoreUnavailable:
                if not found:
                    raise
                return found  # what was read is read: the next pass begins after it
        open_server = None
        for name in tries:
            one = found.get(name)
            if one is None or one.strength is not Strength.GUARDED or one.head is None:
                continue
            commit = next(pin.commit for pin in pins if pin.branch == name)
            try:
                open_server = self._let_go(repository, name, one.head, commit=commit)
                self._server.drop_branch(repository, _making(name), expect=(errors.NOT_FOUND, *_REFUSALS))
            except StoreUnavailable:
                del found[name]  # whether it still stands where it did is not known any more
                break
            if open_server is not None:
                found[name] = replace(one, head=commit)  # where it was put back
                break
            found[name] = replace(one, tried=True)
        if open_server is None:
            return found
        # One that was let go tells of all: this server runs no actions.
        weak = {
            name: replace(one, strength=Strength.PLAIN, why=open_server, tried=True)
            for name, one in found.items()
            if one.strength is Strength.GUARDED
        }
        return found | weak

    def _seen(
        self, repository: str, pin: PinAsked, heads: Mapping[str, str], *, ruled: bool, released: Collection[str]
    ) -> PinSeen:
        head = heads.get(pin.branch)
        if head is None:
            return PinSeen(strength=Strength.NONE, why="its branch is gone")
        if head == pin.commit:
            return PinSeen(strength=Strength.PLAIN, head=head, why="it has no guard")
        if head != pin.proven and self._guard_nonce(repository, pin.commit, head) != pin.nonce:
            return PinSeen(strength=Strength.NONE, head=head, why="its branch was moved: it keeps another commit now")
        if f"{pin.branch}/{pin.nonce}" in released:
            return PinSeen(strength=Strength.PLAIN, head=head, why="somebody released it: its guard stands open")
        if not ruled:
            return PinSeen(strength=Strength.PLAIN, head=head, why=f"no protection rule for {PATTERN}")
        return PinSeen(strength=Strength.GUARDED, head=head)

    def strength(self, repository: str, commit: str, *, branch: str) -> Strength:
        try:
            standing = self._standing(repository, commit, branch)
        except Conflict:
            return Strength.NONE
        if standing is None:
            return Strength.NONE
        nonce = standing.guard_nonce
        if nonce is None or not self._has_rule(repository) or self._released(repository, branch, nonce):
            return Strength.PLAIN
        return Strength.GUARDED

    def release(self, repository: str, commit: str, *, branch: str, nonce: str, reason: str) -> None:
        """See `DataVersions.unpin`. Conflict where the branch is no pin of `commit`, Refused for another nonce."""
        _names(branch, nonce)
        standing = self._standing(repository, commit, branch)
        # A 404 of one branch may be a gateway's: a pin that still stands must not be noted as released.
        if standing is None and branch in self._server.branches(repository, prefix=branch, hidden=True):
            raise StoreUnavailable(
                f"branch {branch} of {quoted(repository)} is listed and can't be had",
                advice="Try again; look at what is between this node and the server.",
            )
        if standing is not None:
            if standing.guard_nonce is not None:
                # Before the branch is deleted: the guard looks for the marker then, and only then opens.
                self._mark(repository, commit, branch=branch, nonce=nonce, reason=reason)
            answer = self._server.drop_branch(repository, branch, expect=(errors.NOT_FOUND, errors.PRECONDITION_FAILED))
            if answer.status == errors.PRECONDITION_FAILED:
                raise Refused(
                    f"the pin {branch} of {quoted(repository)} stays closed for the nonce {nonce}: {answer.message}",
                    advice="Release it with the nonce it was made with, or see the repository's actions.",
                )
        self._server.drop_branch(repository, _making(branch), expect=(errors.NOT_FOUND,))

    def left(self, repository: str, branch: str, commit: str) -> bool:
        """Whether the branch leaves `commit` while we wait: another process was faster, and its commit is on its way."""
        for _ in range(self._polls):
            if self._server.head(repository, branch) != commit:
                return True
            self._sleep(_PAUSE_SECONDS)
        return False

    def _try(self, repository: str, commit: str, *, branch: str, nonce: str) -> str | None:
        """One attempt at making it; the caller looks at what came of it. Answers why it is not guarded."""
        self._require_closed(repository, branch, nonce)
        found, why = self._guarded(repository, commit, branch=branch, nonce=nonce)
        if found is None and why is None:
            return None
        self._branch(repository, branch, found or commit)
        return why

    def _strengthened(self, repository: str, commit: str, *, branch: str, nonce: str) -> str | None:
        """One attempt at giving a plain pin its guard; answers why it can have none. making-<branch> holds the data meanwhile."""
        self._require_closed(repository, branch, nonce)
        found, why = self._guarded(repository, commit, branch=branch, nonce=nonce)
        if found is None:
            return why
        # From here to the next branch only making-<pin> keeps the data.
        gone = self._server.drop_branch(repository, branch, expect=(errors.NOT_FOUND, *_REFUSALS))
        if gone.status in _REFUSALS:
            return f"the repository does not let the plain branch go: {gone.message}"
        self._branch(repository, branch, found)
        return None

    def _let_go(self, repository: str, branch: str, head: str, *, commit: str) -> str | None:
        """Asks the server to delete the guarded pin; answers what that says against its guard, where it did.

        making-<branch> holds the same commit meanwhile, so nothing is lost by asking; the caller removes it. A pin that
        was let go stands at the plain commit afterwards: what guards nothing does not look like a guard.
        """
        held = self._server.make_branch(
            repository, _making(branch), head, hidden=True, expect=(errors.CONFLICT, *_REFUSALS)
        )
        if not held.ok and self._server.head(repository, _making(branch)) != head:
            return None  # nothing would hold the data: what was not tried is not called weak
        if not self._server.drop_branch(repository, branch, expect=(errors.NOT_FOUND, *_REFUSALS)).ok:
            return None
        self._branch(repository, branch, commit)
        return "the server runs no actions: it let the pin be deleted"

    def _require_closed(self, repository: str, branch: str, nonce: str) -> None:
        """Raises PinReleased where the marker that opens this guard is there already."""
        if self._released(repository, branch, nonce):
            raise PinReleased(
                f"the pin {branch} of {quoted(repository)} was released: its guard would open at once",
                advice="Pin under a new name, with a new nonce.",
            )

    def _guarded(self, repository: str, commit: str, *, branch: str, nonce: str) -> tuple[str | None, str | None]:
        """The guard's commit on top of `commit`, or why there can be none; neither where another process interfered."""
        making = _making(branch)
        made = self._server.make_branch(repository, making, commit, hidden=True, expect=(errors.CONFLICT, *_REFUSALS))
        if made.status in _REFUSALS:
            return None, f"the repository refused a branch to make it on: {made.message}"
        if self._server.head(repository, making) == commit:
            why = self._commit_guard(repository, making, commit, nonce)
            if why is not None:
                return None, why
        head = self._server.head(repository, making)
        if head is not None and self._guard_nonce(repository, commit, head) == nonce:
            return head, None
        self._server.drop_branch(repository, making, expect=(errors.NOT_FOUND, *_REFUSALS))
        return None, None

    def _commit_guard(self, repository: str, making: str, commit: str, nonce: str) -> str | None:
        """Why the guard can't be committed; None where it was, or where another process was faster. Raises StoreUnavailable."""
        # 400 to a commit: nothing is staged, since another process has committed the same file.
        gone, unchanged = errors.NOT_FOUND, errors.BAD_REQUEST
        wrote = self._server.upload(repository, making, GUARD_PATH, guard(nonce), expect=(gone, *_REFUSALS))
        if wrote.status in _REFUSALS:
            return f"the repository refused the guard's file: {wrote.message}"
        # Another process finished and dropped the branch: the caller looks at what stands now.
        if wrote.status == gone:
            return None
        answer = self._server.record(
            repository,
            making,
            f"Guard the pin of {commit[:12]}",
            metadata={"lakemark": "pin", "lakemark_data_commit": commit},
            expect=(gone, unchanged, *errors.RACES, *_REFUSALS),
        )
        # Told that it was the slower one: the faster one's commit may take a moment to be seen.
        if answer.status in errors.RACES and not self.left(repository, making, commit):
            raise errors.error_for(answer.status, answer.message, about=f"committing to branch {making}")
        if answer.status in _REFUSALS:
            return f"the repository refused the guard's commit: {answer.message}"
        return None

    def _branch(self, repository: str, branch: str, commit: str) -> None:
        self._server.make_branch(repository, branch, commit, hidden=True, expect=(errors.CONFLICT,))

    def _standing(self, repository: str, commit: str, branch: str) -> _Standing | None:
        """What is at the pin's name. Raises Conflict where that is neither `commit` nor a guard on top of it."""
        head = self._server.head(repository, branch)
        if head is None:
            return None
        if head == commit:
            return _Standing(head, None)
        nonce = self._guard_nonce(repository, commit, head)
        if nonce is None:
            raise Conflict(
                f"branch {branch} of {quoted(repository)} is at {head[:12]}, which is no pin of {commit[:12]}",
                advice="Somebody moved it: pin under a new name, and look at what that branch holds before it goes.",
            )
        return _Standing(head, nonce)

    def _guard_nonce(self, repository: str, commit: str, head: str) -> str | None:
        """The nonce of the guard at `head`, if it is one: its parent is `commit`, and only our file differs."""
        if self._server.commit(repository, head).parents != (commit,):
            return None
        # Two tell one from more; the difference to a branch that was moved may be millions.
        differences = self._server.differences(repository, commit, head, page=2)
        if [path for _, path in differences] != [GUARD_PATH]:
            return None
        answer = self._server.opened(repository, head, GUARD_PATH)
        if not answer.ok:
            return None
        content = b"".join(self._server.body(answer.value))
        found = _NONCE_LINE.search(content.decode(errors="replace"))
        # Byte for byte: one that somebody edited may let everything through.
        return found[1] if found and content == guard(found[1]) else None

    def _mark(self, repository: str, commit: str, *, branch: str, nonce: str, reason: str) -> None:
        """Writes and commits the release marker. Its branch starts at the empty first commit and keeps nothing."""
        if self._server.head(repository, RELEASED) is None:
            self._branch(repository, RELEASED, self._first_commit(repository, commit))
        marker = json.dumps({"pin": branch, "nonce": nonce, "commit": commit, "reason": reason}, sort_keys=True)
        self._server.upload(repository, RELEASED, f"{branch}/{nonce}", marker.encode())
        self._server.record(
            repository,
            RELEASED,
            f"Release {branch}: {reason}",
            metadata={"lakemark": "release", "lakemark_data_commit": commit},
            expect=(errors.BAD_REQUEST,),
        )

    def _released(self, repository: str, branch: str, nonce: str) -> bool:
        """Whether the marker that opens this pin's guard is there, committed or not."""
        return self._server.has(repository, RELEASED, f"{branch}/{nonce}")

    def _first_commit(self, repository: str, commit: str) -> str:
        """The first commit by first parents, found by halving the distance to it."""
        # lakeFS can step back so many parents, but not name the first one.
        nearest, beyond = 0, 1
        while self._server.back(repository, commit, beyond) is not None:
            nearest, beyond = beyond, beyond * 2
        while beyond - nearest > 1:
            middle = (nearest + beyond) // 2
            if self._server.back(repository, commit, middle) is None:
                beyond = middle
            else:
                nearest = middle
        first = self._server.back(repository, commit, nearest)
        if first is None:
            raise NotFound(f"{commit} of {quoted(repository)} has no first commit", advice="Run `lakemark doctor`.")
        return first

    def _has_rule(self, repository: str) -> bool:
        """False too where the rules may not be read: a rule nobody can see is not relied on."""
        try:
            return PATTERN in self._server.protected(repository)[0]
        except Denied:
            return False

    def _protect(self, repository: str) -> str | None:
        """Adds our rule to those that are there; answers why it can't."""
        for _ in range(_ATTEMPTS):
            try:
                patterns, tag = self._server.protected(repository)
            except Denied as error:
                return f"the repository's protection rules may not be read: {error}"
            if PATTERN in patterns:
                return None
            # With the tag that was read, so that a rule which somebody adds meanwhile is not lost.
            answer = self._server.protect(repository, [*patterns, PATTERN], only_if=tag, expect=_REFUSALS)
            if answer.status == errors.FORBIDDEN:
                return f"the repository's protection rules may not be changed: {answer.message}"
        return None if self._has_rule(repository) else "somebody else kept changing the repository's protection rules"

    def _unprotected(self, repository: str, branch: str) -> str | None:
        """Waits until a write to the pin is refused. Resetting a clean branch is a write that changes nothing."""
        status = 0
        for _ in range(self._polls):
            status = self._server.reset(repository, branch, expect=(errors.FORBIDDEN, *errors.RACES)).status
            if status == errors.FORBIDDEN:
                return None
            self._sleep(_PAUSE_SECONDS)
        if status in errors.RACES:
            raise errors.error_for(status, "nothing else all the time", about=f"resetting branch {branch}")
        return f"the server did not begin to refuse writes to {PATTERN} within {self._polls * _PAUSE_SECONDS:.0f} s"


def _making(branch: str) -> str:
    return f"making-{branch}"


def _names(branch: str, nonce: str) -> None:
    """Raises Usage for a name or nonce that is none of ours: the nonce is put into the guard's script."""
    if not _PIN.fullmatch(branch):
        raise Usage(
            f"{quoted(branch)} is no pin's name: pin- and letters, digits, _ or -", advice="Name it pin-<12>-<nonce>."
        )
    if not _NONCE.fullmatch(nonce):
        raise Usage(f"{quoted(nonce)} is no nonce: 4 to 64 letters, digits, _ or -", advice="Make one with `secrets`.")
