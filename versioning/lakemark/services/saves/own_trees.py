"""What one commit made in hot while no entry claims it: its landing, then the trees that it named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from lakemark.errors import LakemarkError, NotFound
from lakemark.model.checkpoints.record import Record
from lakemark.model.values.canonical import JSON
from lakemark.ports import Checkpoint, Site
from lakemark.services.saves.accept import Taken
from lakemark.services.tiers.witness import read_back

WAITS: Final = "waits"
"""In a sealed tree's marker: somebody was told that the save is kept, and no entry says so yet."""


@dataclass(slots=True, kw_only=True)
class OwnTrees:
    """adopted: the record whose name the landed tree has; None before it has one.

    mine: ids of records whose trees this commit named, none standing there before: these alone are its to drop.
    left: those of them that came to no entry.
    """

    site: Site
    taken: Taken
    adopted: Record | None = None
    mine: set[str] = field(default_factory=set)
    left: list[Checkpoint] = field(default_factory=list)

    def adopt(self, record: Record, said: Mapping[str, JSON]) -> None:
        """Gives the landed tree the record's name, durably. said: kept in its marker, for whoever finishes what a crash left."""
        if self.adopted is None:
            wrong = _stands_wrong(self.site, self.taken.checkpoint(record))
            # What stood there, right or wrong, somebody may have been told of: it is not ours to take away.
            if self.site.hot.adopt(self.taken.landed, record, entry=said, instead=wrong) and not wrong:
                self.mine.add(record.id)
        elif self.adopted.id != record.id:
            self._rename(self.adopted, record, said)
        self.adopted = record

    def let_go(self) -> None:
        """Drops the landing. Of a named tree only notes that it is left: while trees are being named, others may count on it."""
        if self.adopted is None:
            self.site.hot.discard(self.taken.landed)
        elif self.adopted.id in self.mine:
            self.left.append(self.taken.checkpoint(self.adopted))

    def _rename(self, old: Record, new: Record, said: Mapping[str, JSON]) -> None:
        """The landing has become the tree of a record that it is not: its bytes are there, and nowhere else in hot."""
        source = self.taken.checkpoint(old)
        target = replace(self.taken.checkpoint(new), entry=said)
        if not self.site.hot.holds(target.record.id):
            self.mine.add(new.id)
        hot = self.site.hot
        hot.put(target, lambda file: hot.open(source, file), now=self.site.now(), progress=self.site.progress)
        self.let_go()


@contextmanager
def own_trees(site: Site, taken: Taken) -> Iterator[OwnTrees]:
    """Held from before a tree is named until an entry claims it. Whatever breaks off meanwhile leaves nothing of ours.

    Not where the process ends: then the next sweep finds a tree whose marker says what the entry would have said.
    """
    own = OwnTrees(site=site, taken=taken)
    try:
        with site.hot.naming():
            try:
                yield own
            except Exception:  # any: our own mistake, too, must leave no tree that nobody recorded
                with suppress(LakemarkError):  # the first error is what happened
                    own.let_go()
                raise
    except Exception:
        _drop_left(own)
        raise
    _drop_left(own)


def _drop_left(own: OwnTrees) -> None:
    """Drops trees that this very commit named and nobody recorded or was told of, if nobody names one just now.

    Else they stay: the next pass makes entries of them, or undoes them. Only after `naming`, which this commit held itself.
    """
    site = own.site
    for held in own.left:
        record = held.record
        # What can't be looked at now is settled by the next sweep; the save itself has come to its end, well or not.
        with suppress(LakemarkError), site.hot.settled() as settled:
            claimed = record.id in site.ledger.run(record.run).records or record.id in site.hot.recorded()
            if settled and not claimed and not _acknowledged(site, record):
                site.hot.drop(held, now=site.now())


def _stands_wrong(site: Site, held: Checkpoint) -> bool:
    """Whether hot has a tree of that name whose bytes are not the checkpoint's: nothing may be kept for its sake."""
    return site.hot.holds(held.record.id) and bool(read_back(site.hot, held, progress=site.progress).damages)


def _acknowledged(site: Site, record: Record) -> bool:
    """Whether what lies there waits for the ledger: its commit was acknowledged, and there is no entry to say so."""
    try:
        return bool(site.hot.load(record.id).entry.get(WAITS))
    except NotFound:
        return False
