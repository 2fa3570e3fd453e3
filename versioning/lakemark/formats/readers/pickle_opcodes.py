"""The opcodes of a pickle, carried out without building an object: what is left of them is their strings and integers.

Everything else (classes, calls, containers) is one opaque value, so nothing can be made to run, and a small file can't
grow in memory. Protocols 0 to 5 as the standard library's `pickletools` describes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final, TypeAlias

_BLOCK_BYTES: Final = 1 << 18
# So many zeros follow the last block: whoever looks an opcode's short argument up need not ask whether the data end.
_ROOM_BYTES: Final = 16
# Keys and names of tensors are shorter; whoever writes longer strings writes data.
_LONGEST_KEPT_BYTES: Final = 4096
# Protocol 0 ends arguments by a newline: without a bound a file without one would be read into memory whole.
_LONGEST_LINE_BYTES: Final = 1 << 16
_DEEPEST: Final = 10_000
# Python's pickler hands the items of lists and dicts over by the thousand.
_MOST_ON_STACK: Final = 1_000_000
_MOST_KEPT: Final = 3_000_000
_MOST_KEPT_BYTES: Final = 256 * 2**20
# torch's magic number has ten bytes, sizes and offsets eight.
_LONGEST_INTEGER_BYTES: Final = 16

OPAQUE: Final = ("an object that was not built",)
NOTHING: Final = ("None",)
"""Compare both by identity."""

Value: TypeAlias = object


class Unfit(Exception):
    """It can't be read to its end. Its text says why."""


class Cut(Unfit):
    """It ends before it says so."""


class TooLong(Unfit):
    """It goes on after the limit; what was seen before it is known."""


class Machine:
    """The bytes of one pickle, block by block, and what a pickle machine would have on its stack. It builds nothing.

    stack: strings and integers as they are, anything else opaque. marks: where in it the open containers begin.
    limit_bytes: TooLong for a pickle that goes on after so many.
    """

    def __init__(self, stream: BinaryIO, *, limit_bytes: int) -> None:
        self.stack: list[Value] = []
        self.marks: list[int] = []
        self.memo: dict[int, Value] = {}
        self.memoized = 0
        self._stream = stream
        self._left_bytes = limit_bytes
        self._base = 0  # what the stream had given before `_data`
        self._data = b""
        self._at = 0
        self._end = 0
        self._last = False
        self._kept_bytes = 0
        self._same: dict[str, str] = {}
        self.stopped = False

    @property
    def read_bytes(self) -> int:
        """How far it has come."""
        return self._base + self._at

    def items(self, start: int) -> None:
        """`stack[start:]` are keys and values that are set in the dict at `stack[start - 1]`."""

    def keep(self, index: int, value: Value) -> Value:
        """In the memo; of equal strings one."""
        if type(value) is str:
            # Four bytes of opcodes can put a string of 4 KiB once more into the memo: only the first of equal ones takes memory.
            known = self._same.setdefault(value, value)
            if known is value:
                self._kept_bytes += len(value)
            value = known
        self.memo[index] = value
        return value

    def take(self, length: int) -> bytes:
        """The next bytes, however far they reach over the block. Raises Cut."""
        while self._at + length > len(self._data) - (_ROOM_BYTES if self._last else 0):
            self._fill()
        taken = self._data[self._at : self._at + length]
        self._at += length
        return taken

    def pass_over(self, length: int) -> None:
        """Over bytes that nobody wants, in bounded memory."""
        while length > (here := len(self._data) - self._at - (_ROOM_BYTES if self._last else 0)):
            self._at += here
            length -= here
            self._fill()
        self._at += length

    def line(self) -> bytes:
        while (end := self._data.find(b"\n", self._at)) < 0:
            if len(self._data) - self._at > _LONGEST_LINE_BYTES:
                raise Unfit(f"a line of more than {_LONGEST_LINE_BYTES} bytes")
            self._fill()
        line = self._data[self._at : end]
        self._at = end + 1
        return line

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def since_mark(self) -> int:
        return self.marks.pop()

    def _fill(self) -> None:
        rest = self._data[self._at :]
        self._base += self._at
        self._at = 0
        # One byte more than is left: it tells a pickle that ends at the limit from one that goes on.
        block = self._stream.read(min(_BLOCK_BYTES, self._left_bytes + 1))
        self._left_bytes -= len(block)
        if self._left_bytes < 0:
            raise TooLong(f"longer than {self._base + len(rest) + len(block) - 1} bytes")
        if block:
            self._data = rest + block
            # The loop stops so far before the end of a block: an opcode begun there has its short argument in the block as well.
            self._end = max(len(self._data) - _ROOM_BYTES, 0)
        # Asked for more though the stream had ended.
        elif self._last:
            raise Cut(f"cut at byte {self._base + len(rest) - _ROOM_BYTES}")
        else:
            self._last = True
            self._end = len(rest)
            self._data = rest + bytes(_ROOM_BYTES)

    def check(self) -> None:
        # All opcodes were read and none of them was STOP.
        if self._last and not self.stopped and self._at >= self._end:
            raise Cut(f"cut at byte {self._base + self._end}")
        # Its last argument lay in the zeros that were put behind it.
        if self._last and self.stopped and self._at > self._end:
            raise Cut(f"cut at byte {self._base + self._end}")
        if len(self.stack) > _MOST_ON_STACK or len(self.memo) > _MOST_KEPT or self._kept_bytes > _MOST_KEPT_BYTES:
            raise Unfit(f"a pickle that holds too much at once (at byte {self.read_bytes})")
        if len(self.marks) > _DEEPEST:
            raise Unfit(f"a pickle nested deeper than {_DEEPEST}")


Handler: TypeAlias = Callable[[Machine], None]


def _skipping(width: int) -> Handler:
    return lambda machine: machine.pass_over(width)


def _pushing(width: int = 0) -> Handler:
    """An opaque value with `width` bytes of argument."""

    def handle(machine: Machine) -> None:
        machine.pass_over(width)
        machine.stack.append(OPAQUE)

    return handle


def _text(width: int) -> Handler:
    """A string with its length in `width` bytes. One that is very long is not kept."""

    def handle(machine: Machine) -> None:
        # It may say up to 2^64; only what is short is ever taken into memory.
        length = machine.number(width)
        if length > _LONGEST_KEPT_BYTES:
            machine.pass_over(length)
            machine.stack.append(OPAQUE)
        else:
            machine.stack.append(machine.take(length).decode(errors="replace"))

    return handle


def _sized(width: int) -> Handler:
    """Bytes with their length in `width` bytes."""

    def handle(machine: Machine) -> None:
        machine.pass_over(machine.number(width))
        machine.stack.append(OPAQUE)

    return handle


def _signed(width: int) -> Handler:
    def handle(machine: Machine) -> None:
        machine.stack.append(int.from_bytes(machine.take(width), "little", signed=True))

    return handle


def _long(width: int) -> Handler:
    def handle(machine: Machine) -> None:
        length = machine.number(width)
        if length > _LONGEST_INTEGER_BYTES:
            machine.pass_over(length)
            machine.stack.append(OPAQUE)
        else:
            machine.stack.append(int.from_bytes(machine.take(length), "little", signed=True))

    return handle


def _line_integer(machine: Machine) -> None:
    # Protocols 0 and 1 write False and True as I00 and I01. int() of a long text takes time by the square of its length.
    digits = machine.line().rstrip(b"L")
    machine.stack.append(OPAQUE if digits in (b"00", b"01") or len(digits) > 40 else int(digits))  # noqa: PLR2004


def _line_text(machine: Machine) -> None:
    """UNICODE, as protocol 0 escapes it."""
    _push_text(machine, machine.line().decode("raw-unicode-escape", errors="replace"))


def _line_string(machine: Machine) -> None:
    """STRING, as Python 2 showed it; escapes stay as they are written."""
    line = machine.line()
    quoted = len(line) > 1 and line[:1] == line[-1:] and line[:1] in (b"'", b'"')
    _push_text(machine, (line[1:-1] if quoted else line).decode("latin-1"))


def _push_text(machine: Machine, text: str) -> None:
    machine.stack.append(text if len(text) <= _LONGEST_KEPT_BYTES else OPAQUE)


def _lines(count: int) -> Handler:
    def handle(machine: Machine) -> None:
        for _ in range(count):
            machine.line()
        machine.stack.append(OPAQUE)

    return handle


def _inst(machine: Machine) -> None:
    machine.line()
    # INST: module and name, each on its line, then what is above the mark are arguments.
    _lines(1)(machine)
    _closing(machine)


def _replacing(count: int) -> Handler:
    """One opaque value instead of the `count` topmost."""

    def handle(machine: Machine) -> None:
        stack = machine.stack
        # del with a negative start would take from the other end, and a damaged pickle would pass.
        if count > len(stack):
            raise IndexError
        del stack[len(stack) - count :]
        stack.append(OPAQUE)

    return handle


def _closing(machine: Machine) -> None:
    del machine.stack[machine.since_mark() :]
    machine.stack.append(OPAQUE)


def _adding(machine: Machine) -> None:
    """To a list or a set below the mark."""
    del machine.stack[machine.since_mark() :]


def _append(machine: Machine) -> None:
    machine.stack.pop()


def _mark(machine: Machine) -> None:
    machine.marks.append(len(machine.stack))


def _pop(machine: Machine) -> None:
    # POP right after a MARK takes that away, as the standard library's unpickler does.
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.stack.pop()


def _set_item(machine: Machine) -> None:
    _set_from(machine, len(machine.stack) - 2)


def _set_items(machine: Machine) -> None:
    _set_from(machine, machine.since_mark())


def _set_from(machine: Machine, start: int) -> None:
    # There must be a dict below its items.
    if start < 1:
        raise IndexError
    machine.items(start)
    del machine.stack[start:]


def _dict(machine: Machine) -> None:
    start = machine.since_mark()
    # Protocol 0 makes the dict after its items: put below them it looks as the later protocols' does.
    machine.stack.insert(start, OPAQUE)
    machine.items(start + 1)
    del machine.stack[start + 1 :]


def _build(machine: Machine) -> None:
    """What a subclass made of the state's items stands for the object."""
    state = machine.stack.pop()
    if type(state) not in (str, int) and state is not OPAQUE and state is not NOTHING:
        machine.stack[-1] = state
    else:
        machine.stack[-1]  # IndexError where there is no object


def _stop(machine: Machine) -> None:
    machine.stopped = True


def _put(index: Callable[[Machine], int]) -> Handler:
    def handle(machine: Machine) -> None:
        at = index(machine)
        # MEMOIZE takes the next free number; a pickle may use PUT besides.
        machine.memoized = max(machine.memoized, at + 1)
        # What is not in the memo reads as opaque anyway; it is put there only over something else of that number.
        if machine.stack[-1] is not OPAQUE or at in machine.memo:
            machine.keep(at, machine.stack[-1])

    return handle


def _get(machine: Machine) -> None:
    machine.stack.append(machine.memo.get(int(machine.line()), OPAQUE))


HANDLERS: Final[dict[int, Handler]] = {
    ord("("): _mark,
    ord("."): _stop,
    ord("0"): _pop,
    ord("1"): _adding,
    # DUP
    ord("2"): lambda machine: machine.stack.append(machine.stack[-1]),
    ord("F"): _lines(1),
    ord("I"): _line_integer,
    ord("J"): _signed(4),
    ord("L"): _line_integer,
    ord("N"): lambda machine: machine.stack.append(NOTHING),
    ord("P"): _lines(1),
    ord("Q"): _replacing(1),
    ord("R"): _replacing(2),
    ord("S"): _line_string,
    ord("T"): _text(4),
    ord("U"): _text(1),
    ord("V"): _line_text,
    ord("X"): _text(4),
    ord("a"): _append,
    ord("b"): _build,
    ord("c"): _lines(2),
    ord("d"): _dict,
    ord("e"): _adding,
    ord("g"): _get,
    ord("i"): _inst,
    ord("l"): _closing,
    ord("o"): _closing,
    ord("p"): _put(lambda machine: int(machine.line())),
    ord("q"): _put(lambda machine: machine.number(1)),
    ord("r"): _put(lambda machine: machine.number(4)),
    ord("s"): _set_item,
    ord("t"): _closing,
    ord("u"): _set_items,
    ord("}"): _pushing(),
    ord(")"): _pushing(),
    ord("]"): _pushing(),
    ord("G"): _pushing(8),
    ord("B"): _sized(4),
    ord("C"): _sized(1),
    0x80: _skipping(1),
    0x82: _pushing(1),
    0x83: _pushing(2),
    0x84: _pushing(4),
    0x85: _replacing(1),
    0x86: _replacing(2),
    0x87: _replacing(3),
    0x88: _pushing(),
    0x89: _pushing(),
    0x8A: _long(1),
    0x8B: _long(4),
    0x8C: _text(1),
    0x8D: _text(8),
    0x8E: _sized(8),
    0x8F: _pushing(),
    0x90: _adding,
    0x91: _closing,
    0x92: _replacing(3),
    0x93: _replacing(2),
    0x95: _skipping(8),
    0x96: _sized(8),
    0x97: _pushing(),
    0x98: _skipping(0),
}
