"""Hints from the kernel that something changed in a folder. The only module that imports watchfiles.

Folders are followed without what lies below: one of the kernel's watches for each, whatever trainers write in them.
"""

from __future__ import annotations

import glob
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

_GATHER_MS: Final = 200
_STEP_MS: Final = 20
_LOOK_MS: Final = 1_000
_ENDS_WITHIN_SECONDS: Final = 5.0
_DRAINED_BYTES: Final = 4096
_DELETED: Final = 3
_RELEASED_SECONDS: Final = 0.2
"""Within it the kernel takes back the watches of what was just closed."""


class FolderLookout:
    """Implements `ports.watching.Lookout`. hints: False: none ever, as on mounts where others write."""

    def __init__(self, *, hints: bool = True) -> None:
        self._hints = hints
        self._lock = threading.Lock()
        # So that other threads can end `wait`; neither end ever blocks.
        self._ear, self._mouth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._heard: set[Path] = set()
        self._wanted: tuple[tuple[Path, tuple[int, int]], ...] = ()
        self._missing: frozenset[Path] = frozenset()
        self._follower: _Follower | None = None
        self._trouble: str | None = None if hints else "hints are switched off"

    def folders(self, pattern: Path) -> tuple[Path, ...]:
        written = os.path.join(*(glob.escape(part).replace("[*]", "*") for part in pattern.parts))
        return tuple(Path(name) for name in sorted(glob.glob(written)) if os.path.isdir(name))

    def follow(self, folders: Sequence[Path]) -> bool:
        if not self._hints:
            return False
        wanted = tuple((folder, place) for folder in folders if (place := _place(folder)) is not None)
        missing = frozenset(folders) - {folder for folder, _ in wanted}
        if self.whole and (wanted, missing) == (self._wanted, self._missing):
            return False
        new = bool(wanted) and not (self.whole and set(wanted) <= set(self._wanted))
        self._stop()
        self._wanted, self._missing = wanted, missing
        self._begin([folder for folder, _ in wanted], missing)
        return new

    @property
    def whole(self) -> bool:
        return not self._hints or (self._follower is not None and self._follower.whole)

    def wait(self, seconds: float) -> frozenset[Path]:
        select.select([self._ear], [], [], max(0.0, seconds))
        with suppress(BlockingIOError):
            # All that came: one look answers any number of hints.
            os.read(self._ear, _DRAINED_BYTES)
        with self._lock:
            found = frozenset(self._heard)
            self._heard.clear()
        return found

    def wake(self) -> None:
        with suppress(OSError):  # so full that it wakes anyway, or closed
            os.write(self._mouth, b"!")

    @property
    def trouble(self) -> str | None:
        return self._trouble

    def close(self) -> None:
        self._stop()
        self._wanted, self._hints = (), False
        ear, mouth, self._ear, self._mouth = self._ear, self._mouth, -1, -1
        for descriptor in (ear, mouth):
            if descriptor >= 0:
                os.close(descriptor)

    def _begin(self, folders: list[Path], missing: frozenset[Path]) -> None:
        """All of them, else half, and so on: the kernel's limits are this user's, whoever used them up."""
        self._trouble = None
        count = len(folders)
        while True:
            try:
                self._follower = _Follower(folders[:count], missing, self._tell)
                return
            except (OSError, WatchfilesRustInternalError) as error:
                why = str(error).partition(" about ")[0]
            self._trouble = (
                f"{count // 2} of {len(folders)} folders give hints, the others are looked at in turn: {why}"
            )
            if not count:
                return
            count //= 2
            time.sleep(_RELEASED_SECONDS)

    def _tell(self, folders: set[Path]) -> None:
        with self._lock:
            self._heard |= folders
        self.wake()

    def _stop(self) -> None:
        if self._follower is not None:
            self._follower.end()
            self._follower = None


class _Follower:
    """A set of folders, followed by a thread. whole: False once one of them came or went, or the thread ended by itself.

    missing: folders that are not there, and are looked for every second.

    Raises OSError or WatchfilesRustInternalError where the kernel does not take all of them.
    """

    def __init__(self, folders: Sequence[Path], missing: frozenset[Path], tell: Callable[[set[Path]], None]) -> None:
        self.whole = True
        self._missing = missing
        self._folders = {str(folder): folder for folder in folders}
        self._tell = tell
        self._ending = threading.Event()
        # Neither debugging nor polling nor recursion, and nothing is ignored.
        self._notify = RustNotify(list(self._folders), False, False, 0, False, False)  # noqa: FBT003
        self._thread = threading.Thread(target=self._run, name="lakemark-hints", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join(_ENDS_WITHIN_SECONDS)

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                changes = self._notify.watch(_GATHER_MS, _STEP_MS, _LOOK_MS, self._ending)
                if isinstance(changes, set):
                    self._note(changes)
                self._look()
        except (OSError, WatchfilesRustInternalError):
            self.whole = False
        finally:
            self._notify.close()

    def _look(self) -> None:
        here = {folder for folder in self._missing if _place(folder) is not None}
        if here:
            self.whole, self._missing = False, self._missing - here
            self._tell(here)

    def _note(self, changes: set[tuple[int, str]]) -> None:
        found = set()
        for kind, name in changes:
            # Of the folder itself, or of something right in it.
            folder = self._folders.get(name) or self._folders.get(os.path.dirname(name))
            if folder is not None:
                found.add(folder)
            if kind == _DELETED and name in self._folders:
                self.whole = False
        if found:
            self._tell(found)


def _place(folder: Path) -> tuple[int, int] | None:
    """Which directory it is; None where there is none that may be read, or whose name is no text, which watchfiles needs."""
    try:
        str(folder).encode()
        found = os.stat(folder)
    except (OSError, UnicodeEncodeError):
        return None
    if not os.path.isdir(folder) or not os.access(folder, os.R_OK):
        return None
    return found.st_dev, found.st_ino
