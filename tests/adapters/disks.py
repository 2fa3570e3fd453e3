"""File systems of one's own, small enough to fill and safe to pull the plug of. They need root."""

import fcntl
import os
import struct
import subprocess
from contextlib import contextmanager

SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
WITHOUT_LOG_FLUSH = 2


@contextmanager
def tmpfs(place, *options):
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class Disk:
    """A file system in a file."""

    def __init__(self, mkfs, image, place, size_bytes):
        self.image, self.place, self.xfs = image, place, mkfs.endswith("xfs")
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(size_bytes)
        quiet = ["-q"] if mkfs.endswith("xfs") else ["-q", "-F"]
        subprocess.run([mkfs, *quiet, str(image)], check=True, capture_output=True)

    def mount(self):
        # Without a look at the UUID, which the file system that lost its power may still have.
        options = "loop,nouuid" if self.xfs else "loop"
        subprocess.run(["mount", "-o", options, str(self.image), str(self.place)], check=True)

    def unmount(self):
        subprocess.run(["umount", str(self.place)], check=True)

    def lose_power(self):
        """What was not on the disk is lost; it is mounted again afterwards.

        From a copy: a process that began in a mount namespace of its own meanwhile keeps the file system that lost its power,
        and the same image would be that one again.
        """
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_LOG_FLUSH))
        finally:
            os.close(descriptor)
        self.unmount()
        copy = self.image.with_suffix(".copy")
        subprocess.run(["cp", "--sparse=always", str(self.image), str(copy)], check=True)
        copy.replace(self.image)
        self.mount()


@contextmanager
def disk(mkfs, folder, size_bytes):
    made = Disk(mkfs, folder / "image", folder / "disk", size_bytes)
    made.mount()
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made.place)], check=True)
