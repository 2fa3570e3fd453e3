"""Un-share: before another process may overwrite its files, a linked replica that is the only copy becomes a real one."""

from __future__ import annotations

from lakemark.errors import Corrupt
from lakemark.model.ledger import RunState
from lakemark.ports import Site
from lakemark.services.appending import checkpoint
from lakemark.services.sources import note_damage
from lakemark.services.witness import read_back


def unshare(site: Site, state: RunState) -> None:
    """Copies the linked files of every record of the run that has no other sound replica; what changed is noted instead.

    Raises NoRoom where the disk has none for it: then no process should start yet.
    """
    for found in state.records.values():
        here = found.replicas.get(site.hot.place)
        if here is None or not here.linked or here.suspect:
            continue
        if sum(replica.sound for replica in found.replicas.values()) == 1:
            held = checkpoint(site, found)
            try:
                site.hot.unshare(held, progress=site.progress)
            except Corrupt:
                # One reading is no proof: what it is, two that agree tell.
                note_damage(site, found, here.place, read_back(site.hot, held, progress=site.progress).damages)
            site.progress.step("attempt.unshared")
