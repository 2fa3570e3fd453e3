"""What trainers announced, and of which bytes: a path may have been written over since, or may not have been written yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from lakemark.errors import LakemarkError
from lakemark.ports import Site, Spooled
from lakemark.services.ledger import announced
from lakemark.services.saves.to_commit import Commit


def told(site: Site, asked: Commit) -> Commit:
    """With what the trainer said of this very save, where it did: that is better than any guess, also of its step."""
    if asked.spooled is not None:
        return asked
    here = [
        one for one in announced(site, asked.run) if one.path == asked.path and (asked.found or one.step == asked.step)
    ]
    why = {one.file: written_over(site, one) for one in here}
    spooled, _ = newest((one for one in here if why[one.file] is None), why=why)
    if spooled:
        return replace(asked, spooled=spooled[0], step=spooled[0].step)
    notes = (
        () if asked.found else tuple(f"step {asked.step} was announced of other files ({one})" for one in why.values())
    )
    return replace(asked, notes=(*asked.notes, *notes))


def newest(found: Iterable[Spooled], *, why: Mapping[Path, str | None]) -> tuple[list[Spooled], list[Spooled]]:
    """The last announcement of each path, in order of step, and the earlier ones, which spoke of what was overwritten.

    One of another step and the very same files came before its own were written: it is neither, and waits for them.
    why: of each spool file, what `written_over` answered. One whose files lie there is the last: a clock may have gone back.
    """
    last: dict[object, Spooled] = {}
    overtaken: list[Spooled] = []
    for one in sorted(found, key=lambda one: (bool(one.identity) and why[one.file] is None, one.saved_at)):
        other = last.get(one.path)
        # Two steps of the very same files: the later was announced before it was written.
        if other is not None and other.identity and other.identity == one.identity and other.step != one.step:
            continue
        if other is not None:
            overtaken.append(other)
        last[one.path] = one
    return sorted(last.values(), key=lambda one: one.step), overtaken


def written_over(site: Site, spooled: Spooled) -> str | None:
    """Why what lies there now is not what was announced; None where it is, as far as that was said and can be told."""
    if not spooled.identity:
        return None
    try:
        members = () if site.files.exists(spooled.path) else site.recogniser.judge(spooled.path).members
        return spooled.written_over(site.files.regular(spooled.path, members))
    # What can't be looked at is not said to be another's: it is found out when it is taken.
    except LakemarkError:
        return None
