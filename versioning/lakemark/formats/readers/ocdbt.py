"""Files of TensorStore's OCDBT key-value store: is each as long as it says?

google.github.io/tensorstore/kvstore/ocdbt (format): `manifest.ocdbt` and the nodes of its trees begin with a magic number
and their own length, 8 bytes, little-endian. Files in `d/` hold nodes, values, or both one after the other; what is a value
and which file belongs to the store only the compressed trees say, so a lost or cut file of values is not seen.
"""

from __future__ import annotations

import os
from typing import Final

from lakemark.formats.readers.folder import Folder, Unreadable

MANIFEST: Final = "manifest.ocdbt"
_MANIFEST: Final = b"\x0c\xdb\x3a\x2a"
_NODES: Final = (b"\x0c\xdb\x20\xde", b"\x0c\xdb\x1c\xde")
"""Of a node of the tree of keys, and of the tree of versions."""
_HEAD_BYTES: Final = 12
_MOST_NODES: Final = 1000


def manifest_problem(folder: Folder, name: str) -> str | None:
    """Of a `manifest.ocdbt`: cut, or none."""
    try:
        with folder.open(name) as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            head = stream.read(_HEAD_BYTES)
    except (Unreadable, OSError) as error:
        return f"{name}: {error}"
    length = int.from_bytes(head[4:], "little")
    if len(head) < _HEAD_BYTES or not head.startswith(_MANIFEST):
        return f"{name}: cut or damaged (no manifest)"
    return None if length == size_bytes else f"{name}: {size_bytes} bytes, it says {length}"


def data_problem(folder: Folder, name: str) -> str | None:
    """Of a file in `d/`: empty, or its last node is cut."""
    try:
        with folder.open(name) as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            if size_bytes == 0:
                return f"{name}: it is empty"
            at = 0
            for _ in range(_MOST_NODES):
                stream.seek(at)
                head = stream.read(_HEAD_BYTES)
                # A value, which says nothing of its length, or the end: what follows can't be told.
                if not head.startswith(_NODES) or len(head) < _HEAD_BYTES:
                    return None
                # At least the head: a length of 0 in a hostile file must not keep the loop in its place.
                at += max(int.from_bytes(head[4:], "little"), _HEAD_BYTES)
                if at > size_bytes:
                    return f"{name}: {size_bytes} bytes, it needs {at}"
    except (Unreadable, OSError) as error:
        return f"{name}: {error}"
    return None
