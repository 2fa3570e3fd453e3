"""The ledger in memory: what is appended is kept as the bytes a real one writes, and read back from them."""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from threading import RLock
from typing import Any, BinaryIO, Protocol, Self, TypeVar, cast

from lakemark.errors import Corrupt, NotFound
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.entries.fold import apply, apply_site
from lakemark.model.entries.table import settled
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import SITE, Attachments, Draft, Entry, Stamp, parsed
from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.requests import Requests
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState
from lakemark.model.values.canonical import JSON, canonical, digest, parse
from lakemark.model.values.outside import node_name
from lakemark.ports.ledger import Appended, BrokenEntry


@dataclass(frozen=True, slots=True)
class _Row:
    revision: str
    entry: bytes
    record: bytes | None
    manifest: bytes | None
    objects: Mapping[str, str] | None
    parents: tuple[str, ...] = ()

    def read(self) -> tuple[Entry, Attachments]:
        entry, contents = parsed(self.entry, self.record)
        manifest = None if self.manifest is None else Manifest.from_json(parse(self.manifest))
        return entry, replace(contents, manifest=manifest, objects=self.objects)

    def as_json(self) -> JSON:
        texts = [None if one is None else one.decode() for one in (self.entry, self.record, self.manifest)]
        return [self.revision, *texts, None if self.objects is None else dict(self.objects), list(self.parents)]

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        revision, entry, record, manifest, objects, parents = cast("list[Any]", value)
        record, manifest = (None if one is None else one.encode() for one in (record, manifest))
        return cls(revision, entry.encode(), record, manifest, objects, tuple(parents))


class _Snapshots(Protocol):
    """What folds entries and can be copied."""

    requests: Requests

    def snapshot(self) -> Self: ...


_S = TypeVar("_S", bound=_Snapshots)


class MemoryLedger:
    """Any number of threads. Entries can only be added; what is read is made anew from the bytes of each."""

    def __init__(self, identity: str | None = None) -> None:
        self._id = identity or secrets.token_hex(16)
        self._rows: dict[str, list[_Row]] = {}
        self._all: dict[str, _Row] = {}
        self._runs: dict[str, RunState] = {}
        self._outlines: dict[str, tuple[str | None, Outline]] = {}
        self._site = SiteState()
        self._beats: dict[str, bytes] = {}
        self._manifests: dict[tuple[str, str], Manifest] = {}
        self._objects: dict[tuple[str, str, str], Mapping[str, str]] = {}
        self._damaged: set[tuple[str, str]] = set()
        self._lock = RLock()

    @property
    def id(self) -> str:
        return self._site.id or self._id

    def beat(self, node: str, change: Callable[[Heartbeat | None], Heartbeat]) -> Heartbeat:
        with self._lock:
            last = self._beats.get(node_name(node))
            new = change(None if last is None else Heartbeat.from_json(parse(last)))
            self._beats[node] = canonical(new.as_json())
            return new

    def heartbeats(self) -> Mapping[str, Heartbeat]:
        with self._lock:
            return {node: Heartbeat.from_json(parse(said)) for node, said in self._beats.items()}

    def tips(self) -> Mapping[str, str]:
        with self._lock:
            return {branch: rows[-1].revision for branch, rows in sorted(self._rows.items())}

    def tip(self, branch: str) -> str | None:
        return self.tips().get(branch)

    def contains(self, branch: str, revision: str) -> bool:
        with self._lock:
            tip = self.tip(branch)
            return tip is not None and revision in self._history(tip)

    def heads_of(self, copy: BinaryIO) -> Mapping[str, str]:
        return _unbundled(copy)[0]

    def needs_of(self, copy: BinaryIO) -> tuple[str, ...]:
        rows = _unbundled(copy)[1]
        known = {row.revision for row in rows}
        return tuple(sorted({parent for row in rows for parent in row.parents} - known))

    def reads_whole(self, copy: BinaryIO) -> bool:
        return _is_whole(copy.read())

    def take(self, copy: BinaryIO) -> Mapping[str, str]:
        tips, rows = _unbundled(copy)
        with self._lock:
            known = self._all.keys() | {row.revision for row in rows}
            if not known.issuperset(parent for row in rows for parent in row.parents):
                raise Corrupt("this copy goes on from another, which is not here", advice="Try another copy.")
            self._all.update((row.revision, row) for row in rows)
        return tips

    def forward(self, branch: str, revision: str) -> bool:
        with self._lock:
            tip = self.tip(branch)
            if revision not in self._all or (tip is not None and tip not in self._history(revision)):
                return False
            self._move(branch, list(self._chain(revision)))
            return True

    def beyond(self, branch: str, revision: str) -> Iterator[tuple[Entry, Attachments]]:
        with self._lock:
            tip = self.tip(branch)
            held = set() if tip is None else self._history(tip)
            rows = [row for row in self._chain(revision) if row.revision not in held]
        for row in rows:
            yield row.read()

    def damage(self, run: str, record: str) -> None:
        """Of the manifest nothing is left that can be read."""
        self._damaged.add((run, record))

    def put_manifest(self, run: str, record: str, manifest: Manifest) -> bool:
        if self._manifests.get((run, record)) != manifest:
            return False
        self._damaged.discard((run, record))
        return True

    def is_whole(self) -> bool:
        return True

    def broken(self, branch: str, *, after: int, limit: int) -> tuple[BrokenEntry, ...]:
        if not any(run == branch for run, _ in self._damaged):
            return ()
        with self._lock:
            rows = [row.read() for row in self._rows.get(branch, [])[after : after + limit]]
        return tuple(
            BrokenEntry(
                branch=branch, sequence=entry.sequence, file="manifest.json", why="damaged", record=entry.record
            )
            for entry, contents in rows
            if contents.manifest is not None and (branch, entry.record) in self._damaged
        )

    def broken_branches(self) -> Mapping[str, str]:
        return {}

    def set_aside(self, branch: str, revision: str) -> bool:
        return False

    def runs(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._runs))

    def run(self, run: str) -> RunState:
        with self._lock:
            found = self._runs.get(run)
            return RunState(run=run) if found is None else found.snapshot()

    def outline(self, run: str) -> Outline:
        with self._lock:
            tip, known = self.tips().get(run), self._outlines.get(run)
            if known is None or known[0] != tip:
                known = self._outlines[run] = tip, Outline.of(self.run(run))
            return known[1]

    def site(self) -> SiteState:
        with self._lock:
            return self._site.snapshot()

    def entries(self, branch: str, *, after: int = 0) -> Iterator[tuple[Entry, Attachments]]:
        with self._lock:
            rows = self._rows.get(branch, [])[after:]
        for row in rows:
            yield row.read()

    def manifest(self, run: str, record: str) -> Manifest:
        found = self._manifests.get((run, record))
        if (run, record) in self._damaged:
            raise Corrupt(f"the manifest of {record[:12]} can't be read", advice="lakemark verify --invariants")
        if found is None:
            raise NotFound(f"{run} has no manifest of {record[:12]}", advice=f"See `lakemark ls {run}`.")
        return found

    def objects(self, run: str, record: str, tier: str) -> Mapping[str, str]:
        return dict(self._objects.get((run, record, tier), {}))

    def append(self, run: str, decide: Callable[[RunState], Draft | None], stamp: Stamp) -> Appended[RunState]:
        with self._lock:
            state = self._runs.get(run) or RunState(run=run)
            entry = self._append(run, state, decide, stamp)
            if entry is not None and entry.sequence > state.sequence:
                apply(state, *self._rows[run][-1].read())
                self._runs[run] = state
            return Appended(entry, state.snapshot())

    def append_site(self, decide: Callable[[SiteState], Draft | None], stamp: Stamp) -> Appended[SiteState]:
        with self._lock:
            entry = self._append(SITE, self._site, decide, stamp)
            if entry is not None and entry.sequence > self._site.sequence:
                apply_site(self._site, *self._rows[SITE][-1].read())
            return Appended(entry, self._site.snapshot())

    def revision(self, branch: str, sequence: int) -> str:
        rows = self._rows.get(branch, [])
        if not 0 < sequence <= len(rows):
            raise NotFound(f"{branch} has no entry {sequence}", advice=f"It has {len(rows)}.")
        return rows[sequence - 1].revision

    @contextmanager
    def bundle(self, *, since: Collection[str] = ()) -> Iterator[BinaryIO]:
        """All entries that a branch reaches and `since` does not, and the tips."""
        if self._damaged:
            raise Corrupt("an object of the ledger can't be read", advice="lakemark verify --invariants")
        with self._lock:
            tips = dict(self.tips())
            reached = {revision for tip in tips.values() for revision in self._history(tip)}
            left_out = {revision for one in since for revision in self._history(one)}
            tips = {branch: tip for branch, tip in tips.items() if tip not in left_out}
            rows = [self._all[revision].as_json() for revision in sorted(reached - left_out)]
        yield io.BytesIO(canonical({"tips": tips, "rows": rows, "digest": digest({"tips": tips, "rows": rows})}))

    def backup(self) -> Self:
        """A copy as of now, under the same id: what a backup would bring back, or a copied folder."""
        made = type(self)(self._id)
        with self.bundle() as copy:
            for branch, tip in made.take(copy).items():
                made.forward(branch, tip)
        return made

    def lose(self, branch: str) -> None:
        """The loss of one branch's reference; what it named is still there."""
        with self._lock:
            self._rows.pop(branch, None)
            self._runs.pop(branch, None)
            if branch == SITE:
                self._site = SiteState()

    def _chain(self, revision: str) -> Iterator[_Row]:
        """By first parents, the oldest first."""
        found: list[_Row] = []
        at: str | None = revision
        while at is not None:
            row = self._all.get(at)
            if row is None:
                raise Corrupt(f"the ledger lacks the entry {at[:12]}", advice="lakemark ledger recover")
            found.append(row)
            at = row.parents[0] if row.parents else None
        return reversed(found)

    def _history(self, revision: str) -> set[str]:
        seen: set[str] = set()
        waiting = [revision]
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                waiting.extend(self._all[at].parents)
        return seen

    def _move(self, branch: str, rows: list[_Row]) -> None:
        self._rows[branch] = rows
        state, site = RunState(run=branch), SiteState()
        for row in rows:
            entry, contents = row.read()
            self._note(branch, entry, contents)
            if branch == SITE:
                apply_site(site, entry, contents)
            else:
                apply(state, entry, contents)
        if branch == SITE:
            self._site = site
        else:
            self._runs[branch] = state

    def _append(self, branch: str, state: _S, decide: Callable[[_S], Draft | None], stamp: Stamp) -> Entry | None:
        rows = self._rows.get(branch, [])
        for before in state.requests.of(stamp.request):
            if (made := rows[before - 1].read()[0]).request == stamp.request:
                return made
        draft = decide(state.snapshot())
        if draft is None:
            return None
        entry = settled(draft, branch=branch, sequence=len(rows) + 1, stamp=stamp)
        contents = draft.contents or Attachments()
        data = canonical(entry.as_json())
        tip = rows[-1].revision if rows else ""
        row = _Row(
            revision=sha256("".join((tip, *draft.joins)).encode() + data).hexdigest(),
            entry=data,
            record=None if contents.record is None else canonical(contents.record.as_json()),
            manifest=None if contents.manifest is None else canonical(contents.manifest.as_json()),
            objects=None if contents.objects is None else dict(contents.objects),
            parents=(*((tip,) if tip else ()), *draft.joins),
        )
        self._all[row.revision] = row
        self._rows.setdefault(branch, []).append(row)
        kept, contents = row.read()
        self._note(branch, kept, contents)
        return kept

    def _note(self, branch: str, entry: Entry, contents: Attachments) -> None:
        if contents.manifest is not None and entry.record is not None:
            self._manifests.setdefault((branch, entry.record), contents.manifest)
        if entry.kind == "replicated" and entry.record is not None:
            self._objects[branch, entry.record, str(entry.body.get("tier"))] = contents.objects or {}


# A service looks at the same few copies in each round, and a test has days of rounds.
@lru_cache(maxsize=4)
def _is_whole(copy: bytes) -> bool:
    try:
        value = cast("dict[str, Any]", parse(copy))
        return bool(value.pop("digest") == digest(value))
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


@lru_cache(maxsize=4)
def _parsed(copy: bytes) -> tuple[dict[str, str], tuple[_Row, ...]]:
    try:
        value = cast("dict[str, Any]", parse(copy))
        return dict(value["tips"]), tuple(_Row.from_json(row) for row in value["rows"])
    except (ValueError, TypeError, KeyError) as error:
        raise Corrupt(f"this is no copy of a ledger: {error}", advice="Try another copy.") from error


def _unbundled(copy: BinaryIO) -> tuple[dict[str, str], tuple[_Row, ...]]:
    tips, rows = _parsed(copy.read())
    return dict(tips), rows


class MemoryEntryCache:
    """Entries a reader has seen, for as long as the process lives."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[str, bytes, bytes | None]]] = {}
        self._lock = RLock()

    def tip(self, branch: str) -> tuple[str, int] | None:
        with self._lock:
            rows = self._rows.get(branch)
            return (rows[-1][0], len(rows)) if rows else None

    def rows(self, branch: str) -> Iterator[tuple[str, bytes, bytes | None]]:
        with self._lock:
            yield from list(self._rows.get(branch, []))

    def extend(self, branch: str, rows: Iterable[tuple[str, bytes, bytes | None]], *, onto: str | None) -> bool:
        with self._lock:
            tip = self.tip(branch)
            if (tip[0] if tip else None) != onto:
                return False
            self._rows.setdefault(branch, []).extend(rows)
            return True

    def forget(self, branch: str) -> None:
        with self._lock:
            self._rows.pop(branch, None)
