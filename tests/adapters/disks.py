"""File systems of one's own, small enough to fill. They need root; `support.power_loss` has those that lose their power."""

import subprocess
from contextlib import contextmanager


@contextmanager
def tmpfs(place, *options):
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
