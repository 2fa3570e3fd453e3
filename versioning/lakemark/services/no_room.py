"""Whole saves that wait for room in hot: noted after each pass, so that `status` can tell without looking for them itself.

`<home>/waiting/<run>.json`:

    {"format": "lakemark.waiting/1",
     "saves": [{"path": "/train/out/step-300", "since": "…Z", "why": "…", "size_bytes": 5}]}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from lakemark.errors import LakemarkError, NoRoom
from lakemark.model.canonical import JSON
from lakemark.model.fields import Fields
from lakemark.model.instants import to_text
from lakemark.model.names import printable
from lakemark.ports import Site

FORMAT: Final = "lakemark.waiting/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSave:
    """One of them. since: when it was saved, as far as its files tell. size_bytes: what it needs; 0 where that is not known."""

    path: str
    since: datetime
    why: str
    size_bytes: int = 0

    @classmethod
    def read(cls, document: JSON) -> tuple[Self, ...]:
        """Of a note; raises ValueError."""
        read = Fields(document, "a note of waiting saves")
        read.format(FORMAT)
        rows = [Fields(item, "a waiting save") for item in read.items("saves")]
        return tuple(
            cls(
                path=row.text("path"),
                since=row.instant("since"),
                why=row.text("why"),
                size_bytes=row.integer("size_bytes", default=0),
            )
            for row in rows
        )


def place_of(home: Path, run: str) -> Path:
    """Where the note of a run lies."""
    return home / "waiting" / f"{run}.json"


def waiting_of(site: Site, failed: Iterable[tuple[Path, LakemarkError]]) -> dict[Path, WaitingSave]:
    """Of what could not be committed, that which only lacks room."""
    return {
        path: WaitingSave(
            path=printable(path), since=_since(site, path), why=str(error), size_bytes=_size_bytes(site, path)
        )
        for path, error in failed
        if isinstance(error, NoRoom)
    }


def keep_note(
    site: Site, run: str, waiting: Mapping[Path, WaitingSave], *, before: Collection[WaitingSave] | None
) -> None:
    """Writes the note of a run, unless `before` is what it says already; None: nobody knows what it says."""
    path = place_of(site.home, run)
    rows = _in_order(waiting.values())
    same = before is not None and rows == _in_order(before)
    if same or not (rows or site.workspace.exists(path)):
        return
    saves: list[JSON] = [
        {"path": one.path, "since": to_text(one.since), "why": one.why, "size_bytes": one.size_bytes} for one in rows
    ]
    site.workspace.save_json(path, {"format": FORMAT, "saves": saves})


def need_bytes(waiting: Iterable[WaitingSave]) -> int:
    """The most that one of them needs: what hot must have room for; 0 where none waits."""
    return max((one.size_bytes for one in waiting), default=0)


def _size_bytes(site: Site, path: Path) -> int:
    try:
        return sum(one.file.size_bytes for one in site.workspace.files(path, site.recogniser.judge(path).members))
    except LakemarkError:
        return 0


def _in_order(rows: Iterable[WaitingSave]) -> list[WaitingSave]:
    return sorted(rows, key=lambda one: (one.since, one.path))


def _since(site: Site, path: Path) -> datetime:
    written = None if site.simulated_clock else site.workspace.last_change([path])
    return site.now() if written is None else min(written, site.now())
