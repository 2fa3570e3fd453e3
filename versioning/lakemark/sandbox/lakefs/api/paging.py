"""Pages of lists that are ordered by path or name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["MAX_PER_PAGE", "ListPage", "collect", "in_order", "pagination"]

MAX_PER_PAGE = 1000

_LAST_CHARACTER = "\U0010ffff"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListPage:
    """At most `amount` items after the name `after`, below `prefix`; `delimiter` folds what lies deeper."""

    amount: int
    after: str = ""
    prefix: str = ""
    delimiter: str = ""


def in_order(items: Sequence[T], name_of: Callable[[T], str]) -> Callable[[str], Iterator[T]]:
    """From a name to the items from there on; the items must be in order of their names."""
    names = [name_of(item) for item in items]
    return lambda start: iter(items[bisect_left(names, start) :])


def collect(
    seek: Callable[[str], Iterator[T]], name_of: Callable[[T], str], page: ListPage
) -> tuple[list[T | str], bool]:
    """The page's items, a folded prefix as text among them, and whether more would follow."""
    found: list[T | str] = []
    start: str | None = max(page.prefix, _start(page))
    while start is not None:
        start = _gather(seek(start), name_of, page, found)
    # One more than asked for was looked for: it tells whether another page follows.
    return found[: page.amount], len(found) > page.amount


def pagination(last: str, count: int, *, has_more: bool) -> dict[str, Any]:
    """The part of a list's answer that says where to go on; `last` is the name of the page's last item."""
    return {
        "has_more": has_more,
        "max_per_page": MAX_PER_PAGE,
        "next_offset": last if has_more else "",
        "results": count,
    }


def _start(page: ListPage) -> str:
    if not page.after:
        return ""
    # The page before ended with a folded prefix: everything below it was told by that.
    if page.delimiter and page.after.endswith(page.delimiter):
        return page.after + _LAST_CHARACTER
    # The very next name after it.
    return page.after + "\0"


def _gather(items: Iterator[T], name_of: Callable[[T], str], page: ListPage, found: list[T | str]) -> str | None:
    """Take items until the page is full; where a prefix was folded, give the name to go on from."""
    for item in items:
        name = name_of(item)
        if len(found) > page.amount or not name.startswith(page.prefix):
            return None
        folded = _folded(name, page)
        if folded is not None:
            found.append(folded)
            # All that lies below is passed over by seeking, not by reading it.
            return folded + _LAST_CHARACTER
        found.append(item)
    return None


def _folded(name: str, page: ListPage) -> str | None:
    position = name.find(page.delimiter, len(page.prefix)) if page.delimiter else -1
    return None if position < 0 else name[: position + len(page.delimiter)]
