"""What a DVC tier needs of the place its objects lie in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import BinaryIO, Final, Protocol, Self

from lakemark.adapters.disk.digests import Readable
from lakemark.errors import StoreUnavailable, quoted
from lakemark.ports.store import Expiry, TierUsage

ANSWER_SECONDS: Final = 20.0
"""How long a store may take over a removal that was sent in time; later it is taken for one that does not come any more."""


class TooLate(StoreUnavailable):
    """A removal was not sent, because what was looked at for it may have changed."""

    @property
    def kind(self) -> str:
        return StoreUnavailable.__name__


class TooSlow(StoreUnavailable):
    """Given up because too little moved for too long: asking again at once would only double the wait."""

    @property
    def kind(self) -> str:
        return StoreUnavailable.__name__


@dataclass(frozen=True, slots=True)
class Names:
    """Keys under a prefix and their sizes in bytes, in order. complete: the end of the listing was reached."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    complete: bool = True

    @classmethod
    def of(cls, found: Iterable[tuple[str, int]], *, limit: int | None) -> Self:
        """What `Blobs.each` found; not complete where there is more than `limit`."""
        # One more than the limit tells whether there are more.
        sizes = dict(islice(found, None if limit is None else limit + 1))
        complete = limit is None or len(sizes) <= limit
        return cls(dict(islice(sorted(sizes.items()), limit)), complete=complete)

    def require_all(self, where: str) -> Mapping[str, int]:
        """The sizes. Raises StoreUnavailable where the end of the listing was not reached."""
        if not self.complete:
            raise StoreUnavailable(f"{quoted(where)} did not list its names to the end", advice="Try again.")
        return self.sizes


class Blobs(Protocol):
    """Named bytes in one exclusive place. What returned is durable, as far as the store itself is.

    Raises StoreUnavailable, Denied, Refused (full), Misconfigured; never NotFound but from `open`.
    """

    @property
    def kind(self) -> str:
        """The tier's kind: directory or s3."""

    @property
    def where(self) -> str:
        """For messages."""

    def prepare(self) -> None:
        """Makes the place, where that is ours to do."""

    def get(self, key: str) -> bytes | None:
        """A small object's bytes; None where it is not there."""

    def size(self, key: str) -> int | None:
        """In bytes; None where it is not there."""

    def absent(self, key: str) -> bool:
        """Whether the place's own list of names says that the key is not there. Nothing is removed on less.

        A `get` or `size` that finds nothing may have met a gateway's 404, or a mount point without its disk. Raises
        StoreUnavailable where the place tells nothing.
        """

    def create(self, key: str, data: bytes) -> bool:
        """False, and nothing changed, where the key exists. After a lost answer also False: read it back."""

    def replace(self, key: str, data: bytes) -> None: ...

    def write(self, key: str, stream: Readable, size_bytes: int, *, overwrite: bool) -> bool:
        """As `create` for any size, unless `overwrite`. Reads `stream` to its end before the object can be seen."""

    def takes_all_workers(self, size_bytes: int) -> bool:
        """Whether one `write` of that size is spread over several connections."""

    def open(self, key: str, *, start: int = 0, length: int | None = None) -> BinaryIO:
        """From `start`; the reader takes no more than `length` bytes. Raises NotFound."""

    def delete(self, key: str, *, unless_late: Callable[[], None] | None = None) -> None:
        """A no-op where it is not there.

        unless_late: called last before each try, after everything that may take time; what it raises comes out, and that
        try is not made.
        """

    def require_no_removal(self) -> None:
        """Raises StoreUnavailable where a `delete` with `unless_late` was let through and has not ended, as far as is known."""

    def list(self, prefix: str, *, limit: int | None = None) -> Names: ...

    def each(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Keys under a prefix and their sizes in bytes, in any order: for more than fit in memory. It ends, or it raises."""

    def tidy(self) -> int:
        """Removes what dead writers left unfinished; answers how many."""

    def space(self) -> TierUsage:
        """Without used_bytes."""

    def takes_wrong_checksum(self, key: str) -> bool:
        """Whether the store accepts bytes whose stated checksum is another's; `key` is written and removed to see."""

    def expires(self) -> Expiry | None:
        """As `TierPlace.expires`."""

    def clock(self, key: str) -> datetime | None:
        """The store's time, told with an answer about `key`, which exists; None where it is this machine's."""
