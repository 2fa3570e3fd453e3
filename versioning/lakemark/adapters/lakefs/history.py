"""What a branch's own commits tell: where it was at a time, and whether anybody edited them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from lakemark.model.values.data_ids import commit_id
from lakemark.ports.data import DataCommit, HeadAt

LONGEST_WALK: Final = 20_000
LONGEST_BEYOND: Final = 1_000
_LISTED: Final = 3


def head_at(history: Iterable[DataCommit], at: datetime) -> HeadAt:
    """The head at `at` by `history`, which is first parents, newest first, from the head now.

    Dates in commits are whole seconds and may be invented, so a commit counts from the latest date of itself and all
    its ancestors on: the answer is the newest commit with no date after `at` in its ancestry. Of that ancestry
    LONGEST_BEYOND commits are looked at, and LONGEST_WALK in all; where there are more, the answer says so.
    """
    at = at.astimezone(UTC)
    found: DataCommit | None = None
    same_second: list[str] = []
    looked_at, beyond, ordered, younger = 0, 0, True, None
    more = False
    for commit in history:
        if looked_at >= LONGEST_WALK or beyond > LONGEST_BEYOND:
            more = True
            break
        looked_at += 1
        ordered = ordered and (younger is None or commit.created_at <= younger)
        younger = commit.created_at
        if commit.created_at > at:
            found, same_second, beyond = None, [], 0
            continue
        beyond += 1
        if found is None:
            found = commit
        elif commit.created_at == found.created_at:
            same_second.append(commit.id[:12])
    notes = ["estimated: by first parents and the dates in their commits, ±1 s"]
    if found is None:
        notes.append("all of them are later")
    elif same_second and found.created_at == at.replace(microsecond=0):
        notes.append(f"{_some(same_second)} in the same second")
    if not ordered:
        notes.append("their dates are out of order")
    if more:
        notes.append(f"only the newest {looked_at} were looked at")
    notes.append("a reset or a branch that was made anew would not show")
    return HeadAt(commit=None if found is None else found.id, precision="; ".join(notes))


def altered(history: Iterable[DataCommit]) -> tuple[str, ...]:
    """Ids that are not those of their commit's fields."""
    return tuple(commit.id for commit in history if commit.id != derived(commit))


def derived(commit: DataCommit) -> str:
    """The id that follows from the commit's fields."""
    return commit_id(
        committer=commit.committer,
        message=commit.message,
        meta_range=commit.meta_range,
        created_s=round(commit.created_at.timestamp()),
        metadata=commit.metadata,
        parents=commit.parents,
    )


def _some(ids: list[str]) -> str:
    more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    return f"{', '.join(ids[:_LISTED])}{more}"
