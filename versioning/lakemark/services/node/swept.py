"""What a pass did, part by part: one part's trouble is said, and keeps no other from its turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lakemark.errors import LakemarkError
from lakemark.model.tiers.residence import Move, Release
from lakemark.ports import Site
from lakemark.services.saves.abandoned import Abandoned
from lakemark.services.saves.commit import Committed
from lakemark.services.tiers.demote import Pending
from lakemark.services.whose import Left


@dataclass(slots=True, kw_only=True)
class Swept:
    """said: what was finished, undone, observed or pinned, a sentence each. abandoned: nobody goes on with it.

    unreadable: directories that were passed over, with why. passed_over: (path, record) of what was known and not read.
    left: whole saves that are not taken because of whose they are.
    ended: parts that ended, whatever they found. need_bytes: of the largest save that waits for room in hot.
    data_as_it_was: data versions were looked at, and nothing was to be done about them.
    unclaimed: records that named trees of hot are of, and that had no entry: a crash fell in between, or a commit is under way.
    """

    data_as_it_was: bool = False
    committed: list[Committed] = field(default_factory=list)
    replicated: list[Move] = field(default_factory=list)
    released: list[Release] = field(default_factory=list)
    thinned: list[str] = field(default_factory=list)
    incomplete: list[tuple[Path, str]] = field(default_factory=list)
    abandoned: list[Abandoned] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    passed_over: list[tuple[Path, str]] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    unclaimed: frozenset[str] = frozenset()
    ended: set[str] = field(default_factory=set)
    need_bytes: int = 0


def part(result: Swept, what: str, work: Callable[[], object]) -> None:
    """One part's trouble is said, and keeps no other from its turn."""
    try:
        work()
    except LakemarkError as error:
        result.pending.append(Pending.of(what, error))
    else:
        result.ended.add(what)


def in_lanes(site: Site, result: Swept, parts: Mapping[str, Callable[[], list[str]]]) -> None:
    """Parts that wait for a tier each, side by side; what they say is said in order."""

    def tried(what: str, work: Callable[[], list[str]]) -> Swept:
        found = Swept()
        part(found, what, lambda: found.said.extend(work()))
        return found

    for found in site.at_once([partial(tried, what, work) for what, work in parts.items()]):
        result.said += found.said
        result.pending += found.pending
        result.ended |= found.ended
