"""What `DataVersions` guarantees, as checks.

`PROBES` read one branch of a repository in use. `CHECKS`, the probes among them, want a scratch repository and hands
that write to it as an ordinary client would.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from lakemark.contract import Check, raises, require
from lakemark.errors import Conflict, DataGone, NotFound, Refused, Usage
from lakemark.ports.data import DataVersions, PinAsked, Strength

_SAMPLE: Final = 8
_WALK: Final = 100


class TrialBranch(Protocol):
    """A branch with at least one object, of a repository that `data` reads."""

    @property
    def data(self) -> DataVersions: ...
    @property
    def repository(self) -> str: ...
    @property
    def branch(self) -> str: ...


class Scratch(TrialBranch, Protocol):
    """A repository of the check's own, and an ordinary client of its server."""

    def put(self, branch: str, changes: Mapping[str, bytes | None], *, message: str) -> str:
        """Commits the changes (None deletes) and answers the commit's id."""

    def stage(self, branch: str, path: str, content: bytes) -> None:
        """Writes without committing."""

    def make_branch(self, name: str, commit: str) -> None: ...

    def make_tag(self, name: str, commit: str) -> None: ...

    def attack(self, branch: str) -> Mapping[str, bool]:
        """Tries all that could harm a branch; answers, by what was tried, whether it was refused. `merge` is among it."""

    def collect(self, commit: str, path: str) -> bool:
        """Takes the object's bytes away, as garbage collection does; False where this place can't."""


def _fresh(word: str) -> str:
    return f"{word}-{secrets.token_hex(4)}"


def _pin_name(commit: str, nonce: str) -> str:
    return f"pin-{commit[:12]}-{nonce}"


def _commit(place: Scratch, **files: bytes) -> str:
    """A new commit with files of its own on the place's branch."""
    folder = _fresh("files")
    return place.put(place.branch, {f"{folder}/{name}": content for name, content in files.items()}, message=folder)


def _resolve_by_full_id(place: TrialBranch) -> None:
    head = place.data.head(place.repository, place.branch)
    if head is None:
        require(holds=False, seen=f"head() knows no branch {place.branch}")
        return
    by_branch = place.data.resolve(place.repository, place.branch)
    require(by_branch.id == head, f"resolve({place.branch!r}) answered {by_branch.id}, head() {head}")
    by_id = place.data.resolve(place.repository, head)
    require(by_id == by_branch, "resolve by full id and by branch answered different fields")
    require(by_id.created_at.tzinfo is not None, "created_at is naive")


def _resolve_guesses_nothing(place: TrialBranch) -> None:
    head = place.data.resolve(place.repository, place.branch).id
    for ref in (head[:12], head[:63], "0" * 64, _fresh("nobranch")):
        raises(lambda ref=ref: place.data.resolve(place.repository, ref), NotFound, f"resolve({ref!r})")  # type: ignore[misc]
    unknown = _fresh("norepository")
    raises(lambda: place.data.resolve(unknown, place.branch), NotFound, "resolve in an unknown repository")
    raises(lambda: place.data.head(unknown, place.branch), NotFound, "head in an unknown repository")


def _reads_need_full_ids(place: TrialBranch) -> None:
    data, repository = place.data, place.repository
    for ref in (data.resolve(repository, place.branch).id[:12], place.branch):
        for name, call in (
            ("read", lambda ref=ref: list(data.read(repository, ref, "any"))),
            ("list", lambda ref=ref: list(data.list(repository, ref))),
            ("readable", lambda ref=ref: data.readable(repository, ref, sample=1, seed=0)),
            ("diff", lambda ref=ref: data.diff(repository, ref, ref)),
            ("branch_at", lambda ref=ref: data.branch_at(repository, _fresh("never"), ref)),
        ):
            raises(call, Usage, f"{name} of {ref!r}")


def _bytes_can_be_read(place: TrialBranch) -> None:
    commit = place.data.resolve(place.repository, place.branch).id
    found = place.data.readable(place.repository, commit, sample=_SAMPLE, seed=secrets.randbits(32))
    require(found.lost == (), f"bytes of {commit} can't be read: {', '.join(found.lost)} ({found.said})")


def _history_fits_its_ids(place: TrialBranch) -> None:
    commit = place.data.resolve(place.repository, place.branch).id
    changed = place.data.altered(place.repository, commit, limit=_WALK)
    require(changed == (), f"commits whose fields don't give their ids: {', '.join(changed)}")


def _head_at_is_an_estimate(place: TrialBranch) -> None:
    head = place.data.resolve(place.repository, place.branch)
    at = head.created_at + timedelta(days=1)
    found = place.data.head_at(place.repository, place.branch, at)
    require(found.precision.startswith("estimated"), f"precision is {found.precision!r}")
    long_ago = place.data.head_at(place.repository, place.branch, datetime(1971, 1, 1, tzinfo=UTC))
    require(long_ago.commit is None, f"in 1971 the head was {long_ago.commit}")


def _branch_named_like_a_commit(place: Scratch) -> None:
    older, newer = _commit(place, a=b"1"), _commit(place, a=b"2")
    name = older[:12]
    place.make_branch(name, newer)
    try:
        found = place.data.resolve(place.repository, name)
        require(found.id == newer, f"branch {name} at {newer} resolved to {found.id}")
    finally:
        place.data.delete_branch(place.repository, name, only_at=newer)


def _tags_resolve(place: Scratch) -> None:
    commit, tag = _commit(place, a=b"1"), f"v1.{secrets.token_hex(4)}"
    place.make_tag(tag, commit)
    found = place.data.resolve(place.repository, tag)
    require(found.id == commit, f"tag {tag} of {commit} resolved to {found.id}")


def _pin_is_guarded(place: Scratch) -> None:
    data, repository, nonce = place.data, place.repository, secrets.token_hex(4)
    commit = _commit(place, a=b"1", b=b"2")
    name = _pin_name(commit, nonce)
    require(data.pin_strength(repository, commit, branch=name) is Strength.NONE, "a pin before it was made")
    made = data.pin(repository, commit, branch=name, nonce=nonce)
    require(made.strength is Strength.GUARDED, f"the pin is {made.strength}: {made.why_plain}")
    require(made.branch == name, f"asked for {name}, made {made.branch}")
    seen = data.pin_strength(repository, commit, branch=name)
    require(seen is Strength.GUARDED, f"made guarded, seen {seen}")
    let_through = [what for what, refused in place.attack(name).items() if not refused and what != "merge"]
    require(not let_through, f"an ordinary client could {', '.join(let_through)} the pin")


def _pin_notices_a_merge(place: Scratch) -> None:
    data, repository, nonce = place.data, place.repository, secrets.token_hex(4)
    commit = _commit(place, a=b"1")
    name = _pin_name(commit, nonce)
    data.pin(repository, commit, branch=name, nonce=nonce)
    refused = place.attack(name)["merge"]
    seen = data.pin_strength(repository, commit, branch=name)
    require(refused == (seen is Strength.GUARDED), f"merge refused: {refused}; strength: {seen}")
    if not refused:
        again = lambda: data.pin(repository, commit, branch=name, nonce=nonce)  # noqa: E731 - asked once, below
        raises(again, Conflict, "pin where a merge moved it")


def _pin_twice_is_one(place: Scratch) -> None:
    data, repository, nonce = place.data, place.repository, secrets.token_hex(4)
    commit = _commit(place, a=b"1")
    name = _pin_name(commit, nonce)
    first = data.pin(repository, commit, branch=name, nonce=nonce)
    head = data.head(repository, name)
    second = data.pin(repository, commit, branch=name, nonce=nonce)
    require(first == second, f"pinned twice: {first}, then {second}")
    require(data.head(repository, name) == head, "pinning again moved the pin")
    other = _commit(place, a=b"2")
    seen = data.pin_strength(repository, other, branch=name)
    require(seen is Strength.NONE, f"a pin of another commit counts as {seen}")
    raises(lambda: data.pin(repository, other, branch=name, nonce=nonce), Conflict, "pin over another's")
    raises(lambda: data.pin(repository, commit, branch=name, nonce=f"{nonce}x"), Conflict, "pin with another nonce")


def _unpin_needs_its_nonce(place: Scratch) -> None:
    data, repository = place.data, place.repository
    commit, nonce = _commit(place, a=b"1"), secrets.token_hex(4)
    name = _pin_name(commit, nonce)
    data.pin(repository, commit, branch=name, nonce=nonce)
    wrong = secrets.token_hex(4)
    raises(
        lambda: data.unpin(repository, commit, branch=name, nonce=wrong, reason="try"), Refused, "unpin, other nonce"
    )
    seen = data.pin_strength(repository, commit, branch=name)
    require(seen is Strength.GUARDED, f"after a refused unpin the pin is {seen}")
    data.unpin(repository, commit, branch=name, nonce=nonce, reason="no record needs it")
    require(data.head(repository, name) is None, "unpinned, and still there")
    data.unpin(repository, commit, branch=name, nonce=nonce, reason="no record needs it")


def _pin_keeps_what_branches_drop(place: Scratch) -> None:
    data, repository, nonce = place.data, place.repository, secrets.token_hex(4)
    work = _fresh("work")
    place.make_branch(work, data.resolve(repository, place.branch).id)
    commit = place.put(work, {"only-here": b"bytes"}, message="only here")
    name = _pin_name(commit, nonce)
    data.pin(repository, commit, branch=name, nonce=nonce)
    require(data.delete_branch(repository, work, only_at=commit), "the branch could not be deleted")
    pinned = data.head(repository, name) or ""
    kept = {path for path, _ in data.list(repository, commit)} - {path for path, _ in data.list(repository, pinned)}
    require(not kept, f"the pin's head lacks {', '.join(sorted(kept))}")
    require(b"".join(data.read(repository, commit, "only-here")) == b"bytes", "other bytes came back")


def _branch_at_is_exact(place: Scratch) -> None:
    data, repository = place.data, place.repository
    older, newer = _commit(place, a=b"1"), _commit(place, a=b"2")
    name = _fresh("rollback")
    data.branch_at(repository, name, older)
    require(data.head(repository, name) == older, "the branch is elsewhere")
    data.branch_at(repository, name, older)
    raises(lambda: data.branch_at(repository, name, newer), Conflict, "branch_at where the branch is elsewhere")
    raises(lambda: data.branch_at(repository, _fresh("x"), "0" * 64), NotFound, "branch_at of an unknown commit")
    require(not data.delete_branch(repository, name, only_at=newer), "deleted a branch that is elsewhere")
    place.stage(name, "unsaved", b"work")
    require(not data.delete_branch(repository, name, only_at=older), "deleted a branch with uncommitted changes")
    place.put(name, {}, message="keep it")
    moved = data.head(repository, name) or ""
    require(data.delete_branch(repository, name, only_at=moved), "could not delete the branch")
    require(not data.delete_branch(repository, name, only_at=moved), "deleted it twice")


def _move_branch_goes_forward(place: Scratch) -> None:
    data, repository = place.data, place.repository
    older, newer = _commit(place, a=b"1"), _commit(place, a=b"2")
    name = _fresh("moved")
    data.branch_at(repository, name, newer)
    made = data.move_branch(repository, name, older, message="back")
    require(data.resolve(repository, made).parents == (newer,), "the history before the move is not its parent")
    require(data.head(repository, name) == made, "the branch's head is not what move_branch answered")
    left = data.diff(repository, older, made)
    require((left.added, left.removed, left.changed) == (0, 0, 0), f"the restored tree differs: {left}")
    require(data.move_branch(repository, name, older, message="back") == made, "asked again, it moved again")
    moved_on = lambda: data.move_branch(repository, name, newer, message="on", only_at=newer)  # noqa: E731 - asked once, here
    raises(moved_on, Conflict, "move_branch of a branch whose head is another than it was")
    require(data.movable(repository, name) is None, f"nothing speaks against moving {name}, and something was named")
    require(data.movable(repository, _fresh("nobranch")) is not None, "movable: a branch that is not there")
    place.stage(name, "unsaved", b"work")
    require(data.movable(repository, name) is not None, "movable: a branch with uncommitted changes")
    raises(
        lambda: data.move_branch(repository, name, newer, message="on"), Refused, "move_branch with uncommitted changes"
    )
    raises(lambda: data.move_branch(repository, name, "0" * 64, message="x"), NotFound, "move_branch to nowhere")


def _pins_do_not_move(place: Scratch) -> None:
    data, repository, nonce = place.data, place.repository, secrets.token_hex(4)
    older, newer = _commit(place, a=b"1"), _commit(place, a=b"2")
    name = _pin_name(newer, nonce)
    data.pin(repository, newer, branch=name, nonce=nonce)
    raises(lambda: data.move_branch(repository, name, older, message="x"), Refused, "move_branch of a pin")


def _branches_are_listed(place: Scratch) -> None:
    data, repository = place.data, place.repository
    head = data.resolve(repository, place.branch).id
    name = _fresh("listed")
    place.make_branch(name, head)
    require(data.branches(repository, prefix=name) == {name: head}, "branches() lacks one that was made")
    require(data.branches(repository).get(place.branch) == head, "branches() has another head than head()")
    data.delete_branch(repository, name, only_at=head)
    require(name not in data.branches(repository), "branches() has one that was deleted")
    raises(lambda: data.branches(_fresh("norepository")), NotFound, "branches in an unknown repository")


def _pins_are_seen_at_once(place: Scratch) -> None:
    data, repository = place.data, place.repository
    pins: list[PinAsked] = []
    for number in range(3):
        commit, nonce = _commit(place, a=b"%d" % number), secrets.token_hex(4)
        pins.append(PinAsked(commit=commit, branch=_pin_name(commit, nonce), nonce=nonce))
    for pin in pins[:2]:
        data.pin(repository, pin.commit, branch=pin.branch, nonce=pin.nonce)
    for tries in ((), [pins[1].branch, pins[2].branch]):
        seen = data.pins_seen(repository, pins, tries=tries)
        strengths = [seen[pin.branch].strength for pin in pins]
        require(strengths == [Strength.GUARDED, Strength.GUARDED, Strength.NONE], f"seen at once: {strengths}")
        require(seen[pins[1].branch].tried == bool(tries), "tried, and not said")
        require(data.head(repository, pins[1].branch) == seen[pins[1].branch].head, "trying a pin's guard moved it")
    place.attack(pins[0].branch)
    moved = data.pins_seen(repository, pins[:1])[pins[0].branch]
    known = data.pin_strength(repository, pins[0].commit, branch=pins[0].branch)
    require(moved.strength is known, f"seen at once {moved.strength}, alone {known}")


def _diff_counts(place: Scratch) -> None:
    data, repository = place.data, place.repository
    folder = _fresh("files")
    left = place.put(place.branch, {f"{folder}/{n}": b"1" for n in "abcde"}, message="left")
    changes = {f"{folder}/a": b"2", f"{folder}/b": None, f"{folder}/c": None, f"{folder}/f": b"1"}
    right = place.put(place.branch, changes, message="right")
    whole = data.diff(repository, left, right)
    require((whole.added, whole.removed, whole.changed) == (1, 2, 1), f"1 added, 2 removed, 1 changed; seen {whole}")
    require(whole.complete, "complete, and said not to be")
    require(set(whole.sample) == set(changes), f"sample {whole.sample}")
    back = data.diff(repository, right, left)
    require((back.added, back.removed, back.changed) == (2, 1, 1), f"the other way round: {back}")
    short = data.diff(repository, left, right, limit=2)
    require(not short.complete, "stopped at its limit, and said to be complete")
    require(short.added + short.removed + short.changed == 2, f"counted past its limit: {short}")  # noqa: PLR2004
    require(data.diff(repository, left, right, limit=4).complete, "a limit that was not passed")


def _reads_by_commit(place: Scratch) -> None:
    data, repository = place.data, place.repository
    folder, large = _fresh("files"), secrets.token_bytes(3 * (1 << 20) + 17)
    first = {f"{folder}/a b+%&ü": b"one", f"{folder}/empty": b"", f"{folder}/large": large}
    commit = place.put(place.branch, first, message="first")
    place.put(place.branch, dict.fromkeys(first, b"later"), message="later")
    place.put(place.branch, dict.fromkeys(first), message="none")
    listed = list(data.list(repository, commit, prefix=f"{folder}/"))
    require(listed == sorted((path, len(content)) for path, content in first.items()), f"listed {listed}")
    for path, content in first.items():
        chunks = list(data.read(repository, commit, path))
        require(b"".join(chunks) == content, f"other bytes of {path}")
        require(all(len(chunk) <= 1 << 20 for chunk in chunks), f"a chunk of {path} is larger than 1 MiB")
    raises(lambda: list(data.read(repository, commit, f"{folder}/none")), NotFound, "read of a path that is not there")


def _readable_reads_bytes(place: Scratch) -> None:
    data, repository = place.data, place.repository
    work = _fresh("lost")
    place.make_branch(work, data.resolve(repository, place.branch).id)
    old = {path: None for path, _ in data.list(repository, data.head(repository, work) or "")}
    commit = place.put(work, {**old, **{f"part-{n:02}": secrets.token_bytes(100) for n in range(12)}}, message="x")
    whole = data.readable(repository, commit, sample=None, seed=1)
    require((whole.lost, whole.read, whole.of, whole.whole) == ((), 12, 12, True), f"of 12 objects: {whole}")
    drawn = {data.readable(repository, commit, sample=3, seed=seed).said for seed in (1, 1, 2)}
    require(len(drawn) == 2, f"a sample's seed is not said: {drawn}")  # noqa: PLR2004
    if not place.collect(commit, "part-07"):
        return
    for sample in (None, 12):
        lost = data.readable(repository, commit, sample=sample, seed=1).lost
        require(lost == ("part-07",), f"sample {sample}: did not see that part-07 lost its bytes: {lost}")
    found = sum(data.readable(repository, commit, sample=4, seed=seed).lost == ("part-07",) for seed in range(64))
    require(0 < found < 64, f"of 64 samples of 4 out of 12, {found} held the lost object")  # noqa: PLR2004
    raises(lambda: list(data.read(repository, commit, "part-07")), DataGone, "read of collected bytes")
    require(b"".join(data.read(repository, commit, "part-08")), "its neighbour went too")


def _head_at_follows_dates(place: Scratch) -> None:
    data, repository = place.data, place.repository
    older = data.resolve(repository, _commit(place, a=b"1"))
    newer = data.resolve(repository, _commit(place, a=b"2"))
    before = data.head_at(repository, place.branch, older.created_at - timedelta(seconds=1))
    require(before.commit not in {older.id, newer.id}, f"a second before {older.id} the head was {before.commit}")
    after = data.head_at(repository, place.branch, newer.created_at)
    require(after.commit == newer.id, f"at the newest commit's own time the head was {after.commit}")


PROBES: Final[tuple[Check[TrialBranch], ...]] = (
    Check("resolve-full-id", "`resolve` answers the commit of a branch and of its full id.", _resolve_by_full_id),
    Check("resolve-no-guess", "`resolve` never guesses from a short id.", _resolve_guesses_nothing),
    Check("reads-full-id", "Reading takes full commit ids only.", _reads_need_full_ids),
    Check("readable", "A sample of the branch's bytes can be read.", _bytes_can_be_read),
    Check("history-unaltered", "Commit ids follow from the commits' fields.", _history_fits_its_ids),
    Check("head-at-estimate", "`head_at` says that it estimates.", _head_at_is_an_estimate),
)


def _on_scratch(probe: Check[TrialBranch]) -> Check[Scratch]:
    return Check(probe.name, probe.guarantee, probe.run)


def _writing(run: Callable[[Scratch], None], guarantee: str) -> Check[Scratch]:
    return Check(run.__name__[1:].replace("_", "-"), guarantee, run, probe=False)


CHECKS: Final[tuple[Check[Scratch], ...]] = (
    *map(_on_scratch, PROBES),
    _writing(_branch_named_like_a_commit, "A branch named like the beginning of a commit's id is that branch."),
    _writing(_tags_resolve, "`resolve` answers the commit of a tag."),
    _writing(_pin_is_guarded, "A guarded pin can't be deleted, written, reset, reverted or picked onto by others."),
    _writing(_pin_notices_a_merge, "A pin that a merge could move is seen to be none afterwards."),
    _writing(_pin_twice_is_one, "Pinning again changes nothing; a name taken otherwise is a Conflict."),
    _writing(_unpin_needs_its_nonce, "A guard opens for its own nonce alone; unpinning twice is one."),
    _writing(_pin_keeps_what_branches_drop, "A pin's head holds all objects of its commit."),
    _writing(_branch_at_is_exact, "`branch_at` makes or finds the branch at that commit; elsewhere is a Conflict."),
    _writing(_move_branch_goes_forward, "`move_branch` adds a commit with exactly the tree asked for."),
    _writing(_branches_are_listed, "`branches` is the repository's own list."),
    _writing(
        _pins_are_seen_at_once,
        "`pins_seen` judges many pins as `pin_strength` does one, and tries guards without harm.",
    ),
    _writing(_pins_do_not_move, "`move_branch` is refused for a protected branch."),
    _writing(_diff_counts, "`diff` compares whole trees and says where it stopped."),
    _writing(_reads_by_commit, "`list` and `read` give what the commit held, whatever became of the branch."),
    _writing(_readable_reads_bytes, "`readable` finds an object whose bytes are gone."),
    _writing(_head_at_follows_dates, "`head_at` answers the head at a commit's own time."),
)
