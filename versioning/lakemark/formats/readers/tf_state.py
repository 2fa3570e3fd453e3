"""TensorFlow's `checkpoint` file: a `CheckpointState` as text, of which the newest and all kept checkpoints are told.

Only what `tf.train.latest_checkpoint` and `CheckpointManager` read is understood; a line of anything else is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

_NEWEST: Final = "model_checkpoint_path"
_ALL: Final = "all_model_checkpoint_paths"
_TIMES: Final = "all_model_checkpoint_timestamps"
_LINE: Final = re.compile(
    r"\s*(?P<key>\w+)\s*:\s*(?P<value>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s\"']+)\s*", re.ASCII
)
_ESCAPE: Final = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_LETTERS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_PRINTABLE: Final = range(0x20, 0x7F)


def repaired(text: str, newest: Path, present: Collection[str]) -> str:
    """`text` with `newest` as the newest, and of the kept ones those that are `present` (names) and not after it.

    Paths stay absolute where they were and name this very folder; else they are relative, which is right from anywhere.
    """
    rows = list(_rows(text))
    was = next((_unquoted(value) for key, value in rows if key == _NEWEST), "")
    # An absolute path that names another folder is from before the checkpoint was moved: it would lead TensorFlow away from here.
    absolute = os.path.isabs(was) and os.path.dirname(was) == str(newest.parent)  # noqa: PTH117, PTH120 - text
    listed = [os.path.basename(_unquoted(value)) for key, value in rows if key == _ALL]  # noqa: PTH119 - text
    times = [value for key, value in rows if key == _TIMES]
    # CheckpointManager removes by this list: what comes after the one gone back to was moved aside, and must not be named.
    upto = listed.index(newest.name) + 1 if newest.name in listed else len(listed)
    kept = [number for number, name in enumerate(listed[:upto]) if name in present and name != newest.name]
    # Times without their path, or too few, are left out: CheckpointManager pairs both lists by position.
    timed = len(times) == len(listed) and newest.name in listed
    names = [*(listed[number] for number in kept), newest.name]
    lines = [f"{_NEWEST}: {_quoted(_shown(newest.name, newest.parent, absolute=absolute))}"]
    lines += [f"{_ALL}: {_quoted(_shown(name, newest.parent, absolute=absolute))}" for name in names]
    if timed:
        lines += [f"{_TIMES}: {times[number]}" for number in (*kept, listed.index(newest.name))]
    lines += [f"{key}: {value}" for key, value in rows if key not in (_NEWEST, _ALL, _TIMES)]
    return "\n".join(lines) + "\n"


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            yield match["key"], match["value"]


def _shown(name: str, folder: Path, *, absolute: bool) -> str:
    return str(folder / name) if absolute else name


def _unquoted(value: str) -> str:
    if value[:1] not in ("'", '"'):
        return value
    raw = _ESCAPE.sub(_unescaped, value[1:-1].encode(errors="surrogateescape"))
    return raw.decode(errors="surrogateescape")


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = match.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    return bytes([int(hexadecimal, 16)]) if hexadecimal else _LETTERS.get(letter, letter)


def _quoted(text: str) -> str:
    """As text protocol buffers are written: everything but printable ASCII in octal."""
    return '"' + "".join(_escaped(byte) for byte in text.encode(errors="surrogateescape")) + '"'


def _escaped(byte: int) -> str:
    if byte in b"\"'\\":
        return f"\\{chr(byte)}"
    return chr(byte) if byte in _PRINTABLE else f"\\{byte:03o}"
