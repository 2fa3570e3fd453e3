"""A few objects spread over a commit that may hold millions, without listing it whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Final, TypeAlias, TypeVar

Object: TypeAlias = tuple[str, int]
"""(path, size_bytes)."""
Page: TypeAlias = Callable[[str, str, int], tuple[list[Object], bool]]
"""(prefix, after, amount) -> the objects behind `after` under `prefix`, in order, and whether more follow."""

_T = TypeVar("_T")
_WHOLE_PAGE: Final = 1000
_SHORT_PAGE: Final = 50
# Behind every path that begins alike: no character is higher.
_LAST: Final = "\U0010ffff"
_MOST_GROUPS: Final = 64
_REQUESTS_AT_LEAST: Final = 64
_REQUESTS_PER_SAMPLE: Final = 8


_DIGITS: Final = "0123456789"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_DEEP: Final = 3


def spread(page: Page, amount: int, *, chance: Random | None = None) -> list[Object]:
    """Up to `amount` objects, in order of path; all of them where there are no more.

    One page holds a small commit whole. A larger one is walked as a tree of common beginnings: where paths part, one
    request finds each next group, and the sample is shared out among the groups. Requests are bounded by `amount`
    alone, 64 + 9 * amount; when they are used up, what was found stands for the rest.
    chance: what chooses among objects that would do equally well; None: always the same ones.
    """
    return drawn(page, amount, chance=chance)[0]


def drawn(page: Page, amount: int, *, chance: Random | None = None) -> tuple[list[Object], int, bool]:
    """`spread`, how many objects the first page showed, and whether those are all."""
    if amount <= 0:
        return [], 0, False
    walk = _Walk(page, amount, chance)
    objects, more = walk.first(amount)
    return sorted(set(walk.among("", amount, objects, more=more))), len(objects), not more


def evenly(items: Sequence[_T], amount: int, *, chance: Random | None = None) -> list[_T]:
    """`amount` of `items`, in order, from as many equal stretches: the middle of each, or what `chance` says; all if no more."""
    if len(items) <= amount:
        return list(items)
    if chance is None:
        return [items[(2 * index + 1) * len(items) // (2 * amount)] for index in range(amount)]
    bounds = [index * len(items) // amount for index in range(amount + 1)]
    return [items[chance.randrange(start, end)] for start, end in pairwise(bounds)]


class _Walk:
    def __init__(self, page: Page, amount: int, chance: Random | None) -> None:
        self._page = page
        self._left = _REQUESTS_AT_LEAST + _REQUESTS_PER_SAMPLE * amount
        self._chance = chance

    def first(self, share: int) -> tuple[list[Object], bool]:
        return self._ask("", "", _WHOLE_PAGE if share > 1 else _SHORT_PAGE)

    def under(self, prefix: str, share: int) -> list[Object]:
        objects, more = self._ask(prefix, "", _WHOLE_PAGE if share > 1 else _SHORT_PAGE)
        return self.among(prefix, share, objects, more=more)

    def among(self, prefix: str, share: int, objects: list[Object], *, more: bool) -> list[Object]:
        """`share` of what lies under `prefix`, whose first page is `objects`."""
        if share == 1 and more and self._left > 0:
            objects = self._somewhere(prefix, objects)
        if not more or share == 1 or self._left <= 0:
            return evenly(objects, share, chance=self._chance)
        groups = list(self._groups(prefix, objects))
        if len(groups) >= share:
            chosen = evenly(groups, share, chance=self._chance)
            return [found for group in chosen for found in self.under(group, 1)]
        whole, rest = divmod(share, len(groups))
        return [
            found
            for index, group in enumerate(groups)
            for found in self.under(group, whole + (1 if index < rest else 0))
        ]

    def _somewhere(self, prefix: str, objects: list[Object]) -> list[Object]:
        """A page that begins at a place of chance under `prefix`; the first one where nothing lies behind that."""
        if self._chance is None:
            return objects
        seen = {letter for path, _ in objects for letter in path[len(prefix) : len(prefix) + _DEEP]}
        letters = _DIGITS if seen <= set(_DIGITS) else _DIGITS + _LETTERS
        place = "".join(self._chance.choice(letters) for _ in range(_DEEP))
        return self._ask(prefix, prefix + place, _SHORT_PAGE)[0] or objects

    def _groups(self, prefix: str, objects: list[Object]) -> Iterator[str]:
        """How paths under `prefix` begin, one character past the point where they part; at most 64, in order."""
        depth = self._parting(prefix, objects)
        path = next(path for path, _ in objects if len(path) > depth)
        for _ in range(_MOST_GROUPS):
            yield path[: depth + 1]
            if self._left <= 0:
                return
            objects, _more = self._ask(prefix, path[: depth + 1] + _LAST, 1)
            if not objects:
                return
            path = objects[0][0]

    def _parting(self, prefix: str, objects: list[Object]) -> int:
        """How many characters all paths under `prefix` have in common."""
        first, other = objects[0][0], objects[-1][0]
        while True:
            depth = _common(first, other)
            if depth <= len(prefix) or self._left <= 0:
                return depth
            beyond, _more = self._ask(prefix, first[:depth] + _LAST, 1)
            if not beyond:
                return depth
            other = beyond[0][0]

    def _ask(self, prefix: str, after: str, amount: int) -> tuple[list[Object], bool]:
        self._left -= 1
        return self._page(prefix, after, amount)


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    same = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        same += 1
    return same
