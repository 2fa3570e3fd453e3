"""Mounts that number their files anew at each look, as FUSE does without `use_ino`."""

import os
from contextlib import contextmanager
from itertools import count

from lakemark.adapters.disk import file_identity


@contextmanager
def numbered_anew(monkeypatch):
    """Within it every look at a file gives another inode."""
    numbers = count(10**6)

    def numbered(look):
        def again(*args, **named):
            found = look(*args, **named)
            values = list(found)
            values[1] = next(numbers)
            return os.stat_result(values, {name: getattr(found, name) for name in dir(found) if name.startswith("st_")})

        return again

    file_identity.forget_mounts()
    with monkeypatch.context() as patch:
        for name in ("lstat", "fstat", "stat"):
            patch.setattr(os, name, numbered(getattr(os, name)))
        yield
    file_identity.forget_mounts()
