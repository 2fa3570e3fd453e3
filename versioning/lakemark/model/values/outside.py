"""Names, ids and sizes that come from outside: a tier, a ledger, a spool, a server.

The one module that turns such text into something a path or a key may be made of. Nothing else uses a raw one: a name that
is not exactly of its form is a ValueError here, however harmless it looks, and the caller says whose it was.
"""

from __future__ import annotations

import re
from typing import Final

from lakemark.model.values.names import is_run

REASON_LEAST: Final = 3
REASON_MOST: Final = 1_000

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MD5: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_OBJECT: Final = re.compile(r"[0-9a-f]{32}(?:\.dir)?", re.ASCII)
# What a pass adds to the name of its own mark.
_PASS: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_PERMISSIONS: Final = re.compile(r"[0-7]{3}", re.ASCII)
# No leading zeros, sign or blanks: a number has one spelling. Forty digits are more than any bound below.
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,39}", re.ASCII)
_DIRECTORY_OBJECT: Final = re.compile(r"[0-9a-f]{32}\.dir", re.ASCII)
_NODE: Final = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*", re.ASCII)
_LONGEST_NODE: Final = 63
_ATTEMPT: Final = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z._-]{0,126}[0-9A-Za-z])?", re.ASCII)
_LEDGER_ID: Final = re.compile(r"[0-9a-zA-Z-]{8,64}", re.ASCII)
_LEDGER_SLOT: Final = re.compile(r"([a-z]{1,20})\.bundle", re.ASCII)


def digest(value: object) -> str:
    """64 lower-case hex digits: a blake3 digest, a record's id, a lakeFS commit."""
    return _exactly(value, _DIGEST, "64 lower-case hex digits")


def md5(value: object) -> str:
    """32 lower-case hex digits: DVC's name of a file's object."""
    return _exactly(value, _MD5, "32 lower-case hex digits")


def directory_object(value: object) -> str:
    """32 lower-case hex digits and `.dir`: DVC's name of a directory's object."""
    return _exactly(value, _DIRECTORY_OBJECT, "32 lower-case hex digits and .dir")


def object_name(value: object) -> str:
    """DVC's name of an object: of a file's or of a directory's."""
    return _exactly(value, _OBJECT, "32 lower-case hex digits, perhaps with .dir")


def object_mark(value: object) -> tuple[str, bool]:
    """The object that a tier's mark is about, and whether the mark is a pass's own note: `<object>` or `<object>-<16 hex>`."""
    name, dash, by = str(value).partition("-")
    if dash:
        _exactly(by, _PASS, "16 lower-case hex digits")
    return object_name(name), bool(dash)


def ledger_id(value: object) -> str:
    """8 to 64 letters, digits and `-`: what a ledger was founded as."""
    return _exactly(value, _LEDGER_ID, "8 to 64 letters, digits and -")


def ledger_slot(name: str) -> str | None:
    """The slot in a file name `<slot>.bundle`, of 1 to 20 lower-case letters; None for any other name."""
    # None and no error: a tier's folder may hold files of other programs.
    found = _LEDGER_SLOT.fullmatch(name)
    return None if found is None else found[1]


def reason(value: object) -> str:
    """Why somebody decided something: 3 to 1,000 characters without the blanks around them, at every edge alike."""
    said = value.strip() if isinstance(value, str) else ""
    if not REASON_LEAST <= len(said) <= REASON_MOST:
        raise ValueError(
            f"it has {len(said)} characters, not {REASON_LEAST} to {REASON_MOST:,}: say why, it stays in the history"
        )
    return said


def run_name(value: object) -> str:
    """A run's name."""
    if not isinstance(value, str) or not is_run(value):
        raise ValueError(f"{value!r:.80} is no run's name")
    return value


def node_name(value: object) -> str:
    """A node's name, as the configuration takes it: it is part of a reference's name, too."""
    name = _exactly(value, _NODE, "a node's name")
    if len(name) > _LONGEST_NODE or name.endswith(".lock"):
        raise ValueError(f"{value!r:.80} is no node's name")
    return name


def attempt_id(value: object) -> str:
    """An attempt's id: 1 to 128 letters, digits and, inside, `.`, `_` and `-`."""
    return _exactly(value, _ATTEMPT, "an attempt's id")


def permissions(value: object) -> int:
    """Three octal digits: the rights of a file or directory, without set-id and sticky bits."""
    return int(_exactly(value, _PERMISSIONS, "three octal digits"), 8)


def decimal(value: object, *, most: int = 2**63 - 1) -> int:
    """A whole number from 0 to `most`, in ASCII digits and as Python writes it: what a database takes by default."""
    number = int(_exactly(value, _DECIMAL, "a whole number in decimal digits"))
    if number > most:
        raise ValueError(f"{value!r:.80} is more than {most}")
    return number


def bounded(value: object, *, least: int, most: int, what: str) -> int:
    """A whole number from `least` to `most`, both allowed."""
    # JSON's true would pass as 1.
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{what} is {value!r:.80}, not a whole number from {least} to {most}")
    return value


def _exactly(value: object, form: re.Pattern[str], said: str) -> str:
    # fullmatch, not match: a trailing line break or "/../x" behind right digits must not pass.
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise ValueError(f"{value!r:.80} is not {said}")
    return value
