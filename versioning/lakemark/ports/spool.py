"""What passes between a trainer and its node."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from lakemark.model.checkpoints.record import DataRef
from lakemark.model.values.canonical import JSON
from lakemark.model.values.names import is_log
from lakemark.ports.files import OnDisk


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """A save the trainer announced (`Run.saved`). `file`: the spool file; it goes once the save is committed.

    data: what the process had open. timeline: of `run.resume` if the process read it, else None.
    present: roles it is known to hold, where one file holds several; it may hold more.
    world, rank_files: how many ranks each leave files of their own, and the paths of those, with `{rank}` for the rank's
    number; when this was announced, only the announcing rank's were known to be there. None: every rank was done.
    saved_seconds: how long its process says that writing it took; None where it did not measure that.
    identity: path inside it (`.` for the one file that it is) -> inode, size in bytes and mtime in ns when it was announced, of
    as many of its files as were looked at; an inode of 0 is not known. Empty: nothing lay there yet. None: nobody looked.
    """

    file: Path
    run: str
    path: Path
    step: int
    saved_at: datetime
    attempt: str | None
    timeline: int | None
    data: tuple[DataRef, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    present: tuple[str, ...] = ()
    world: int | None = None
    rank_files: tuple[str, ...] = ()
    code: Mapping[str, JSON] | None = None
    identity: Mapping[str, tuple[int, int, int]] | None = None
    saved_seconds: float | None = None

    def written_over(self, files: Iterable[OnDisk]) -> str | None:
        """Why these are not the files it was announced of; None where they are, as far as that was said. Logs may grow."""
        # A file that is a checkpoint by itself was announced under `.`, as nobody knew what it would be called in a manifest.
        here = {one.path: (one.file.inode, one.file.size_bytes, one.file.mtime_ns) for one in files}
        if "." in (self.identity or {}) and len(here) == 1:
            here = {".": next(iter(here.values()))}
        for path, then in (self.identity or {}).items():
            now = here.get(path)
            # A log inside a save goes on growing after it; the same inode shows that it is the same log.
            if now is not None and now[1] > then[1] and then[0] in (0, now[0]) and is_log(path):
                continue
            # An inode of 0 was not known, as on mounts that give no lasting numbers: size and time have to do.
            if now is None or now[1:] != then[1:] or then[0] not in (0, now[0]):
                name = self.path.name if path == "." else path
                return f"{name} was written again" if path in here else f"{name} is gone"
        return None

    def awaited(self, paths: Container[str]) -> Iterator[str]:
        """Of the files that ranks leave, those not among `paths` (inside the checkpoint). None left: it may be whole."""
        # Lazily: a spool file may say any number of ranks, and the first file that is missing is enough.
        for rank in range(self.world or 0):
            for file in self.rank_files:
                path = file.replace("{rank}", str(rank))
                if path not in paths:
                    yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """What a trainer reads before its loop. `resume`: path, step, record, timeline; None: start afresh.

    simulated: saves are stamped with LAKEMARK_CLOCK, as everything of such a site is.
    """

    run: str
    timeline: int
    attempt: str
    spool: Path
    data: tuple[DataRef, ...]
    resume: Mapping[str, JSON] | None = None
    simulated: bool = False


class Spool(Protocol):
    """What passes between trainers and their node: run files they read, spool files they leave. Both appear by atomic rename."""

    def write_run_file(self, path: Path, run_file: RunFile) -> None: ...

    def read_run_file(self, path: Path) -> RunFile | None: ...

    def spooled(self, spool: Path) -> Iterator[Spooled]:
        """In order of step. A malformed spool file is moved to `rejected/` beside it, never lost, never in the way."""

    def announcing(self, spools: Path) -> tuple[str, ...]:
        """Names of runs, sorted, of which anything lies in the folder of that name in `spools`; others are passed over."""

    def unspool(self, spooled: Spooled) -> None: ...

    def with_reads(self, spool: Path, attempt: str, data: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
        """The references with what the attempt's processes noted that they read of each; the evidence is `read` then."""

    def not_to_take(self, announcement: Path, paths: Sequence[Path], *, inside: Sequence[Path]) -> str | None:
        """Why what the spool file `announcement` names is not taken; None where it is.

        It lies in one of the directories `inside`, links resolved, where there are any; and all files at `paths` belong to the
        user who owns the spool file, or may be read by him by their modes: else anybody who may announce could have any file
        of this machine copied to where others read it.
        """
