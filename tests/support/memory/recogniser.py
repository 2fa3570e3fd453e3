"""Tells checkpoints on a `MemoryDisk` by the plainest rule: a name that ends in a number, and a file in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from lakemark.errors import NotFound
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.ports import Baked, Found, Placed, Pointer, Range, Skip, Unreadable, Verdict
from tests.support.memory.disk import Inode, MemoryDisk

_STEP: Final = re.compile(r"(?<!\d)(\d{1,15})$", re.ASCII)
_UNFINISHED: Final = (".tmp", ".part", "INCOMPLETE")


def _nothing(_: tuple[Path, ...]) -> bool:
    return False


class MemoryRecogniser:
    """A directory is incomplete while it holds no file, or one named `INCOMPLETE`, `*.tmp` or `*.part`."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    def find(
        self,
        root: Path,
        *,
        skip: Skip = _nothing,
        unreadable: Unreadable | None = None,
    ) -> Iterator[Found]:
        visible = [root / name for name in self._disk.names(root) if not name.startswith(".")]
        found = [self.judge(path) for path in visible if self._disk.is_dir(path) and not skip((path,))]
        yield from sorted(found, key=lambda one: (-1 if one.step is None else one.step, one.path))

    def pointers(self, placed: Placed) -> tuple[Pointer, ...]:
        return ()

    def unset(self, placed: Placed) -> tuple[str, ...]:
        return ()

    def baked(self, placed: Placed) -> tuple[Baked, ...]:
        return ()

    def of_world(self, manifest: Manifest, world: int) -> tuple[str, ...]:
        return ()

    def index_files(self, manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
        return {}

    def ranges(
        self,
        tree: Path,
        manifest: Manifest,
        roles: Collection[str],
    ) -> Mapping[str, tuple[Range, ...]]:
        return {}

    def judge(self, path: Path) -> Found:
        if not self._disk.exists(path):
            raise NotFound(f"there is nothing at {path}", advice="Check the path.")
        named = _STEP.search(path.name)
        files = [at.name for at, node in self._disk.walk(path) if isinstance(node, Inode)]
        unfinished = [name for name in files if name.endswith(_UNFINISHED)]
        verdict, why = Verdict.COMPLETE, "it holds files"
        if not files:
            verdict, why = Verdict.INCOMPLETE, "it holds no file"
        elif unfinished:
            verdict, why = Verdict.INCOMPLETE, f"{unfinished[0]} is there"
        step = int(named.group(1)) if named else None
        return Found(path=path, framework="generic", step=step, verdict=verdict, why=why)
