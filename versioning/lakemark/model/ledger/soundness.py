"""Whether a ledger may be acted on: does it hold every entry that somebody is known to have seen?

A ledger that was restored from a backup, that lost a branch, or that is one of two living copies looks like any other from
inside. What tells is outside: tips that this node, a tier's copy of the ledger or a sealed tree has seen. A ledger holds a
tip when it is equal to or an ancestor of its branch's tip; one that it does not hold is evidence of entries it lacks. Being
ahead of what is known is the normal state, and so is a tip that was replaced by a descendant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

HERE: Final = "this node"
"""The source of what this node itself appended or saw in its ledger."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """That `source` knows the entry `revision` of `branch` (a run's name, or `site`)."""

    source: str
    branch: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """An entry that the ledger does not hold, and who knows it. tip: of the branch as the ledger has it; None: no such branch."""

    branch: str
    revision: str
    sources: tuple[str, ...]
    tip: str | None

    @property
    def why(self) -> str:
        """In words."""
        has = "has no such branch" if self.tip is None else f"is at {self.tip[:12]}"
        known = " and ".join(self.sources)
        # A source that knows no revision says in words what it has seen.
        what = self.revision if " " in self.revision else f"entry {self.revision}"
        return f"{self.branch}: {known} knows {what[:23]}, which this ledger lacks (it {has})"


def lacks(seen: Iterable[Seen], tips: Mapping[str, str], *, holds: Callable[[str, str], bool]) -> tuple[Lack, ...]:
    """What was seen and the ledger does not hold, in order of branch; empty: it is sound.

    tips: branch -> revision, as they are after `seen` was read: a ledger only grows, so the other order would cry wolf.
    holds: whether a branch's tip is a revision or a descendant of it; asked only where the tip is another.
    """
    missing: dict[tuple[str, str], list[str]] = {}
    for one in seen:
        tip = tips.get(one.branch)
        # Most often it is the very tip: Git is asked for ancestry only where it is not.
        if tip == one.revision or (tip is not None and holds(one.branch, one.revision)):
            continue
        missing.setdefault((one.branch, one.revision), []).append(one.source)
    return tuple(
        Lack(branch=branch, revision=revision, sources=tuple(dict.fromkeys(sources)), tip=tips.get(branch))
        for (branch, revision), sources in sorted(missing.items())
    )


def in_words(found: Iterable[Lack]) -> str:
    """One line for a person."""
    every = [one.why for one in found]
    more = f"; and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return "the ledger is in distress: " + "; ".join(every[:_SHOWN]) + more
