"""What trainers announced, and of which bytes: a path may have been written over since, or may not have been written yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lakemark.errors import LakemarkError
from lakemark.model.values.names import is_log
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One save, as all announcements of it together tell. others: whose words are in `spooled`, or not taken, as notes say."""

    spooled: Spooled
    others: tuple[Spooled, ...] = ()
    notes: tuple[str, ...] = ()


def together(last: Iterable[Spooled], overtaken: Iterable[Spooled]) -> tuple[list[Told], list[Spooled]]:
    """What `newest` answered, with those of one save together; and of the overtaken ones those that were of other files."""
    told = {one.path: Told(spooled=one) for one in last}
    others: list[Spooled] = []
    for one in reversed(list(overtaken)):
        by = told[one.path]
        if one.step == by.spooled.step and _same_files(one, by.spooled):
            told[one.path] = _with(by, one)
        else:
            others.append(one)
    return list(told.values()), others[::-1]


def _same_files(one: Spooled, by: Spooled) -> bool:
    """As far as both tell. Logs grow on, and whoever announces again may have added files."""
    now = by.identity or {}
    return all(now.get(path, mark) == mark or is_log(path) for path, mark in (one.identity or {}).items())


def _with(by: Told, earlier: Spooled) -> Told:
    """`by` and an earlier announcement of the same save. Of what both say its own word counts."""
    spooled = by.spooled
    if earlier.attempt != spooled.attempt:
        # Nobody can announce files before they are there: the first one's process made them.
        note = f"attempt {spooled.attempt} announced it, too; that is not taken, as attempt {earlier.attempt} saved it"
        return Told(spooled=earlier, others=(*by.others, spooled), notes=(*by.notes, note))
    other = [name for name, value in earlier.metrics.items() if spooled.metrics.get(name, value) != value]
    said = [f"{name} was announced as {earlier.metrics[name]:g}, then as {spooled.metrics[name]:g}" for name in other]
    both = replace(
        spooled,
        metrics={**earlier.metrics, **spooled.metrics},
        roles={**earlier.roles, **spooled.roles},
        present=tuple(sorted({*earlier.present, *spooled.present})),
        code=spooled.code or earlier.code,
    )
    return Told(spooled=both, others=(*by.others, earlier), notes=(*by.notes, *said))


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
