"""Standard streams that are closed, full or no longer read: what a command does and answers does not hang on them."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

_STANDARD = ("stdin", "stdout", "stderr")


def begin() -> None:
    """For a program's own process: gives each closed standard descriptor to /dev/null before anything else is opened.

    A ledger's or an index' file would get the number 1 or 2 otherwise, and be written into by whoever reports something.
    """
    for number, name in enumerate(_STANDARD):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free is this one
        # Python sets a stream to None whose descriptor is closed when it starts; `print` would do nothing, `write` would raise.
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r+", encoding="utf-8"))  # noqa: SIM115 - to the process' end
    if not isinstance(sys.stderr, Unheard):
        sys.stderr = cast("TextIO", Unheard(sys.stderr))


class Unheard(io.TextIOBase):
    """stderr whose failures nobody is told of: who closed it, or let its disk fill, wants no words, but wants the work."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
            # Whoever reads a log wants the line when it is said; and what fails, fails here rather than at the end.
            self._stream.flush()
        # As if it was written: a library that compares the count would try again for ever.
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        with suppress(OSError, ValueError):
            return self._stream.isatty()
        return False

    def fileno(self) -> int:
        return self._stream.fileno()

    def reconfigure(self, *, errors: str) -> None:
        with suppress(AttributeError, ValueError):
            self._stream.reconfigure(errors=errors)  # type: ignore[attr-defined]

    def writable(self) -> bool:
        return True


def settle() -> None:
    """Before a command runs: odd characters come out as escapes."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def give_up_stdout() -> None:
    """What is still buffered for it would fail once more when the interpreter ends."""
    with suppress(OSError, ValueError, AttributeError):
        # The descriptor, not `sys.stdout`: its buffer is written out at exit to whatever that number is then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
