"""What one file of Keras holds: by the names in its zip and in the root of its HDF5. Nothing is decompressed."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from typing import BinaryIO, Final

from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.hdf5 import root_names

_WEIGHTS: Final = ("model.weights.h5", "model.weights.json")
_NEEDED: Final = ("metadata.json", "config.json")
# zipfile builds an object for each member that a hostile archive lists.
_LARGEST_DIRECTORY_BYTES: Final = 2**20
_TAIL_BYTES: Final = 66_000
_END: Final = b"PK\x05\x06"
_END_64: Final = b"PK\x06\x06"
_IN_64: Final = 0xFFFFFFFF
_LOCAL_HEADER_BYTES: Final = 30


@dataclass(frozen=True, slots=True)
class KerasRoles:
    """As in `Found`."""

    present: frozenset[str]
    possible: frozenset[str]


_MAYBE: Final = frozenset({"scheduler", "rng"})
_WITH: Final = KerasRoles(frozenset({"weights", "optimizer"}), _MAYBE)
_WITHOUT: Final = KerasRoles(frozenset({"weights"}), frozenset())
_UNKNOWN: Final = KerasRoles(frozenset({"weights"}), _MAYBE | {"optimizer"})
ASSUMED: Final = {True: _WITH, False: _UNKNOWN}
"""What a whole model (True) or weights alone (False) hold where the file itself can't be asked."""


def roles_in(folder: Folder, name: str) -> tuple[KerasRoles, str | None]:
    """Its roles, and what is odd about it."""
    try:
        with folder.open(name) as stream:
            if name.endswith(".keras"):
                return _of_model(stream)
            return _of_names(root_names(stream)), None
    except (Unreadable, OSError) as error:
        return ASSUMED[name.endswith(".keras")], str(error)


def is_model(folder: Folder, name: str) -> bool:
    """Whether an HDF5 file is a whole model, as Keras saved it before it had a suffix of its own."""
    try:
        with folder.open(name) as stream:
            return "model_weights" in (root_names(stream) or ())
    except (Unreadable, OSError):
        return False


def _of_names(names: frozenset[str] | None) -> KerasRoles:
    if names is None:
        return _UNKNOWN
    # `optimizer`: Keras 3. `optimizer_weights`: whole models of before.
    return _WITH if names & {"optimizer", "optimizer_weights"} else _WITHOUT


def _of_model(stream: BinaryIO) -> tuple[KerasRoles, str | None]:
    # Before zipfile reads it whole.
    if (_directory_bytes(stream) or _IN_64) > _LARGEST_DIRECTORY_BYTES:
        return _WITH, "no Keras archive: its directory is too large"
    try:
        with zipfile.ZipFile(stream) as archive:
            inside = {one.filename: one for one in archive.infolist()}
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        return _WITH, f"damaged zip ({error})"
    missing = [name for name in _NEEDED if name not in inside]
    weights = next((name for name in _WEIGHTS if name in inside), None)
    if missing or weights is None:
        return _WITH, f"no {', '.join([*missing, *([_WEIGHTS[0]] if weights is None else [])])} in it"
    entry = inside[weights]
    # Keras stores it; of a compressed one nothing is unpacked to look inside.
    if weights != _WEIGHTS[0] or entry.compress_type != zipfile.ZIP_STORED:
        return _WITH, None
    stream.seek(entry.header_offset)
    header = stream.read(_LOCAL_HEADER_BYTES)
    # Lengths of the name and of the extra field, which may differ from those in the directory.
    base = entry.header_offset + _LOCAL_HEADER_BYTES + header[26] + header[27] * 256 + header[28] + header[29] * 256
    return _of_names(root_names(stream, base=base)), None


def _directory_bytes(stream: BinaryIO) -> int | None:
    """Of the zip's directory, before all of it is read. None where there is none."""
    size_bytes = stream.seek(0, os.SEEK_END)
    start = max(0, size_bytes - _TAIL_BYTES)
    stream.seek(start)
    tail = stream.read(_TAIL_BYTES)
    at = tail.rfind(_END)
    if at < 0:
        return None
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    # Too large for the fields of 32 bits: the 64-bit record before it says the length.
    if length == _IN_64 or tail[at + 16 : at + 20] == b"\xff\xff\xff\xff":
        at = tail.rfind(_END_64, 0, at)
        return int.from_bytes(tail[at + 40 : at + 48], "little") if at >= 0 else None
    return length
