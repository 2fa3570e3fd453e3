"""Bounded work: a few threads, a few buffers that are made once and used again."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from queue import LifoQueue
from typing import TypeVar

T = TypeVar("T")


class Buffers:
    """At most `count` page-aligned buffers of `size_bytes`, made on first use. `take` waits for a free one."""

    def __init__(self, count: int, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        # The one used last comes first: touching fresh memory is several times slower than memory that was touched before.
        self._free: LifoQueue[memoryview | None] = LifoQueue()
        for _ in range(count):
            self._free.put(None)

    @contextmanager
    def take(self) -> Iterator[memoryview]:
        buffer = self.acquire()
        try:
            yield buffer
        finally:
            self.release(buffer)

    def acquire(self) -> memoryview:
        buffer = self._free.get()
        # A mapping begins at a page, as direct writes need it; bytes of Python's own need not.
        return memoryview(mmap.mmap(-1, self.size_bytes)) if buffer is None else buffer

    def release(self, buffer: memoryview) -> None:
        self._free.put(buffer)


def run_all(tasks: Iterable[Callable[[], T]], *, workers: int) -> Iterator[T]:
    """Results of `tasks` as they come; at most `workers` run, `tasks` is drawn from only as far as needed.

    The first exception stops everything: it is raised once the tasks that were running have ended.
    """
    with ThreadPoolExecutor(workers, thread_name_prefix="lakemark") as pool:
        running: set[Future[T]] = set()
        try:
            for task in tasks:
                running.add(pool.submit(task))
                # The next task is drawn only once there is a worker for it: drawing may take a buffer, or open a file.
                if len(running) >= workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
