"""What passes between trainers and their node, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lakemark.model.checkpoints.record import DataRef
from lakemark.ports import RunFile, Spooled


class MemorySpool:
    """`ports.Spool`; run files and announcements are kept as values."""

    def __init__(self) -> None:
        self._run_files: dict[Path, RunFile] = {}
        self._spooled: dict[Path, Spooled] = {}

    def announce(self, spooled: Spooled) -> None:
        """What a trainer's `Run.saved` does."""
        self._spooled[spooled.file] = spooled

    def write_run_file(self, path: Path, run_file: RunFile) -> None:
        self._run_files[path] = run_file

    def read_run_file(self, path: Path) -> RunFile | None:
        return self._run_files.get(path)

    def spooled(self, spool: Path) -> Iterator[Spooled]:
        here = [one for one in self._spooled.values() if one.file.parent == spool]
        yield from sorted(here, key=lambda one: (one.step, one.file))

    def announcing(self, spools: Path) -> tuple[str, ...]:
        return tuple(
            sorted({one.file.parent.name for one in self._spooled.values() if one.file.parent.parent == spools})
        )

    def unspool(self, spooled: Spooled) -> None:
        self._spooled.pop(spooled.file, None)

    def with_reads(self, spool: Path, attempt: str, data: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
        return data

    def not_to_take(self, announcement: Path, paths: Sequence[Path], *, inside: Sequence[Path]) -> str | None:
        """Without owners; what counts is where it lies."""
        out = [path for path in paths if inside and not any(path.is_relative_to(root) for root in inside)]
        return f"{out[0]} lies outside the directories of its run" if out else None
