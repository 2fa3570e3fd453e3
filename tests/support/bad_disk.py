"""A disk that fails, for the real command line: a library preloaded into its process, compiled where it is first asked for."""

import errno
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import here
from tests.support.forked import begun, said, start_forking

SOURCE = Path(__file__).with_name("bad_disk.c")


@dataclass(frozen=True)
class Fault:
    """Of the calls `call` (open, openw, read, write, fsync, rename, mkdir, stat, list) below `folder`, `count` fail after `skip`.

    count: -1 for all from there on. openw: opening for writing, as on a file system that was mounted read-only anew.
    """

    call: str
    folder: Path
    error: int = errno.EIO
    skip: int = 0
    count: int = -1

    def __str__(self):
        return f"{self.call}:{self.error}:{self.skip}:{self.count}:{os.path.realpath(self.folder)}"


def read_only(folder):
    """What a file system that was mounted read-only anew refuses."""
    return [Fault(call, folder, error=errno.EROFS) for call in ("openw", "mkdir", "rename", "write")]


def library(into):
    """The compiled library; made in `into` where it is not there."""
    made = into / "bad_disk.so"
    if not made.exists():
        draft = into / f"bad_disk.{os.getpid()}.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", draft, SOURCE, "-ldl", "-lpthread"], check=True)
        draft.rename(made)
    return made


class Machine:
    """Runs the command line in a process of its own, on disks that fail as told. `hits`: what was made to fail."""

    def __init__(self, home, environ, built):
        self.home, self.environ, self.library = home, environ, library(built)
        self.log = built / f"hits-{home.name}"

    def environment(self, *faults):
        self.log.unlink(missing_ok=True)
        bad = {"LD_PRELOAD": str(self.library), "BAD_DISK_LOG": str(self.log)} if faults else {}
        return self.environ | bad | ({"BAD_DISK": ";".join(map(str, faults))} if faults else {})

    def __call__(self, *words, faults=(), seconds=300):
        """In this process where nothing is to fail: starting one costs more than what most commands do."""
        if not faults:
            return here(*words, "--json", environ=self.environ)
        command = [*map(str, words), "--json"]
        start_forking(self.library)
        with tempfile.TemporaryDirectory() as folder:
            process = begun([command], self.environment(*faults), folder, at=str(self.home))
            process.join(seconds)
            if (code := process.exitcode) is None:
                process.kill()
                process.join()
                raise AssertionError(f"{' '.join(command)} hung: {said(Path(folder), 'err')}")
            process.close()
            return subprocess.CompletedProcess(command, code, said(Path(folder), "out"), said(Path(folder), "err"))

    @property
    def hits(self):
        return self.log.read_text().splitlines() if self.log.exists() else []
