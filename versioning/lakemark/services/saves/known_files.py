"""Known files: which records those on this node's disk are of, by what it remembers, and by their bytes where that is in doubt.

A file whose ctime moved on since its bytes were read may have been written in place, its size and times set back: it is read
whole, once for each such change. Names and links that come and go change ctime, too; where nothing changed, nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lakemark.errors import LakemarkError
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.ports import KnownFile, Site


def records_of(site: Site, paths: Iterable[Path]) -> tuple[str, ...] | None:
    """Of each regular file at or under `paths` the record it is of; None where there is none, or one is not known.

    Raises NotFound, Denied.
    """
    files = [file for path in paths for file in site.files.identities(path)]
    if not are_known(site, files):
        return None
    return tuple(site.journal.known(file) or "" for file in files)


def are_known(site: Site, files: Sequence[KnownFile]) -> bool:
    """Whether there are any, and every one is of a record. Those in doubt are read, if all others are known."""
    if not files:
        return False
    if site.journal.all_known(files, at=site.now()):
        return True
    doubtful = site.journal.doubtful(files)
    others = set(files) - set(doubtful)
    if not doubtful or not site.journal.all_known(others):
        return False
    # Reading a checkpoint takes minutes; it is worth it only where all the rest is known already.
    for file in doubtful:
        read = _read(site, file)
        if read is None:
            return False
        site.journal.confirm(read)
    return site.journal.all_known(files)


def remember_as(site: Site, path: Path, manifest: Manifest, *, record: str, why: str) -> None:
    """Remembers the regular files at or under `path`, which hold what `manifest` says; links are not followed."""
    if not site.files.identities(path):
        return
    digests = {file.path: file.digest or "" for file in manifest.regular}
    files = [replace(one.file, digest=digests.get(one.path, "")) for one in site.files.regular(path)]
    site.journal.remember(files, record=record, why=why)


def _read(site: Site, file: KnownFile) -> KnownFile | None:
    """With its digest; None where it can't be read, or is changed meanwhile."""
    place = Path(file.place)
    try:
        digest = site.files.digest(place)
        now = site.files.identities(place)
    except LakemarkError:
        return None
    # Looked at again after reading: bytes that changed meanwhile prove nothing.
    if [(one, one.ctime_ns) for one in now] != [(file, file.ctime_ns)]:
        return None
    return replace(file, digest=digest)
