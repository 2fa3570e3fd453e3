"""Names of what is in an archive or a file of tensors, from its directory or header alone; nothing in it is read."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from typing import Final

from lakemark.formats.readers.folder import Folder, Unreadable

_LARGEST_BYTES: Final = 4 * 2**20
_TAIL_BYTES: Final = 66_000
_END: Final = struct.Struct("<4s4H2IH")
_END_OF_ZIP: Final = b"PK\x05\x06"


def of_zip(folder: Folder, name: str) -> list[str]:
    """Empty where it can't be read, or its directory is longer than any that such a file needs."""
    try:
        with folder.open(name) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            _, found, end = stream.read(_TAIL_BYTES).rpartition(_END_OF_ZIP)
            if _END.unpack_from((found + end).ljust(_END.size, b"\0"))[5] > _LARGEST_BYTES:
                return []
            with zipfile.ZipFile(stream) as archive:
                return archive.namelist()
    except (Unreadable, OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return []


def of_safetensors(folder: Folder, name: str) -> list[str]:
    """Of its tensors; empty where its header can't be read, or is longer than any that is looked into."""
    try:
        with folder.open(name) as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if length <= _LARGEST_BYTES else {}
    except (Unreadable, OSError, ValueError, RecursionError):
        return []
    return [one for one in header if one != "__metadata__"] if isinstance(header, dict) else []
