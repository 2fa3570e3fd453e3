"""Copies that a trainer keeps beside its steps: `last.ckpt`, `checkpoint_best.pt`, an export of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Final

from lakemark.model.checkpoints.judging import STATE
from lakemark.model.checkpoints.manifest import Manifest, Role
from lakemark.model.checkpoints.record import Record
from lakemark.ports import Found, Mark, MarkKind, OnDisk, Site

_NEWEST: Final = 1000


@dataclass(slots=True)
class Copies:
    """Tells finds without a step that are copies of committed files, by size first and by their bytes then.

    A file is read once: the journal keeps its digest. Of the run's records the newest thousand are compared with, each
    find once with each.
    """

    site: Site
    run: str

    def is_one(self, found: Found) -> bool:
        """Whether all files of training state in it are files of the run's records; then all of it is known from now on.

        Raises NotFound, Denied (its files), Corrupt (a record's manifest).
        """
        files = self.site.files.regular(found.path, found.members)
        wanted = [one for one in files if str(found.roles.get(one.path, "")) in STATE]
        wanted = wanted or (list(files) if len(files) == 1 else [])
        if not wanted:
            return False
        record = self._holder(found, wanted)
        if record is None:
            return False
        read = [replace(one.file, digest=self._digest(found, one)) for one in files]
        self.site.journal.remember(read, record=record, why="copy")
        return True

    def _holder(self, found: Found, wanted: list[OnDisk]) -> str | None:
        """The newest record of which all of it are files."""
        mark = Mark(MarkKind.COPY, f"{self.run}:" + ":".join(_name(one) for one in wanted[:8]))
        now = self.site.now()
        largest = max(one.file.size_bytes for one in wanted)
        for record in self._unseen(self.site.journal.marks.get(mark)):
            # By size first, as that needs no reading: neither of the manifest nor of the file.
            if record.size_bytes < largest:
                continue
            here = _digests(self.site.ledger.manifest(self.run, record.id))
            if all(one.file.size_bytes in here for one in wanted) and all(
                self._digest(found, one) in here[one.file.size_bytes] for one in wanted
            ):
                return record.id
        # The instant from before the look: a record that came while it lasted is compared with next time.
        self.site.journal.marks.set(mark, at=now)
        return None

    def _unseen(self, since: datetime | None) -> Iterator[Record]:
        """The newest records, of those that came after `since`."""
        rows = sorted(self.site.ledger.run(self.run).records.values(), key=lambda row: row.sequence, reverse=True)
        fresh = (row.record for row in rows if row.pruned is None and (since is None or row.recorded_at >= since))
        yield from islice(fresh, _NEWEST)

    def _digest(self, found: Found, one: OnDisk) -> str:
        digest = self.site.journal.digest(one.file)
        if digest is None:
            base = found.path.parent if found.members or one.path == found.path.name else found.path
            digest = self.site.files.digest(base / one.path)
            # By what a file is known by: what was read once is not read at each pass.
            self.site.journal.note_digest(one.file, digest)
        return digest


def _name(one: OnDisk) -> str:
    file = one.file
    return f"{file.device}.{file.inode}.{file.size_bytes}.{file.mtime_ns}.{file.ctime_ns}"


def _digests(manifest: Manifest) -> dict[int, set[str]]:
    digests: dict[int, set[str]] = {}
    for file in manifest.regular:
        if file.digest is not None and file.role != Role.CONFIG:
            digests.setdefault(file.size_bytes, set()).add(file.digest)
    return digests
