"""The outline of a msgpack file: its keys, and whether it ends where it should. Payloads are skipped, nothing is built.

github.com/msgpack/msgpack, spec.md: one value, of which maps and arrays say how many follow and strings, binaries and
extensions how long they are. Flax writes one map; its arrays are extensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, Final

_MOST_VALUES: Final = 1_000_000
_MOST_KEYS: Final = 100_000
_DEEPEST: Final = 256
# As deep as roles are told from keys (`rules.state_trees`).
_KEYS_DOWN_TO: Final = 4
# Keys, names of arrays and paths are shorter; anything longer is a payload.
_LONGEST_TEXT_BYTES: Final = 512
_SCALARS: Final = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    **dict.fromkeys((0xCC, 0xD0), 1),
    **dict.fromkeys((0xCD, 0xD1, 0xD4), 2),
    **dict.fromkeys((0xCA, 0xCE, 0xD2), 4),
    **dict.fromkeys((0xCB, 0xCF, 0xD3), 8),
    # Extensions of fixed length, 0xD4 to 0xD8, have a byte for their type besides.
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
}
"""First byte -> bytes that follow. Of those of fixed length."""
_SIZED: Final = dict(zip(range(0xC4, 0xCA), ((1, 0), (2, 0), (4, 0), (1, 1), (2, 1), (4, 1)), strict=True)) | {
    0xD9: (1, 0),
    0xDA: (2, 0),
    0xDB: (4, 0),
}
"""First byte -> width of the length that follows, and bytes besides."""
_COUNTED: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""First byte -> width of the count that follows, and values per count: 1 in an array, 2 in a map."""


@dataclass(slots=True)
class MsgpackOutline:
    """problem: why it is not whole; None where it is. keys: of maps, as paths of at most four.

    texts: short strings that are the value of the key `path`. placeholders: what strings that stand for an array elsewhere
    name.
    """

    problem: str | None = None
    keys: set[tuple[str, ...]] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    placeholders: set[str] = field(default_factory=set)


class _Cut(Exception):
    """The file ends before its structure does, or is none. Its text says which."""


@dataclass(slots=True)
class _Open:
    """An array or a map that is being read. left: values to come, keys counted too."""

    left: int
    is_map: bool
    key: str = ""

    @property
    def at_key(self) -> bool:
        # Keys and values take turns, and a map begins with twice as many as it says: at an even number a key is next.
        return self.is_map and self.left % 2 == 0


def outline(stream: BinaryIO, size_bytes: int, *, placeholder: str = "//GDAPlaceholder:") -> MsgpackOutline:
    """Reads lengths, keys and short strings only; at most a million values, 256 deep."""
    result = MsgpackOutline()
    try:
        end = _Walk(stream, size_bytes, result, placeholder).run()
        # It can only be longer: a shorter one was cut, and that was raised on the way.
        if end != size_bytes:
            result.problem = f"{size_bytes} bytes, its structure ends at {end}"
    except _Cut as why:
        result.problem = str(why)
    return result


class _Walk:
    def __init__(self, stream: BinaryIO, size_bytes: int, result: MsgpackOutline, placeholder: str) -> None:
        self._read: Callable[[int], bytes] = stream.read
        self._stream, self._size, self._result, self._placeholder = stream, size_bytes, result, placeholder
        self._at = 0
        self._open: list[_Open] = []

    def run(self) -> int:
        for _ in range(_MOST_VALUES):
            if self._value():
                return self._at
        raise _Cut(f"more than {_MOST_VALUES} values: no checkpoint has as many")

    def _value(self) -> bool:
        """Reads one value or the head of one; whether it was the last of the outermost."""
        first = self._bytes(1)[0]
        counted = self._count(first)
        if counted is not None:
            left, is_map = counted
            if left:
                # Nothing recurses here; the limit keeps a file of a million opening bytes from a million open containers.
                if len(self._open) >= _DEEPEST:
                    raise _Cut(f"nested deeper than {_DEEPEST}")
                self._open.append(_Open(left, is_map))
                return False
            # An empty container is over at once.
            return self._done("")
        return self._done(self._payload(first))

    def _count(self, first: int) -> tuple[int, bool] | None:
        if 0x80 <= first <= 0x8F:  # noqa: PLR2004 - the format's own numbers
            return (first & 0x0F) * 2, True
        if 0x90 <= first <= 0x9F:  # noqa: PLR2004
            return first & 0x0F, False
        if first not in _COUNTED:
            return None
        width, each = _COUNTED[first]
        return int.from_bytes(self._bytes(width), "big") * each, each == 2  # noqa: PLR2004 - a key and a value

    def _payload(self, first: int) -> str:
        """Passes over a value; answers its text where it is a short string."""
        if first < 0x80 or first >= 0xE0:  # noqa: PLR2004 - small integers
            return ""
        if 0xA0 <= first <= 0xBF:  # noqa: PLR2004 - short strings
            return self._text(first & 0x1F)
        if first in _SCALARS:
            self._skip(_SCALARS[first])
            return ""
        # 0xC1 is the one byte that the format never uses.
        if first not in _SIZED:
            raise _Cut("no msgpack")
        width, besides = _SIZED[first]
        length = int.from_bytes(self._bytes(width), "big") + besides
        if first >= 0xD9:  # noqa: PLR2004 - strings
            return self._text(length)
        self._skip(length)
        return ""

    def _done(self, text: str) -> bool:
        while self._open:
            top = self._open[-1]
            if top.at_key:
                top.key = text
                self._note_key()
            elif text:
                self._note_text(top, text)
            top.left -= 1
            if top.left:
                return False
            self._open.pop()
            # The container that was closed is a value of the next outer one, and no text.
            text = ""
        return True

    def _note_key(self) -> None:
        if len(self._open) <= _KEYS_DOWN_TO and len(self._result.keys) < _MOST_KEYS:
            self._result.keys.add(tuple(one.key for one in self._open if one.is_map))

    def _note_text(self, top: _Open, text: str) -> None:
        # Flax keeps arrays of several processes, Orbax those of an aggregate file, elsewhere, and writes their names here.
        if text.startswith(self._placeholder):
            if len(self._result.placeholders) < _MOST_KEYS:
                self._result.placeholders.add(text.removeprefix(self._placeholder))
        # T5X: `{"driver": "zarr", "kvstore": {"path": …}}` in the place of an array names its folder.
        elif top.key == "path" and len(self._result.texts) < _MOST_KEYS:
            self._result.texts.add(text)

    def _text(self, length: int) -> str:
        if length > _LONGEST_TEXT_BYTES:
            self._skip(length)
            return ""
        return self._bytes(length).decode(errors="replace") if length else ""

    def _bytes(self, length: int) -> bytes:
        # At most 512 bytes are ever asked for here, whatever the file says.
        found = self._read(length)
        if len(found) < length:
            raise _Cut(f"cut: {self._size} bytes, more follow by its own lengths")
        self._at += length
        return found

    def _skip(self, length: int) -> None:
        # A seek beyond the end succeeds: only this comparison sees that the file is cut.
        if self._at + length > self._size:
            raise _Cut(f"cut: {self._size} bytes, its structure needs {self._at + length}")
        self._stream.seek(length, 1)
        self._at += length
