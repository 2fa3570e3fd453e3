"""What tells whether a directory of saves has changed since it was looked through, without reading it again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from lakemark.model.values.names import is_log

NEWEST: Final = 8
"""Of so many known steps every file is looked at: a trainer that goes on from an earlier one writes over these first."""


class FileStamp(NamedTuple):
    """Of a directory or regular file; any change to it changes one of these, at the latest two seconds after it was seen.

    A directory's changes when a name in it comes, goes or changes, not when a file in it is written in place.
    """

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class Survey:
    """Directories and files by path, as text: all there are, or those `chosen` of them."""

    folders: Mapping[str, FileStamp]
    files: Mapping[str, FileStamp]

    def chosen(self, known: Collection[str], *, whole: Iterable[str] = ()) -> Self:
        """All directories, and the files that must be looked at one by one because they may be written in place.

        known: paths of saves that were looked at and need not be judged again. Of those that are directories named after a
        step, other than the newest, two files each stand for all: the largest and the one written last; a save that is made
        anew in its old place writes at least one of these. whole: directories of which every file is looked at even so.
        Logs outside saves are left out: they grow all the time.
        """
        steps = {path for path in known if path in self.folders and any(map(str.isdigit, path.rpartition("/")[2]))}
        # Also what lies around such a directory: a file in it could be written in place.
        steps -= {step for path in whole for step in (path, *_above(path))}
        # The newest by time of change: numbers go back where a trainer does.
        steps -= set(sorted(steps, key=lambda path: self.folders[path].mtime_ns, reverse=True)[:NEWEST])
        inside: dict[str, list[str]] = defaultdict(list)
        files: dict[str, FileStamp] = {}
        saves = {*known, *whole}
        for path, stamp in self.files.items():
            above = _above(path)
            if not steps.isdisjoint(above):
                inside[above[0]].append(path)
            # A log inside a save is a part of it and counts.
            elif path in saves or not saves.isdisjoint(above) or not is_log(path.rpartition("/")[2]):
                files[path] = stamp
        for paths in inside.values():
            for path in _standing(self.files, paths):
                files[path] = self.files[path]
        return type(self)(self.folders, files)

    def written_in_place(self, now: Survey) -> Iterator[str]:
        """Directories of which a file is another one `now` though no name in them came, went or changed."""
        for path, stamp in self.files.items():
            folder = path.rpartition("/")[0]
            # A file that is gone has changed its folder, which is told of elsewhere.
            if now.files.get(path, stamp) != stamp and now.folders.get(folder) == self.folders.get(folder):
                yield folder


def _above(path: str) -> list[str]:
    """The directories that `path` lies in, the nearest first."""
    found: list[str] = []
    while path := path.rpartition("/")[0]:
        found.append(path)
    return found


def _standing(files: Mapping[str, FileStamp], paths: Iterable[str]) -> set[str]:
    paths = list(paths)
    return {max(paths, key=lambda path: files[path].size_bytes), max(paths, key=lambda path: files[path].mtime_ns)}
