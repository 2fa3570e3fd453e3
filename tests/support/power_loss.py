"""A disk that can lose power: a file system in an image, and the kernel's own way of dropping what was not synced.

`cut` makes the kernel forget everything that is not on the medium yet, without flushing its log, as a power loss does;
every later write of a process that has files open there fails. `revive` mounts what is left, which replays the log.
"""

import fcntl
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

_SHUTDOWN = 0x8004587D
_WITHOUT_LOG_FLUSH = 2
_MIB = 2**20
_SIZES = {"ext4": 96 * _MIB, "xfs": 320 * _MIB}


class Disk:
    """`path` is where it is mounted."""

    def __init__(self, image: Path, path: Path) -> None:
        self.path = path
        self._image = image
        self._lives = count(1)
        self._mount()

    def cut(self) -> None:
        """Takes the power away."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def revive(self) -> None:
        """Gives it back. No process may have files open there any more.

        What lies on the medium is mounted from a copy: a process that began in a mount namespace of its own meanwhile, as a
        browser's does, keeps the file system that lost its power, and the same image would be that one again.
        """
        self.unmount()
        copy = self._image.with_suffix(f".{next(self._lives)}")
        subprocess.run(["cp", "--sparse=always", self._image, copy], check=True)
        copy.replace(self._image)
        self._mount()

    def unmount(self) -> None:
        subprocess.run(["umount", self.path], check=True, capture_output=True)

    def _mount(self) -> None:
        # Without a look at the UUID, which the file system that lost its power may still have.
        options = "loop,nouuid" if self._image.stem == "xfs" else "loop"
        subprocess.run(["mount", "-o", options, self._image, self.path], check=True, capture_output=True)


@contextmanager
def disk(folder: Path, file_system: str, find: Callable[[str], str]) -> Iterator[Disk]:
    """A fresh disk in `folder`; find: the fixture `require_command`. Needs root: use it with `require_root`."""
    image, path = folder / f"{file_system}.img", folder / f"{file_system}.mount"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(_SIZES[file_system])
    subprocess.run([find(f"mkfs.{file_system}"), "-q", image], check=True, capture_output=True)
    made = Disk(image, path)
    try:
        yield made
    finally:
        made.unmount()
        image.unlink()
