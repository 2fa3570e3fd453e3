"""Who is to blame: a replica counts as damaged only after it was itself read and differed, twice in a row.

A single bad answer proves nothing of what lies there: a byte can flip on its way, a connection can break off, a disk can
give an error once. So whoever meets wrong bytes reads that side again before anything is recorded against it.
"""

from __future__ import annotations

import errno
import io
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from lakemark.errors import AnswerDamaged, Corrupt, LakemarkError, NoReplica, StoreUnavailable
from lakemark.ports import Checkpoint, Damage, Progress, Replicas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakemark.model.checkpoints.manifest import File

_READINGS: Final = 4
"""Whole readings before it is given up: two that agree settle it, and so does one without a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """damages: what two readings in a row found. unsteady: a reading found damage that the next did not."""

    damages: tuple[Damage, ...] = ()
    unsteady: bool = False


def read_back(store: Replicas, held: Checkpoint, *, progress: Progress) -> Reading:
    """Reads the replica whole; where something differs, whole again, until two readings agree or one finds all right.

    Raises AnswerDamaged where readings go on to differ from each other, StoreUnavailable where some bytes were given by
    neither, and whatever `verify` raises: nothing is known then.
    """
    before: tuple[Damage, ...] = ()
    for number in range(_READINGS):
        found = _reading(store, held, progress)
        if not found:
            return Reading(unsteady=number > 0)
        # The same path twice: two readings with faults in different places are faults of the way, not of what lies there.
        known = {damage.path for damage in before}
        both = tuple(damage for damage in found if damage.path in known)
        # What neither reading got to see is no statement about bytes: it may all be right.
        if both and all(damage.unread for damage in both):
            raise StoreUnavailable(
                f"{store.name}: {both[0].path} {both[0].why}", advice="Try again; look at the store's own health."
            )
        if both:
            return Reading(damages=both, unsteady=len(both) != len(found))
        before = found
    raise AnswerDamaged(
        f"{store.name} gave other bytes at each of {_READINGS} readings of {held.record.run}@{held.record.step}",
        advice="Look at the network, the memory and the disk between this node and that tier; nothing was recorded.",
    )


def _reading(store: Replicas, held: Checkpoint, progress: Progress) -> tuple[Damage, ...]:
    try:
        return store.verify(held, progress=progress)
    except Corrupt as error:
        # The place's own notes of this checkpoint can't be read: damage of it like any other.
        return (Damage(path="", why=str(error)),)


class Witness:
    """A `Source` over one replica that remembers what went wrong while *it* was opened or read.

    What a `put` raises then is told apart: `blamed` where this side had part in it, else it is the target's own.
    """

    def __init__(self, store: Replicas, held: Checkpoint) -> None:
        self._store = store
        self._held = held
        self._raised: list[BaseException] = []

    def __call__(self, file: File) -> AbstractContextManager[BinaryIO]:
        return self._opened(file)

    def blamed(self, error: LakemarkError) -> bool:
        """Whether the error came out of the reading of this replica, or says that what was read was not the manifest's."""
        return isinstance(error, AnswerDamaged) or any(error is one for one in self._raised)

    @contextmanager
    def _opened(self, file: File) -> Iterator[BinaryIO]:
        try:
            opened = self._store.open(self._held, file)
            # By hand: only what opening and reading raise is this side's; what the target raises inside `with` is not.
            stream = opened.__enter__()
        except LakemarkError as error:
            self._raised.append(error)
            raise
        try:
            yield cast("BinaryIO", _Watched(stream, self._store.name, self._raised))
        finally:
            opened.__exit__(None, None, None)


class _Watched(io.RawIOBase):
    """Turns what the system says while this side is read into an error of ours, and notes it."""

    def __init__(self, stream: BinaryIO, name: str, raised: list[BaseException]) -> None:
        super().__init__()
        self._stream = stream
        self._name = name
        self._raised = raised

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            return int(self._stream.readinto(buffer) or 0)  # type: ignore[attr-defined]
        except LakemarkError as error:
            self._raised.append(error)
            raise
        except OSError as error:
            ours = as_answer(error, self._name)
            self._raised.append(ours)
            raise ours from error


def as_answer(error: OSError, name: str) -> LakemarkError:
    """What the system said while bytes of the tier `name` were read, as an error of ours."""
    text = f"{name} could not be read: {error.strerror or error}"
    if error.errno == errno.EIO:
        return AnswerDamaged(text, advice="Look at the disk's health; it is read again before it counts as damaged.")
    return StoreUnavailable(text, advice="Try again; if it stays, look at the disk or mount.")


def is_transient(error: LakemarkError) -> bool:
    """Whether the same may go well a little later, without anybody doing anything."""
    return isinstance(error, StoreUnavailable | AnswerDamaged | NoReplica)
