"""Reads objects back whole, part by part and in parallel, and says which are not what they should be."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from lakemark.adapters.disk.digests import Digester, new_hash, part_count, read_into
from lakemark.adapters.disk.objects import Blobs
from lakemark.adapters.disk.pool import Buffers, run_all
from lakemark.adapters.dvc.layout import object_key
from lakemark.errors import Corrupt, NotFound, StoreUnavailable
from lakemark.model.checkpoints.manifest import File
from lakemark.ports.work import Progress

MISSING: Final = "is missing"
READINGS: Final = 3
"""How often something is read before it counts as wrong: one wrong answer is the network's or the server's."""
_STEP_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class ObjectFault:
    """What is wrong with an object. unread: the store as a whole answers, and gave no bytes of it."""

    why: str
    unread: bool = False

    @property
    def missing(self) -> bool:
        return self.why == MISSING


class ObjectReader:
    """still_up: raises StoreUnavailable where the store as a whole does not answer: then no object is to blame."""

    def __init__(self, blobs: Blobs, part_size_bytes: int, *, still_up: Callable[[], object], workers: int) -> None:
        self._blobs = blobs
        self._part_size = part_size_bytes
        self._still_up = still_up
        self._workers = workers
        self._buffers = Buffers(workers, _STEP_BYTES)

    def bad(self, files: Collection[tuple[str, File]], progress: Progress) -> dict[str, ObjectFault]:
        """Of these files by the names of their objects: file digest -> what is wrong. Every byte of each is read.

        By file, not by object: damaged records may give two files one name, under which the bytes of one alone can lie.
        """
        progress.expect("verify", sum(file.size_bytes for _, file in files))
        found: dict[str, ObjectFault] = {}
        for digest, fault, size_bytes in run_all(self._tasks(files), workers=self._workers):
            progress.advance(size_bytes)
            if fault is not None:
                found.setdefault(digest, fault)
        return found

    def name_there(self, name: str, file: File) -> tuple[bool, str]:
        """Whether what lies under `name` is the file after all, and its MD5, both of one reading. Raises NotFound."""
        md5, digester = hashlib.md5(usedforsecurity=False), Digester(self._part_size)
        with self._blobs.open(object_key(name)) as stream, self._buffers.take() as buffer:
            while got := read_into(stream, buffer):
                md5.update(buffer[:got])
                digester.update(buffer[:got])
        right = digester.size_bytes == file.size_bytes and digester.finish().digest == file.digest
        return right, md5.hexdigest()

    def _tasks(
        self, files: Collection[tuple[str, File]]
    ) -> Iterator[Callable[[], tuple[str, ObjectFault | None, int]]]:
        for name, file in files:
            for index in range(part_count(file.size_bytes, self._part_size)):
                yield partial(self._part, name, file, index)

    def _part(self, name: str, file: File, index: int) -> tuple[str, ObjectFault | None, int]:
        """(file digest, what is wrong, bytes read)."""
        start = index * self._part_size
        length = min(self._part_size, file.size_bytes - start)
        fault: ObjectFault | None = None
        for _ in range(READINGS):
            try:
                why = self._look(object_key(name), file, index)
                fault = None if why is None else ObjectFault(why)
            except NotFound:
                fault = ObjectFault(MISSING)
            except (StoreUnavailable, Corrupt) as error:
                self._still_up()
                fault = ObjectFault(f"can't be read: {error}", unread=isinstance(error, StoreUnavailable))
            except OSError as error:
                # Only the bytes of a plain file say this: opening one has words of ours already.
                self._still_up()
                fault = ObjectFault(f"can't be read: {error.strerror or error}", unread=error.errno != errno.EIO)
            if fault is None or fault.why == MISSING:
                break
        return str(file.digest), fault, length

    def _look(self, key: str, file: File, index: int) -> str | None:
        """The object's end is looked for where one read sees it, else asked for."""
        single = not file.parts
        # Who reads a part sees nothing beyond it: whether the object goes on after the last one, its size alone says.
        if not single and index == 0:
            size_bytes = self._blobs.size(key)
            if size_bytes != file.size_bytes:
                return MISSING if size_bytes is None else _wrong_size(size_bytes, file)
        start = index * self._part_size
        length = min(self._part_size, file.size_bytes - start)
        right = file.digest if single else file.parts[index]
        # One byte more than there should be: an object that is too long is found by the same read.
        digest, got = self._digest(key, start, None if single else length, most=length + 1 if single else length)
        if got != length:
            return _wrong_size(start + got, file, more=got > length)
        return None if digest == right else f"has other bytes in part {index + 1}"

    def _digest(self, key: str, start: int, length: int | None, *, most: int) -> tuple[str, int]:
        digest = new_hash()
        done = 0
        with self._blobs.open(key, start=start, length=length) as stream, self._buffers.take() as buffer:
            while done < most:
                got = read_into(stream, buffer[: min(len(buffer), most - done)])
                if not got:
                    break
                digest.update(buffer[:got])
                done += got
        return digest.hexdigest(), done


def _wrong_size(found: int, file: File, *, more: bool = False) -> str:
    return f"has {'more than ' if more else ''}{found - more} bytes instead of {file.size_bytes}"
