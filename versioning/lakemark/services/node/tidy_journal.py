"""Tidy the journal: forget files that are proven to be gone, so that it grows with what lies there, not with what ever did."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Final

from lakemark.ports import Mark, MarkKind, Site

EVERY: Final = timedelta(days=1)
UNSEEN: Final = timedelta(days=90)
"""A file may be renamed: a look then comes upon it elsewhere. One that none came upon for so long lies where nobody looks."""
_AT_ONCE: Final = 1000
_TIDIED: Final = Mark(MarkKind.TIDIED)


def tidy_journal(site: Site) -> int:
    """Once a day, forgets files that no look came upon for 90 days and that are gone from where they lay; answers how many.

    That they are gone is told by the folder they lay in, on their own device: a disk that is away tells nothing. Looks
    for copies go by age alone: one that is forgotten is done again.
    """
    now = site.now()
    last = site.journal.marks.get(_TIDIED)
    if last is not None and timedelta(0) <= now - last < EVERY:
        return 0
    count = 0
    # In pieces: a node that ran for years knows millions of files.
    unseen = site.journal.unseen_files(now - UNSEEN)
    while files := list(islice(unseen, _AT_ONCE)):
        gone = [file for file in files if site.files.is_gone(file)]
        site.journal.forget_files(gone)
        site.progress.step("journal.forgotten")
        count += len(gone)
    site.journal.marks.forget(MarkKind.COPY, before=now - UNSEEN)
    # Noted last: a pass that broke off is done again.
    site.journal.marks.set(_TIDIED, at=now)
    return count
