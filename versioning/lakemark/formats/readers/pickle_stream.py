"""Reads the opcodes of a pickle and builds none of its objects. The few that are frequent are carried out here, for speed."""

from __future__ import annotations

import re
from typing import Final

from lakemark.formats.readers.pickle_opcodes import HANDLERS, NOTHING, OPAQUE, Cut, Machine, TooLong, Unfit, Value

__all__ = ["NOTHING", "OPAQUE", "Cut", "PickleReader", "TooLong", "Unfit", "Value"]

_MEMOIZE: Final = 0x94
_BINGET: Final = 0x68
_LONG_BINGET: Final = 0x6A
_EMPTY_TUPLE: Final = 0x29
_NEWOBJ: Final = 0x81
_BININT1: Final = 0x4B
_BININT2: Final = 0x4D
_BINPUT: Final = 0x71
_BINUNICODE: Final = 0x58
_MARK: Final = 0x28
# The upper three bytes of a BINUNICODE's length: shorter than 256, which a block holds whole.
_SHORT: Final = bytes(3)
_EMPTY: Final = frozenset(b"})]\x88\x89")
"""Of them, and of the two truth values, nothing is kept."""
_GET: Final = rb"(?:h.|j....)"
_PUT: Final = rb"(?:q.|r....)"
_SMALL: Final = rb"(?:K.|M..|J....)"
_SIZE: Final = rb"(?:\)|\(?" + _SMALL + rb"{1,8}[\x85-\x87t]" + _PUT + b")"
_TENSOR: Final = re.compile(
    _GET + rb"\(\(" + _GET + _GET
    + rb"X(?:\x01\0\0\0\d|\x02\0\0\0\d\d|\x03\0\0\0\d\d\d|\x04\0\0\0\d{4}|\x05\0\0\0\d{5})" + _PUT
    + _GET + rb"(?:K.|M..|J....|\x8a[\x04-\x08].{4,8}?)t" + _PUT + b"Q" + _SMALL + _SIZE + _SIZE
    + rb"[\x88\x89]" + _GET + rb"\)R" + _PUT + b"t" + _PUT + b"R" + _PUT,
    re.DOTALL,
)  # fmt: skip
"""A tensor as `torch.save` writes it (protocol 2), its storage known by a number. Models have thousands of them."""


class PickleReader(Machine):
    """Reads one pickle. A subclass looks at the items of dicts as they are set, and may leave a value of its own for them."""

    def run(self) -> None:
        """To the end of the pickle. Raises Unfit, and OSError of the stream."""
        try:
            while not self.stopped:
                # Before each block: what is left of the last one, less than a short opcode, goes in front of the new one.
                self._fill()
                self._block()
                self.check()
        except (IndexError, ValueError, TypeError) as error:
            raise Unfit(f"a damaged pickle (at byte {self.read_bytes})") from error

    def shortcut(self, data: bytes, at: int) -> int:  # noqa: ARG002 - for subclasses
        """Called before `GET, EMPTY_TUPLE, NEWOBJ` at `at`: where reading goes on, `at` if nothing was recognised."""
        return at

    def _block(self) -> None:  # noqa: C901, PLR0912 - one loop without calls, for speed
        data, at, end, stack, memo = self._data, self._at, self._end, self.stack, self.memo
        while at < end:
            code = data[at]
            if code == _BINPUT:
                index = data[at + 1]
                # As `_put` of the slow opcodes does; the same in MEMOIZE below, whose number is never taken yet.
                if stack[-1] is not OPAQUE or index in memo:
                    self.keep(index, stack[-1])
                self.memoized = max(self.memoized, index + 1)
                at += 2
            elif code in (_BINGET, _LONG_BINGET):
                # `data` has 16 bytes behind `end`: looking at two bytes after an opcode never leaves it.
                after = at + (2 if code == _BINGET else 5)
                jumped = self._jumped(data, at, after)
                if jumped != at:
                    at = jumped
                    continue
                index = data[at + 1] if code == _BINGET else int.from_bytes(data[at + 1 : after], "little")
                stack.append(memo.get(index, OPAQUE))
                at = after
            elif code == _MEMOIZE:
                at += 1
                if stack[-1] is not OPAQUE:
                    self.keep(self.memoized, stack[-1])
                self.memoized += 1
            elif code == _BININT1:
                stack.append(data[at + 1])
                at += 2
            elif code in _EMPTY:
                stack.append(OPAQUE)
                at += 1
            # One that reaches over the block is left to the slow handler, which fills up.
            elif code == _BINUNICODE and data[at + 2 : at + 5] == _SHORT and at + 5 + data[at + 1] <= end:
                after = at + 5 + data[at + 1]
                stack.append(data[at + 5 : after].decode(errors="replace"))
                at = after
            elif code == _MARK:
                self.marks.append(len(stack))
                at += 1
            elif code == _BININT2:
                stack.append(data[at + 1] | data[at + 2] << 8)
                at += 3
            elif code == _NEWOBJ:
                # NEWOBJ: class and arguments become the object.
                stack.pop()
                stack[-1] = OPAQUE
                at += 1
            else:
                # Handlers read from the machine's own position, and may load the next block.
                self._at = at + 1
                handler = HANDLERS.get(code)
                if handler is None:
                    raise self._unknown(code)
                handler(self)
                data, at, end = self._data, self._at, self._end
                if self.stopped:
                    break
        self._at = at

    def _jumped(self, data: bytes, at: int, after: int) -> int:
        """Over what begins with the GET at `at`, where that was seen at once; else `at`."""
        # How objects such as MetadataIndex begin, of which DCP writes one for each chunk.
        if data[after] == _EMPTY_TUPLE and data[after + 1] == _NEWOBJ:
            return self.shortcut(data, at)
        if data[after] == _MARK and data[after + 1] == _MARK and (match := _TENSOR.match(data, at)):
            self.stack.append(OPAQUE)
            return match.end()
        return at

    def _unknown(self, code: int) -> Unfit:
        at = self._base + self._at - 1
        # It is one of the zeros behind the end: not a strange opcode, but no opcode any more.
        if self._last and self._at > self._end:
            return Cut(f"cut at byte {at}")
        return Unfit(f"no pickle: byte 0x{code:02x} at {at} is no opcode")
