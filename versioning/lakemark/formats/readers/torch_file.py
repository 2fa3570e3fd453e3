"""What keys a file of `torch.save` has, and so which roles: read from the opcodes of its pickle, nothing is built.

torch/serialization.py: since 1.6 a stored zip with `<name>/data.pkl`, before it four pickles one after the other (a magic
number, a version, facts of the machine, the object). The dict's keys are strings in that pickle; tensors lie elsewhere.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.pickle_stream import NOTHING, PickleReader, TooLong, Unfit, Value
from lakemark.formats.roles import EVERYTHING, of_key
from lakemark.model.checkpoints.manifest import Role

# Of the pickle alone; tensors lie elsewhere in the file.
_LARGEST_BYTES: Final = 16 * 2**20
_LARGEST_DIRECTORY_BYTES: Final = 32 * 2**20
_TAIL_BYTES: Final = 66_000
_ZIP: Final = b"PK\x03\x04"
# A header of the zip's central directory: 46 bytes, then name, extra field, comment.
_MEMBER: Final = struct.Struct("<4s6H3I5H2I")
_MOST_KEYS: Final = 4096
_MOST_NESTED: Final = 256
# Composer keeps everything but `rng` under `state`.
_OUTER: Final = frozenset({"state", "app", "checkpoint", "content", "client_state"})
_TENSOR_ENDS: Final = (".weight", ".bias", "running_mean", "running_var", "weight", "bias")
# In a field of 32 bits: the number lies in the 64-bit extra field, or in the 64-bit end record.
_ELSEWHERE: Final = 0xFFFFFFFF
# MAGIC_NUMBER of torch/serialization.py.
_MAGIC: Final = 0x1950A86A20F9469CFC6C
_BEFORE_THE_OBJECT: Final = 3


@dataclass(frozen=True, slots=True)
class Keys:
    """Of the outermost dict, and of the dicts directly in it (the first few); not of those whose value is None.

    whole: False where more may follow.
    """

    top: tuple[str, ...]
    nested: dict[str, tuple[str, ...]]
    whole: bool = True


@dataclass(slots=True)
class TorchRoles:
    """present: roles whose keys are there. possible: roles that may be there all the same."""

    present: set[str] = field(default_factory=set)
    possible: set[str] = field(default_factory=set)


def keys(folder: Folder, name: str) -> tuple[str, ...] | None:
    """Those of the outermost dict; None where the file holds none or can't be read so."""
    found = read(folder, name)
    return None if found is None else found.top


def told(folder: Folder, names: Iterable[str]) -> TorchRoles:
    """What the files say together. One that says nothing may hold anything."""
    result = TorchRoles()
    for name in names:
        one = roles(read(folder, name))
        result.present |= one.present
        result.possible |= one.possible
    result.possible -= result.present
    return result


def roles(found: Keys | None) -> TorchRoles:
    """By the words frameworks use. Where all keys are understood, a role without a key is not there."""
    if found is None:
        return TorchRoles(possible={role.value for role in EVERYTHING})
    # A bare state_dict: its keys are names of tensors. An optimizer's or a trainer's dict may have a `weight` of its own, too.
    if any(key.endswith(_TENSOR_ENDS) for key in found.top) and not any(map(_of_trainer, found.top)):
        return TorchRoles(present={Role.WEIGHTS.value})
    result, unsure = TorchRoles(), not found.whole
    for key in found.top:
        # A wrapping counts as what is in it; where its dict is empty or unread, by its own name.
        inner = found.nested.get(key) if key.lower() in _OUTER else None
        said = [of_key(one) for one in inner or (key,)]
        result.present.update(role.value for role in said if role is not None)
        unsure = unsure or None in said
    # One key that nobody knows may hold any role: then none is said to be missing.
    if unsure or not result.present.intersection(EVERYTHING):
        result.possible = {role.value for role in EVERYTHING} - result.present
    return result


def read(folder: Folder, name: str) -> Keys | None:
    """None where the file holds no dict or can't be read so."""
    try:
        with folder.open(name) as stream:
            return _of_zip(stream) if stream.read(4) == _ZIP else _of_old(stream)
    except (Unreadable, Unfit, OSError, struct.error):
        return None


def _of_trainer(key: str) -> bool:
    return of_key(key) in (Role.OPTIMIZER, Role.SCHEDULER, Role.RNG)


def to_pickle(stream: BinaryIO) -> bool:
    """Seeks to the pickle in a zip of `torch.save`; False where there is none. Raises OSError and struct.error."""
    member = _data_pickle(stream)
    if member is None:
        return False
    stream.seek(member)
    header = stream.read(30)
    if header[:4] != _ZIP:
        return False
    # Not as in the directory: here torch fills the extra field up, so that tensors begin at multiples of 64 bytes.
    name_length, extra_length = struct.unpack("<2H", header[26:30])
    stream.seek(name_length + extra_length, os.SEEK_CUR)
    return True


def _of_zip(stream: BinaryIO) -> Keys | None:
    return _keys_of(stream) if to_pickle(stream) else None


def _data_pickle(stream: BinaryIO) -> int | None:
    """Where the local header of the stored member `*/data.pkl` lies, by the archive's central directory."""
    start, length = _directory(stream)
    if not 0 < length <= _LARGEST_DIRECTORY_BYTES:
        return None
    stream.seek(start)
    directory = stream.read(length)
    at = 0
    while at + _MEMBER.size <= len(directory):
        fields = _MEMBER.unpack_from(directory, at)
        method, size, name_length, extra_length, comment_length, offset = (
            fields[number] for number in (4, 9, 10, 11, 12, 16)
        )
        name_at = at + _MEMBER.size
        name = directory[name_at : name_at + name_length]
        # `<name>/data.pkl`; one deeper belongs to a package that is stored in it.
        if name.endswith(b"/data.pkl") and name.count(b"/") == 1:
            extra = directory[name_at + name_length : name_at + name_length + extra_length]
            # torch stores and never compresses: what is compressed is someone else's.
            if method != 0:
                return None
            return _wide_offset(extra, fields[8], size) if offset == _ELSEWHERE else offset
        at = name_at + name_length + extra_length + comment_length
    return None


def _directory(stream: BinaryIO) -> tuple[int, int]:
    """(offset, length) of the central directory, from the end record or its 64-bit twin; zeros where there is none."""
    size_bytes = os.fstat(stream.fileno()).st_size
    stream.seek(max(0, size_bytes - _TAIL_BYTES))
    tail = stream.read(_TAIL_BYTES)
    # The last one: a zip that is stored in it has one, too.
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(tail):
        return 0, 0
    length, start = struct.unpack_from("<2I", tail, at + 12)
    # The locator of the 64-bit end record lies right before the end record: 20 bytes, the place at its eighth.
    if _ELSEWHERE in (length, start) and at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07":  # noqa: PLR2004 - 64-bit
        (record,) = struct.unpack_from("<Q", tail, at - 12)
        stream.seek(min(record, size_bytes))
        wide = stream.read(56)
        # Without a signature check: a wrong place gives a directory that does not fit into the file.
        length, start = struct.unpack_from("<2Q", wide, 40)
    return (start, length) if start + length <= size_bytes else (0, 0)


def _wide_offset(extra: bytes, packed: int, size: int) -> int | None:
    """The offset in a zip64 field, after the sizes that did not fit either."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        # Only the fields that did not fit are there, in this order: size, packed size, offset.
        skip = 8 * ((size == _ELSEWHERE) + (packed == _ELSEWHERE))
        # Kind 1 of the extra fields is zip64's.
        if kind == 1 and length >= skip + 8:
            return int(struct.unpack_from("<Q", extra, at + 4 + skip)[0])
        at += 4 + length
    return None


def _of_old(stream: BinaryIO) -> Keys | None:
    """The fourth pickle of a file from before the zips; the first of one that is no torch file."""
    stream.seek(0)
    first = _Keys(stream, limit_bytes=_LARGEST_BYTES)
    first.run()
    # A plain pickle, such as Accelerate's random_states: its keys tell as much.
    if first.stack != [_MAGIC]:
        return first.found()
    at = first.read_bytes
    for _ in range(_BEFORE_THE_OBJECT - 1):
        stream.seek(at)
        passed = _Keys(stream, limit_bytes=_LARGEST_BYTES)
        passed.run()
        at += passed.read_bytes
    stream.seek(at)
    return _keys_of(stream)


def _keys_of(stream: BinaryIO) -> Keys | None:
    reader = _Keys(stream, limit_bytes=_LARGEST_BYTES)
    try:
        reader.run()
    # Keys of the outermost dict come before what they hold, so what was seen up to here is right, only not all.
    except TooLong:
        reader.note_open()
        return reader.found(whole=False)
    return reader.found()


class _Keys(PickleReader):
    """Notes the keys of the dict at the bottom of the stack, and of dicts that are set in it."""

    def __init__(self, stream: BinaryIO, *, limit_bytes: int) -> None:
        super().__init__(stream, limit_bytes=limit_bytes)
        self._top: dict[str, None] = {}
        self._nested: dict[str, dict[str, None]] = {}

    def items(self, start: int) -> None:
        # The dict at the bottom of the stack: a checkpoint's own.
        if start == 1:
            self._note(self.stack[1::2], self.stack[2::2])
            self.stack[0] = _ROOT
            return
        outer = self.marks[0] if self.marks else 1
        key = self.stack[start - 2]
        # The outermost dict is being filled (its mark is at 1), and this one is the value of one of its keys.
        directly = outer == 1 and len(self.marks) <= 1 and start % 2 == 1
        if directly and isinstance(key, str) and len(self._nested) < _MOST_NESTED:
            inner = self._nested.setdefault(key, {})
            inner.update(
                (one, None) for one in self.stack[start : start + 2 * _MOST_NESTED : 2] if isinstance(one, str)
            )

    def note_open(self) -> None:
        """The keys of a dict that is not closed yet."""
        if self.marks and self.marks[0] == 1:
            end = self.marks[1] if len(self.marks) > 1 else len(self.stack)
            self._note(self.stack[1:end:2], self.stack[2:end:2])
            self.stack[:] = [_ROOT]

    def found(self, *, whole: bool = True) -> Keys | None:
        if not self.stack or self.stack[-1] is not _ROOT or not self._top:
            return None
        nested = {key: tuple(inner) for key, inner in self._nested.items() if key in self._top}
        return Keys(tuple(self._top), nested, whole and len(self._top) < _MOST_KEYS)

    def _note(self, names: Iterable[Value], values: Iterable[Value]) -> None:
        for key, value in zip(names, values, strict=False):
            # A key with None says that there is no such state: a scheduler that was not used.
            if isinstance(key, str) and value is not NOTHING and len(self._top) < _MOST_KEYS:
                self._top[key] = None


_ROOT: Final = ("the outermost dict",)
