"""Checkpoints brought back into directories of this machine, as `ports.Restorer`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from lakemark.adapters.node import aside, matching, restore as whole, restore_parts as partly
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.ports import Fetch, Progress, Restored, Sparse


class LocalRestorer:
    """Implements `ports.Restorer`. Keeps nothing itself: any number may work on one disk at once."""

    def restore(self, target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
        return whole.restore_tree(target, manifest, fetch, tag=tag, progress=progress)

    def restore_parts(
        self, target: Path, manifest: Manifest, sparse: Sparse, *, fetch: Fetch, tag: str, progress: Progress
    ) -> Restored:
        return partly.restore_parts(target, manifest, sparse, fetch=fetch, tag=tag, progress=progress)

    def matches(self, path: Path, manifest: Manifest, *, progress: Progress) -> bool:
        return matching.matches(path, manifest, progress=progress)

    def alone(self, directory: Path) -> AbstractContextManager[None]:
        return aside.alone(directory)

    def move_aside(self, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
        return aside.move_aside(paths, into)

    def tidy(self, path: Path) -> None:
        aside.tidy(path)
