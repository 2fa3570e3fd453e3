"""Reads objects back whole, part by part and in parallel, and says which are not what they should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from lakemark.adapters.blobs import Blobs
from lakemark.adapters.digests import new_hash, part_count, read_into
from lakemark.adapters.dvc_layout import object_key
from lakemark.adapters.pool import Buffers, run_all
from lakemark.errors import Corrupt, NotFound, StoreUnavailable
from lakemark.model.checkpoint import File
from lakemark.ports.work import Progress

MISSING: Final = "is missing"
_STEP_BYTES: Final = 2**20


class ObjectReader:
    """still_up: raises StoreUnavailable where the store as a whole does not answer: then no object is to blame."""

    def __init__(self, blobs: Blobs, part_size_bytes: int, *, still_up: Callable[[], object], workers: int) -> None:
        self._blobs = blobs
        self._part_size = part_size_bytes
        self._still_up = still_up
        self._workers = workers
        self._buffers = Buffers(workers, _STEP_BYTES)

    def bad(self, files: Mapping[str, File], progress: Progress) -> dict[str, str]:
        """Object name -> what is wrong with it; every byte of all of them is read."""
        progress.expect("verify", sum(file.size_bytes for file in files.values()))
        found: dict[str, str] = {}
        for name, why, size_bytes in run_all(self._tasks(files), workers=self._workers):
            progress.advance(size_bytes)
            if why is not None:
                found.setdefault(name, why)
        return found

    def _tasks(self, files: Mapping[str, File]) -> Iterator[Callable[[], tuple[str, str | None, int]]]:
        for name, file in files.items():
            for index in range(part_count(file.size_bytes, self._part_size)):
                yield partial(self._part, name, file, index)

    def _part(self, name: str, file: File, index: int) -> tuple[str, str | None, int]:
        """(name, what is wrong, bytes read)."""
        start = index * self._part_size
        length = min(self._part_size, file.size_bytes - start)
        try:
            return name, self._look(object_key(name), file, index), length
        except NotFound:
            return name, MISSING, length
        except (StoreUnavailable, Corrupt) as error:
            self._still_up()
            return name, f"can't be read: {error}", length

    def _look(self, key: str, file: File, index: int) -> str | None:
        """The object's end is looked for where one read sees it, else asked for."""
        single = not file.parts
        if not single and index == 0:
            size_bytes = self._blobs.size(key)
            if size_bytes != file.size_bytes:
                return MISSING if size_bytes is None else _wrong_size(size_bytes, file)
        start = index * self._part_size
        length = min(self._part_size, file.size_bytes - start)
        right = file.digest if single else file.parts[index]
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
