"""BLAKE3 digests of files, part by part, as manifests have them. The only module that imports blake3."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol, TypeAlias

from blake3 import blake3

from lakemark.errors import AnswerDamaged, TargetDamaged, quoted
from lakemark.model.checkpoints.manifest import PART_SIZE_BYTES, File

STEP_BYTES: Final = 2**20
"""Bytes per read or buffered write: larger buffered writes are several times slower."""

Readable: TypeAlias = BinaryIO | io.RawIOBase
"""A stream with `readinto`."""


@dataclass(frozen=True, slots=True)
class FileDigest:
    """`digest` and `parts` as `model.checkpoint.File` has them: `parts` is empty for a file of one part."""

    size_bytes: int
    digest: str
    parts: tuple[str, ...]


def of_parts(size_bytes: int, parts: Sequence[str]) -> FileDigest:
    """The digest of a file whose parts have these digests, in order; an empty file has one part."""
    if len(parts) == 1:
        return FileDigest(size_bytes, parts[0], ())
    whole = blake3(b"".join(bytes.fromhex(part) for part in parts)).hexdigest()
    return FileDigest(size_bytes, whole, tuple(parts))


def part_count(size_bytes: int, part_size_bytes: int = PART_SIZE_BYTES) -> int:
    """At least one: an empty file has an empty part."""
    return max(1, -(-size_bytes // part_size_bytes))


class Hash(Protocol):
    """What `hashlib` objects have too."""

    def update(self, data: memoryview, /) -> object: ...
    def hexdigest(self) -> str: ...


def new_hash() -> Hash:
    """BLAKE3 over one part."""
    return blake3()


class Digester:
    """Takes a file's bytes in order and says its digest."""

    def __init__(self, part_size_bytes: int = PART_SIZE_BYTES) -> None:
        self._part_size = part_size_bytes
        self._parts: list[str] = []
        self._part = blake3()
        self._in_part = 0
        self.size_bytes = 0

    def update(self, data: memoryview) -> None:
        while len(data):
            # Closed only when more comes: a file that ends with a full part has no empty one after it.
            if self._in_part == self._part_size:
                self._close_part()
            piece = data[: self._part_size - self._in_part]
            self._part.update(piece)
            self._in_part += len(piece)
            self.size_bytes += len(piece)
            data = data[len(piece) :]

    def finish(self) -> FileDigest:
        self._close_part()
        return of_parts(self.size_bytes, self._parts)

    def _close_part(self) -> None:
        self._parts.append(self._part.hexdigest())
        self._part, self._in_part = blake3(), 0


class VerifiedStream(io.RawIOBase):
    """A stream that raises AnswerDamaged instead of ending when its bytes were not those of `file`, or too many or too few.

    One wrong answer does not say that its source is damaged: that takes another reading. Raises TargetDamaged where the
    bytes are right and a digest in `also` is not theirs: then they are known under a wrong name.

    also: further hashes to feed with the same bytes, each with the digest it must have (None: any). The stream
    underneath stays open.
    """

    def __init__(
        self, stream: Readable, file: File, *, part_size_bytes: int, also: Iterable[tuple[Hash, str | None]] = ()
    ) -> None:
        super().__init__()
        self._stream = stream
        self._file = file
        self._digester = Digester(part_size_bytes)
        self._also = tuple(also)
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)
        count = read_into(self._stream, view)
        if count:
            self._digester.update(view[:count])
            for other, _ in self._also:
                other.update(view[:count])
        # Too many bytes are said at once: an answer without an end must not be read to it.
        if count < len(view) or self._digester.size_bytes > self._file.size_bytes:
            self._compare()
        return count

    def _compare(self) -> None:
        """Once, at the end: raises AnswerDamaged for other bytes, TargetDamaged for right ones under a wrong name."""
        if self._ended:
            return
        self._ended = True
        size = self._digester.size_bytes
        if size != self._file.size_bytes or self._digester.finish().digest != self._file.digest:
            raise AnswerDamaged(
                f"{quoted(self._file.path)}: {size} bytes that are not those of its manifest",
                advice="Take the checkpoint from another replica; `lakemark verify` says which are sound.",
            )
        for other, right in self._also:
            if right not in (None, other.hexdigest()):
                raise TargetDamaged(
                    f"{quoted(self._file.path)} is kept under the name {right} but is {other.hexdigest()}",
                    advice="The tier's record of it is damaged: replicate it from another replica.",
                )


def drain(stream: VerifiedStream, buffer: memoryview) -> None:
    """Reads `stream` to its end, so that it compares."""
    while stream.readinto(buffer) == len(buffer):
        pass


def read_into(stream: Readable, view: memoryview) -> int:
    """Fills `view` from `stream`; fewer bytes only at its end."""
    done = 0
    while done < len(view):
        got: int = stream.readinto(view[done:])  # type: ignore[union-attr]
        if not got:
            break
        done += got
    return done


def digest_part(descriptor: int, offset: int, length: int, *, buffer: memoryview) -> str:
    """BLAKE3 of up to `length` bytes at `offset`; a file that ends earlier has the digest of what there was."""
    part = blake3()
    end = offset + length
    while offset < end:
        got = os.preadv(descriptor, [buffer[: min(len(buffer), end - offset)]], offset)
        if not got:
            break
        part.update(buffer[:got])
        offset += got
    return str(part.hexdigest())
