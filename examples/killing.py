"""A training script's processes, and how to kill them in the middle of a save without a word in the script."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.scripts import Example
from examples.stage import PATIENCE_SECONDS, Broken, Site

SAVES_BEFORE: Final = 2
_LOOK_SECONDS: Final = 0.001
_IN_ORDER: Final = {
    "OMP_NUM_THREADS": "1",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
"""So that a process computes the same bits each time."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """One start of a train.py that saves in `out`; its temporary files are beside, in `OUT.tmp`."""

    example: Example
    out: Path
    process: subprocess.Popen[bytes]

    @classmethod
    @contextmanager
    def started(cls, site: Site, example: Example, *, run_file: Path, out: Path, final: Path) -> Iterator[Trainer]:
        """Whatever of it is left at the end of the block is killed."""
        scratch = out.with_suffix(".tmp")
        for folder in (out, scratch):
            folder.mkdir(parents=True, exist_ok=True)
        environ = site.environ | _IN_ORDER | {"LAKEMARK_RUN_FILE": str(run_file), "TMPDIR": str(scratch)}
        command = [sys.executable, str(example.script), str(out), str(final)]
        with out.with_suffix(".log").open("ab") as log:
            process = subprocess.Popen(command, env=environ, cwd=out.parent, stdout=log, stderr=log)
        trainer = cls(example, out, process)
        try:
            yield trainer
        finally:
            trainer.signal(signal.SIGKILL)
            process.wait()

    def finished(self) -> None:
        """Waits for its end. Raises Broken where it did not end well."""
        code = self.process.wait(timeout=PATIENCE_SECONDS)
        if code != 0:
            raise Broken(f"the trainer ended with {code}: {self.said()}")

    def said(self) -> str:
        return _text(self.out.with_suffix(".log"))[-3000:]

    def kill_in_a_save(self) -> list[str]:
        """Stops it whenever it is seen writing, and kills it -9 if it then stands in the middle of a save.

        Not before it has made SAVES_BEFORE whole ones. Answers what is open or half made. Raises Broken if it ends first.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            if not self._half():
                continue
            self.signal(signal.SIGSTOP)
            self._stopped()
            half = self._half()
            if half:
                self.signal(signal.SIGKILL)
                self.process.wait()
                return half
            self.signal(signal.SIGCONT)
        raise Broken(f"it was not seen in the middle of a save: {self.said()}")

    def processes(self) -> list[int]:
        """Its process and all below it."""
        found: list[int] = []
        left = [self.process.pid] if self.process.poll() is None else []
        while left:
            pid = left.pop()
            found.append(pid)
            left.extend(int(child) for text in _children(pid) for child in text.split())
        return found

    def signal(self, number: signal.Signals) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _stopped(self) -> None:
        """Until the kernel says so of every process."""
        while any(_state(pid) not in "TtZX" for pid in self.processes()):
            self.signal(signal.SIGSTOP)

    def _half(self) -> list[str]:
        """What is open for writing in its folders, or named as half made; nothing before there are enough whole saves."""
        names = os.listdir(self.out)
        half_made = self.example.half_made
        named = [self.out / name for name in names if half_made and re.fullmatch(half_made, name)]
        folders = (self.out, self.out.with_suffix(".tmp"))
        written = [path for pid in self.processes() for path in _written(pid) if _inside(path, folders)]
        current = {path.relative_to(self.out).parts[0] for path in written if self.out in path.parents}
        whole = [name for name in names if re.fullmatch(self.example.saves, name) and name not in current]
        if len(whole) < SAVES_BEFORE:
            return []
        return sorted({str(path.relative_to(self.out.parent)) for path in (*named, *written)})


def _inside(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(folder in path.parents for folder in folders)


def _children(pid: int) -> list[str]:
    """What each of its threads started; of a process that is gone nothing."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [_text(Path(f"/proc/{pid}/task/{thread}/children")) for thread in threads]


def _written(pid: int) -> list[Path]:
    """Files that a process has open for writing."""
    found = []
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                flags = re.search(r"flags:\s*([0-7]+)", _text(Path(f"/proc/{pid}/fdinfo/{name}")))
                if target.startswith("/") and flags and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    found.append(Path(target))
    return found


def _state(pid: int) -> str:
    """One letter, as ps shows it; X where it is gone."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].strip()[:1] or "X"


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
