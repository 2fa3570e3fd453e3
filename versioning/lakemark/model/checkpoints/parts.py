"""A checkpoint whose files lie on several nodes: what each node can say of its part, and whether all parts make a whole.

`lakemark.facts/1`, as JSON: a node's part by names and headers alone, small enough for an entry of the ledger's tree.

    {"format": "lakemark.facts/1", "framework": "dcp", "attempt": "a1", "step": 100, "node": "n1",
     "files": {"__0_0.distcp": {"size_bytes": 87170, "digest": null}}, "needed": {"__0_0.distcp": 87170},
     "metadata": {".metadata": "<64 hex>"}, "wanted": [[".metadata", "__0.metadata"]], "members": {"optim_states": [[0, 0]]},
     "counts": {"optim_states": 4}, "together": [["optimizer", "model"]], "problems": []}
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Final, Self, TypeAlias

from lakemark.errors import Corrupt, Refused
from lakemark.model.values.canonical import JSON
from lakemark.model.values.codec import Coded, Size, read

FORMAT: Final = "lakemark.facts/1"
Rank: TypeAlias = tuple[Size, ...]
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile(Coded, what="a part's file"):
    """A file of a part. digest: as in a manifest; None where it was not computed."""

    size_bytes: int
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Coded, what="a part's facts", document=FORMAT):
    """One node's part of one save. Paths are beneath the checkpoint, the same on all nodes.

    needed: path -> its least length, by an index that lies here. metadata: index -> digest of its bytes. wanted: of each
    group some node must have one path. members: set of files that come by ranks -> the ranks that lie here, each with one
    number per axis. counts: set -> how many members it has in all, by a header that lies here. together: where one set has
    members, the second has the same. problems: what is broken in this part by itself.
    """

    framework: str
    attempt: str
    step: int | None
    node: str
    files: Mapping[str, PartFile]
    needed: Mapping[str, Size] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    wanted: tuple[tuple[str, ...], ...] = ()
    members: Mapping[str, tuple[Rank, ...]] = field(default_factory=dict)
    counts: Mapping[str, Size] = field(default_factory=dict)
    together: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt."""
        try:
            return read(cls, value)
        except ValueError as error:
            raise Corrupt(
                f"a part's facts can't be read: {error}", advice="Let the node judge its part again."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The judgement of all parts. why: what is missing or does not fit; empty where they make a whole.

    ranks: set -> how many members lie on the nodes together. notes: what does not change the verdict.
    """

    why: tuple[str, ...]
    ranks: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.why


def unite(parts: Sequence[Facts]) -> Whole:
    """Whether the parts of one save are all there and fit. Raises Refused for parts that are not of one save."""
    # First: parts of two saves would fit each other by their names and make nonsense.
    _same_save(parts)
    files = {path: held for part in parts for path, held in part.files.items()}
    members = _members(parts)
    why = [
        *(f"{part.node}: {problem}" for part in parts for problem in part.problems),
        *_conflicts(parts),
        *_unmet(parts, files),
        *_short(parts, files),
        *_worlds(parts),
        *_gaps(parts, members),
    ]
    return Whole(
        why=tuple(dict.fromkeys(why)),
        ranks={name: len(ranks) for name, ranks in members.items()},
        notes=tuple(_unnamed(parts, files)),
    )


def _same_save(parts: Sequence[Facts]) -> None:
    if not parts:
        raise Refused("no parts to unite", advice="Ask the nodes for their parts.")
    for what, values in (
        ("attempts", {part.attempt for part in parts}),
        ("steps", {part.step for part in parts}),
        ("frameworks", {part.framework for part in parts}),
    ):
        if len(values) > 1:
            shown = ", ".join(sorted(map(str, values)))
            raise Refused(f"parts of different {what} ({shown}) make no checkpoint", advice="Unite parts of one save.")


def _conflicts(parts: Sequence[Facts]) -> Iterator[str]:
    """A path on two nodes must be the same file; of an index that means one writer."""
    seen: dict[str, tuple[str, PartFile]] = {}
    indexes: dict[str, tuple[str, str]] = {}
    for part in parts:
        for path, digest in part.metadata.items():
            # Two nodes that both believe to be the first rank each wrote an index of their own half.
            node, known = indexes.setdefault(path, (part.node, digest))
            if known != digest:
                yield f"two writers of {path}: {node} and {part.node} have different ones"
        for path, held in part.files.items():
            node, first = seen.setdefault(path, (part.node, held))
            # Where a digest is not known on both, lengths have to do.
            unequal = None not in (first.digest, held.digest) and first.digest != held.digest
            if (unequal or first.size_bytes != held.size_bytes) and path not in part.metadata:
                yield f"{path} is another file on {part.node} than on {node}"


def _unmet(parts: Sequence[Facts], files: Mapping[str, PartFile]) -> Iterator[str]:
    for group in dict.fromkeys(group for part in parts for group in part.wanted):
        if not any(path in files for path in group):
            yield f"no node has {' or '.join(group)}"


def _short(parts: Sequence[Facts], files: Mapping[str, PartFile]) -> Iterator[str]:
    needed: dict[str, int] = {}
    for part in parts:
        for path, least in part.needed.items():
            # Each rank's index speaks for itself; the file must satisfy all.
            needed[path] = max(least, needed.get(path, 0))
    missing = [path for path in needed if path not in files]
    if missing:
        yield f"{len(missing)} of {len(needed)} data files are on no node: {_some(missing)}"
    for path, least in needed.items():
        if path in files and files[path].size_bytes < least:
            yield f"{path} {files[path].size_bytes} < {least} needed"


def _worlds(parts: Sequence[Facts]) -> Iterator[str]:
    said: dict[str, dict[int, str]] = defaultdict(dict)
    for part in parts:
        for name, count in part.counts.items():
            # One node to name for each number is enough.
            said[name].setdefault(count, part.node)
    for name, counts in said.items():
        if len(counts) > 1:
            shown = ", ".join(f"{count} on {node}" for count, node in sorted(counts.items()))
            yield f"different world sizes: {name} {shown}"


def _members(parts: Sequence[Facts]) -> dict[str, set[Rank]]:
    united: dict[str, set[Rank]] = defaultdict(set)
    for part in parts:
        for name, ranks in part.members.items():
            united[name].update(ranks)
    return dict(united)


def _gaps(parts: Sequence[Facts], members: Mapping[str, set[Rank]]) -> Iterator[str]:
    for name, ranks in sorted(members.items()):
        hole = _hole(name, ranks)
        if hole:
            yield hole
    # They agree, or `_worlds` has said so.
    counts = {name: count for part in parts for name, count in part.counts.items()}
    for name, count in sorted(counts.items()):
        have = len(members.get(name, ()))
        if have < count:
            yield f"{name}: {have} of {count} ranks"
    for first, second in dict.fromkeys(pair for part in parts for pair in part.together):
        # One way only; where both are needed, both pairs are stated.
        lacking = members.get(first, set()) - members.get(second, set())
        if lacking:
            yield f"{second}: {_ranks(sorted(lacking))} missing, {first} has them"


def _hole(name: str, ranks: set[Rank]) -> str | None:
    """What the smallest grid around the ranks has and they lack."""
    if len({len(rank) for rank in ranks}) > 1:
        return f"{name}: ranks of different kinds"
    if not ranks:
        return None
    lengths = [max(numbers) + 1 for numbers in zip(*ranks, strict=True)]
    count = prod(lengths)
    # All ranks lie within the grid, so as many as it has cells are all of them.
    if count == len(ranks):
        return None
    # Found without building the grid: a file may be called rank 9999999.
    first = islice((rank for rank in _grid(lengths) if rank not in ranks), _SHOWN)
    return f"{name}: {count - len(ranks)} of {count} ranks missing ({_ranks(list(first))})"


def _grid(lengths: Sequence[int]) -> Iterator[Rank]:
    """All ranks of a grid, the last axis fastest; lazily, for a name may say any number."""
    for number in range(prod(lengths)):
        rank, rest = [], number
        for length in reversed(lengths):
            rest, at = divmod(rest, length)
            rank.append(at)
        yield tuple(reversed(rank))


def _unnamed(parts: Sequence[Facts], files: Mapping[str, PartFile]) -> Iterator[str]:
    """Data files beside named ones of the same kind that no index names: left from another save."""
    needed = {path for part in parts for path in part.needed}
    kinds = {path.rpartition(".")[2] for path in needed}
    left = [path for path in files if path not in needed and "." in path and path.rpartition(".")[2] in kinds]
    if left:
        yield f"no index names {_some(left)}"


def _ranks(ranks: Iterable[Rank]) -> str:
    return _some([",".join(map(str, rank)) for rank in ranks])


def _some(names: Sequence[str]) -> str:
    return "; ".join(names[:_SHOWN]) + ("; …" if len(names) > _SHOWN else "")
