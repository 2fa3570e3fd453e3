"""Integers that a file of `torch.save` says of the run that wrote it: how many ranks there are, how a model is split.

Read from the opcodes of `data.pkl` in its zip; nothing is built.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import BinaryIO, Final

from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.pickle_stream import PickleReader, Unfit
from lakemark.formats.readers.torch_file import to_pickle

_LARGEST_BYTES: Final = 32 * 2**20


def integers(folder: Folder, name: str, wanted: Collection[str]) -> dict[str, int]:
    """Key -> the integer last set under it in any dict; empty where the file can't be read so.

    `outer.key` is wanted of the dict that is set under `outer`.
    """
    try:
        with folder.open(name) as stream:
            if not to_pickle(stream):
                return {}
            reader = _Reader(stream, wanted)
            reader.run()
            return reader.found
    except (Unreadable, Unfit, OSError, struct.error):
        return {}


class _Reader(PickleReader):
    def __init__(self, stream: BinaryIO, wanted: Collection[str]) -> None:
        super().__init__(stream, limit_bytes=_LARGEST_BYTES)
        self.found: dict[str, int] = {}
        self._wanted = frozenset(wanted)
        self._inner = frozenset(name.partition(".")[2] for name in wanted if "." in name)

    def items(self, start: int) -> None:
        stack = self.stack
        inner: dict[str, int] = {}
        for key, value in zip(stack[start::2], stack[start + 1 :: 2], strict=False):
            if type(key) is not str:
                continue
            # Not isinstance: True is an integer as well, though the machine here never makes one.
            if type(value) is int:
                if key in self._wanted:
                    self.found[key] = value
                if key in self._inner:
                    inner[key] = value
            elif type(value) is dict:
                self.found.update(
                    {f"{key}.{name}": found for name, found in value.items() if f"{key}.{name}" in self._wanted}
                )
        # The dict itself is opaque: what is wanted of it stands for it, until it is set under its own key.
        if inner:
            stack[start - 1] = inner
