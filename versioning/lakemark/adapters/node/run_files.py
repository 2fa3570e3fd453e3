"""What passes between a trainer and its node: the run file it reads, and the spool files it leaves.

A spool file, of which `present`, `ranks` and `identity` may be left out:

    {"format": "lakemark.spool/1", "run": "llama-7b", "path": "/train/out/step-300", "step": 300, "saved_at": "…Z",
     "attempt": "6f6f…", "timeline": null, "data": [{…}], "metrics": {"val_loss": 1.5}, "roles": {"w.pt": "weights"},
     "code": null, "present": ["rng"], "ranks": {"world": 64, "files": ["rng_{rank}.pt"]},
     "identity": {"w.pt": "<inode> <size> <mtime ns>"}}
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import fsync_directory, make_directories, os_errors
from lakemark.adapters.node import announcers, read_logs
from lakemark.adapters.node.notes import save_json
from lakemark.errors import Corrupt, quoted
from lakemark.model.checkpoints.record import DataRef, Evidence
from lakemark.model.ledger.measures import MOST_SECONDS
from lakemark.model.values.canonical import JSON, parse
from lakemark.model.values.fields import Fields
from lakemark.model.values.names import is_run
from lakemark.ports import RunFile, Spooled

SPOOL_FORMAT: Final = "lakemark.spool/1"
REJECTED: Final = "rejected"
# Whoever trains may write here: nothing larger is read, however it came there.
_LARGEST_BYTES: Final = 2**20
_MOST_RANKS: Final = 2**17
_MOST_RANK_FILES: Final = 4
# Names that begin with a dot are still being written.
_SPOOLED: Final = re.compile(r"[^.].*\.json")
# A link, a socket, a device without a driver, a file that its writer keeps to himself.
_NO_ANNOUNCEMENT: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EPERM})


class LocalSpool:
    """Implements `ports.Spool`. data_endpoint: of the lakeFS server that has the data, as run files tell trainers."""

    def __init__(self, *, data_endpoint: str | None = None) -> None:
        self._data_endpoint = data_endpoint

    def write_run_file(self, path: Path, run_file: RunFile) -> None:
        write_run_file(path, run_file, endpoint=self._data_endpoint)

    def read_run_file(self, path: Path) -> RunFile | None:
        return read_run_file(path)

    def spooled(self, spool: Path) -> Iterator[Spooled]:
        return spooled(spool)

    def announcing(self, spools: Path) -> tuple[str, ...]:
        return announcing(spools)

    def unspool(self, spooled: Spooled) -> None:
        unspool(spooled)

    def with_reads(self, spool: Path, attempt: str, data: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
        return with_reads(spool, attempt, data)

    def not_to_take(self, announcement: Path, paths: Sequence[Path], *, inside: Sequence[Path]) -> str | None:
        with os_errors(announcement):
            return announcers.why_not(announcement, paths, inside=inside)


def write_run_file(path: Path, run_file: RunFile, *, endpoint: str | None = None) -> None:
    """What `Run.open` reads. endpoint: of the lakeFS server that has the data."""
    at = {} if endpoint is None else {"endpoint": endpoint}
    save_json(
        path,
        {
            "run": run_file.run,
            "timeline": run_file.timeline,
            "attempt": run_file.attempt,
            "spool": str(run_file.spool),
            "data": [{**ref.as_json(), "uri": ref.uri, **at} for ref in run_file.data],
            "resume": None if run_file.resume is None else dict(run_file.resume),
            "clock": "simulated" if run_file.simulated else "ok",
        },
    )


def read_run_file(path: Path) -> RunFile | None:
    """None where there is none; Corrupt where it is not one."""
    with os_errors(path):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
    try:
        read = Fields(parse(content), "a run file")
        return RunFile(
            run=read.text("run"),
            timeline=read.integer("timeline"),
            attempt=read.text("attempt"),
            spool=Path(read.text("spool")),
            data=tuple(_reference(item) for item in read.items("data")),
            resume=read.optional_mapping("resume"),
            simulated=read.text("clock", default="ok") == "simulated",
        )
    except ValueError as error:
        raise Corrupt(
            f"{quoted(str(path))} is no run file: {error}", advice="Write it again with `lakemark run open`."
        ) from error


def spooled(spool: Path) -> Iterator[Spooled]:
    """See `ports.Spool.spooled`."""
    with os_errors(spool):
        names = sorted(name for name in _names(spool) if _SPOOLED.fullmatch(name))
        found = [one for name in names if (one := _read(spool / name)) is not None]
    # By step: as texts 1000 comes before 200, and a later save must not be committed before an earlier one.
    yield from sorted(found, key=lambda one: (one.step, one.saved_at, one.file.name))


def announcing(spools: Path) -> tuple[str, ...]:
    """See `ports.Spool.announcing`."""
    with os_errors(spools):
        names = sorted(name for name in _names(spools) if is_run(name))
        return tuple(name for name in names if any(_SPOOLED.fullmatch(one) for one in _names(spools / name)))


def unspool(one: Spooled) -> None:
    """Its save is committed: the announcement goes."""
    with os_errors(one.file), suppress(FileNotFoundError):
        os.unlink(one.file)


def _names(spool: Path) -> list[str]:
    try:
        return os.listdir(spool)
    except FileNotFoundError:
        return []


def _read(file: Path) -> Spooled | None:
    """The announcement; None where it went meanwhile, or is none and was set aside."""
    try:
        # Neither through a link, nor waiting for a pipe's other end: a trainer's account may put either there.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A disk that fails says nothing of the announcement; nobody reads one again that was set aside.
        if error.errno not in _NO_ANNOUNCEMENT:
            raise
        _reject(file)
        return None
    try:
        content = _content(descriptor)
    finally:
        os.close(descriptor)
    try:
        return _announcement(file, parse(content))
    except ValueError:
        _reject(file)
        return None


def _content(descriptor: int) -> bytes:
    """Of what is no regular file, or too large for an announcement: nothing."""
    known = os.fstat(descriptor)
    if not stat.S_ISREG(known.st_mode) or known.st_size > _LARGEST_BYTES:
        return b""
    with open(descriptor, "rb", closefd=False) as stream:
        return stream.read(_LARGEST_BYTES)


def _announcement(file: Path, value: JSON) -> Spooled:
    """Raises ValueError for what is no announcement, or could not be one of a run."""
    read = Fields(value, "a spool file")
    read.format(SPOOL_FORMAT)
    world, rank_files = _ranks(read.optional_mapping("ranks"))
    attempt = read.optional_text("attempt")
    one = Spooled(
        file=file,
        run=read.text("run"),
        path=Path(read.text("path")),
        step=read.integer("step"),
        saved_at=read.instant("saved_at"),
        attempt=attempt,
        timeline=read.optional_integer("timeline"),
        data=tuple(_as_announced(_reference(item), file.parent, attempt) for item in read.items("data")),
        metrics=_numbers(read.mapping("metrics")),
        roles=_texts(read.mapping("roles")),
        present=read.texts("present"),
        world=world,
        rank_files=rank_files,
        code=read.optional_mapping("code"),
        identity=_identity(read.optional_mapping("identity")),
        saved_seconds=_seconds(value.get("saved_seconds") if isinstance(value, Mapping) else None),
    )
    if not is_run(one.run) or one.step < 0 or not one.path.is_absolute() or "\0" in str(one.path):
        message = "its run, step or path can't be one"
        raise ValueError(message)
    return one


def _ranks(value: Mapping[str, JSON] | None) -> tuple[int | None, tuple[str, ...]]:
    """How many ranks, and which files each leaves. Raises ValueError for more than any run has."""
    if value is None:
        return None, ()
    read = Fields(value, "ranks")
    world, files = read.integer("world"), read.texts("files")
    if not 0 < world <= _MOST_RANKS or len(files) > _MOST_RANK_FILES:
        message = f"{world} ranks with {len(files)} files each can't be"
        raise ValueError(message)
    return world, files


def _seconds(value: JSON) -> float | None:
    """Nothing is kept or dropped by it: what can't be a time is passed over, and the save is taken."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST_SECONDS:
        return None
    return float(value)


def _identity(value: Mapping[str, JSON] | None) -> dict[str, tuple[int, int, int]] | None:
    return None if value is None else {path: _numbers_of(path, told) for path, told in value.items()}


def _numbers_of(path: str, told: JSON) -> tuple[int, int, int]:
    """Inode, size and mtime, as text: nanoseconds do not fit the integers that every JSON reader keeps exact."""
    numbers = str(told).split()
    if len(numbers) != 3 or not all(number.lstrip("-").isdecimal() for number in numbers):  # noqa: PLR2004 - as many as it has
        message = f"the identity of {path!r} is {told!r}"
        raise ValueError(message)
    inode, size_bytes, mtime_ns = map(int, numbers)
    return inode, size_bytes, mtime_ns


def _reject(file: Path) -> None:
    """Moves it aside under a name that is free there."""
    # Kept, for whoever wrote it to look at; in its place it would be read, and fail, at every pass.
    into = file.parent / REJECTED
    make_directories(into)
    target, number = into / file.name, 1
    while os.path.lexists(target):
        number += 1
        target = into / f"{file.name}.{number}"
    with suppress(FileNotFoundError):
        os.rename(file, target)
        fsync_directory(into)


def _reference(item: JSON) -> DataRef:
    ref = DataRef.from_json(item)
    # How to reach the data is this node's setting, and not part of what was read.
    return replace(ref, extra={name: value for name, value in ref.extra.items() if name not in ("uri", "endpoint")})


def with_reads(spool: Path, attempt: str, data: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
    """The references, `read` where processes of the attempt noted that they read of it. Doubtful ones stay doubtful."""
    return tuple(_found_read(ref, spool, attempt) for ref in data)


def _found_read(ref: DataRef, spool: Path, attempt: str) -> DataRef:
    if ref.evidence == Evidence.AMBIGUOUS:
        return ref
    said = read_logs.summary(spool, attempt, repository=ref.repository, commit=ref.commit)
    return ref if said is None else replace(ref, evidence=Evidence.READ, extra={**ref.extra, "reads": said})


def _as_announced(ref: DataRef, spool: Path, attempt: str | None) -> DataRef:
    """Where the trainer said that it was read, what of it."""
    return ref if ref.evidence != Evidence.READ or attempt is None else _found_read(ref, spool, attempt)


def _numbers(value: Mapping[str, JSON]) -> dict[str, float]:
    """The metrics, if all are numbers. Raises ValueError."""
    for name, number in value.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            message = f"the metric {name} is not a number"
            raise ValueError(message)
    return {name: number for name, number in value.items() if isinstance(number, int | float)}


def _texts(value: Mapping[str, JSON]) -> dict[str, str]:
    """The roles, if all are texts. Raises ValueError."""
    if not all(isinstance(text, str) for text in value.values()):
        message = "a role is not text"
        raise ValueError(message)
    return {name: str(text) for name, text in value.items()}
