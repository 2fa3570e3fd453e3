"""Ports that are made at their first use: what a command does not ask, it need not load, have keys for, or reach."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from pathlib import Path

from lakemark.model.checkpoints.manifest import Manifest
from lakemark.ports import (
    Baked,
    DataCommit,
    DataDiff,
    DataVersions,
    Found,
    HeadAt,
    MadePin,
    Patience,
    PinAsked,
    PinSeen,
    Placed,
    Pointer,
    Range,
    Recogniser,
    Sampled,
    Skip,
    Strength,
    Unreadable,
)


def _nothing(_: tuple[Path, ...]) -> bool:
    return False


class LateRecogniser:
    """`ports.Recogniser`. make: raises what it raises at each question, until it answers."""

    def __init__(self, make: Callable[[], Recogniser]) -> None:
        self._make = make

    @cached_property
    def _real(self) -> Recogniser:
        return self._make()

    def find(self, root: Path, *, skip: Skip = _nothing, unreadable: Unreadable | None = None) -> Iterator[Found]:
        return self._real.find(root, skip=skip, unreadable=unreadable)

    def judge(self, path: Path) -> Found:
        return self._real.judge(path)

    def pointers(self, placed: Placed) -> tuple[Pointer, ...]:
        return self._real.pointers(placed)

    def of_world(self, manifest: Manifest, world: int) -> tuple[str, ...]:
        return self._real.of_world(manifest, world)

    def unset(self, placed: Placed) -> tuple[str, ...]:
        return self._real.unset(placed)

    def baked(self, placed: Placed) -> tuple[Baked, ...]:
        return self._real.baked(placed)

    def ranges(self, tree: Path, manifest: Manifest, roles: Collection[str]) -> Mapping[str, tuple[Range, ...]]:
        return self._real.ranges(tree, manifest, roles)

    def index_files(self, manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
        return self._real.index_files(manifest)


class LateDataVersions:
    """`ports.DataVersions`. make: raises what it raises at each question, until it answers."""

    def __init__(self, make: Callable[[], DataVersions]) -> None:
        self._make = make

    @cached_property
    def _real(self) -> DataVersions:
        return self._make()

    def patient(self, patience: Patience) -> AbstractContextManager[None]:
        return self._real.patient(patience)

    def resolve(self, repository: str, ref: str) -> DataCommit:
        return self._real.resolve(repository, ref)

    def pin(self, repository: str, commit: str, *, branch: str, nonce: str) -> MadePin:
        return self._real.pin(repository, commit, branch=branch, nonce=nonce)

    def pin_strength(self, repository: str, commit: str, *, branch: str) -> Strength:
        return self._real.pin_strength(repository, commit, branch=branch)

    def pins_seen(
        self, repository: str, pins: Sequence[PinAsked], *, tries: Collection[str] = ()
    ) -> Mapping[str, PinSeen]:
        return self._real.pins_seen(repository, pins, tries=tries)

    def unpin(self, repository: str, commit: str, *, branch: str, nonce: str, reason: str) -> None:
        self._real.unpin(repository, commit, branch=branch, nonce=nonce, reason=reason)

    def readable(self, repository: str, commit: str, *, sample: int | None, seed: int) -> Sampled:
        return self._real.readable(repository, commit, sample=sample, seed=seed)

    def branch_at(self, repository: str, name: str, commit: str) -> None:
        self._real.branch_at(repository, name, commit)

    def delete_branch(self, repository: str, name: str, *, only_at: str) -> bool:
        return self._real.delete_branch(repository, name, only_at=only_at)

    def head(self, repository: str, branch: str) -> str | None:
        return self._real.head(repository, branch)

    def branches(self, repository: str, *, prefix: str = "") -> Mapping[str, str]:
        return self._real.branches(repository, prefix=prefix)

    def head_at(self, repository: str, branch: str, at: datetime) -> HeadAt:
        return self._real.head_at(repository, branch, at)

    def move_branch(
        self, repository: str, branch: str, commit: str, *, message: str, only_at: str | None = None
    ) -> str:
        return self._real.move_branch(repository, branch, commit, message=message, only_at=only_at)

    def movable(self, repository: str, branch: str) -> str | None:
        return self._real.movable(repository, branch)

    def diff(self, repository: str, left: str, right: str, *, limit: int = 10000) -> DataDiff:
        return self._real.diff(repository, left, right, limit=limit)

    def list(self, repository: str, commit: str, *, prefix: str = "") -> Iterator[tuple[str, int]]:
        return self._real.list(repository, commit, prefix=prefix)

    def read(self, repository: str, commit: str, path: str) -> Iterator[bytes]:
        return self._real.read(repository, commit, path)

    def altered(self, repository: str, commit: str, *, limit: int) -> tuple[str, ...]:
        return self._real.altered(repository, commit, limit=limit)
