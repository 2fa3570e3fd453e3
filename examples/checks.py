"""What the examples claim, each read back from where it lies now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from examples.killing import SAVES_BEFORE
from examples.scripts import Example
from examples.stage import digests
from lakemark.sandbox.story.data_repository import DataRepository

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """ok is what was seen; `detail` says what was compared."""

    name: str
    ok: bool
    detail: str


def killed(half: Sequence[str], final: Path) -> Check:
    """It did not end by itself, and something was half made."""
    return Check("killed -9 in the middle of a save", bool(half) and not final.exists(), ", ".join(half))


def only_whole(
    half: Sequence[str], found: Sequence[Mapping[str, Any]], records: Sequence[Record], *, out: Path
) -> Check:
    """Every whole save is a record; what the kill left half made is neither called whole nor a record."""
    whole = {Path(row["path"]) for row in found if row["verdict"] == "complete"}
    paths = [out.parent / one for one in half]
    broken = [path for path in paths if whole.intersection((path, *path.parents))]
    rest = [
        f"{Path(row['path']).name} is {row['verdict']}: {row['why']}" for row in found if row["verdict"] != "complete"
    ]
    ok = not broken and len(records) == len(whole) >= SAVES_BEFORE
    steps = ", ".join(str(record["step"]) for record in records)
    return Check("only whole saves became records", ok, "; ".join([f"steps {steps}", *rest]))


def judged(example: Example, records: Sequence[Record]) -> Check:
    """Each record names the framework and the roles, and nothing is missing to go on from it."""
    ok = all(
        record["framework"] == example.framework
        and set(example.roles) <= set(record["roles"])
        and record["resumable"] is not False
        for record in records
    )
    seen = {
        f"{record['framework']} with {', '.join(record['roles'])}; resumable: {record['resumable']}"
        for record in records
    }
    return Check("records name framework and roles", ok, "; ".join(sorted(seen)))


def restored(places: Sequence[str], wanted: Mapping[str, str]) -> Check:
    """Rollback and resume brought back the very files that the trainer had saved, under the name it gave them."""
    found = [digests(Path(place)) for place in places]
    same = all(content == dict(wanted) != {} for content in found)
    return Check("what came back is what was saved", same, f"{len(wanted)} files, restored and resumed, byte for byte")


def data_went_back(
    data: DataRepository, applied: Mapping[str, Any], *, then: str, now: str, objects: Mapping[str, str]
) -> Check:
    """The opened branch is the commit trained with, its objects are that day's, and the main branch stayed where it was."""
    (opened,) = applied["data"]
    head = data.head(opened["branch"])
    there = data.digests(opened["branch"]) == dict(objects) and objects != data.digests(now)
    ok = head == opened["commit"] == then and there and data.head("main") == now
    return Check(
        "its data branch is that day's, main is not", ok, f"{opened['branch']} at {head[:12]}, main at {now[:12]}"
    )


def ready(resumed: Mapping[str, Any], run_file: Path, *, out: Path, step: int, then: str) -> Check:
    """The run's directory holds the checkpoint under its own name, and the run file names it and the data."""
    told = json.loads(run_file.read_text())
    named = told["resume"]["step"] == resumed["step"] == step and [row["commit"] for row in told["data"]] == [then]
    ok = named and Path(resumed["path"]).parent == out and Path(resumed["path"]).exists()
    moved = ", ".join(sorted(Path(path).name for path in resumed["moved_aside"])) or "nothing"
    return Check("resume made the run's directory ready", ok, f"{Path(resumed['path']).name}; moved aside: {moved}")


def same_weights(example: Example, final: Path, wanted: Path) -> Check:
    """Going on from the restored checkpoint is as if nothing had happened."""
    name = "the weights equal the uninterrupted run's"
    mine, other = (dict(np.load(path, allow_pickle=False)) for path in (final, wanted))
    if [(key, value.shape) for key, value in mine.items()] != [(key, value.shape) for key, value in other.items()]:
        return Check(name, ok=False, detail=f"{sorted(mine)} and {sorted(other)}")
    count = sum(value.size for value in mine.values())
    if all(mine[key].tobytes() == other[key].tobytes() for key in mine):
        return Check(name, ok=True, detail=f"{count} numbers, bit for bit")
    apart = max(float(np.abs(mine[key].astype(float) - other[key].astype(float)).max()) for key in mine)
    ok = example.tolerance > 0 and apart <= example.tolerance
    allowed = f"{example.tolerance:g} allowed: {example.why}" if example.tolerance else "no difference is allowed"
    return Check(name, ok, f"{count} numbers, at most {apart:.3g} apart; {allowed}")


def went_on(
    example: Example,
    before: Sequence[Record],
    after: Sequence[Record],
    every: Sequence[Record],
    *,
    timeline: int,
    then: str,
    saves: int,
) -> Check:
    """Its new saves are records of a timeline of their own, bound to the same data; those given up are still listed.

    saves: how many whole ones lie in the run's directory: the lineage has these and no others.
    """
    new = [record for record in after if record["timeline"] == timeline]
    bound = all([(ref["commit"], ref["evidence"]) for ref in record["data"]] == [(then, "read")] for record in new)
    named = all(record["framework"] == example.framework for record in new)
    listed = {record["record"] for record in before} <= {record["record"] for record in every}
    further = bool(new) and new[-1]["step"] > before[-1]["step"] and len(after) == saves
    steps = ", ".join(str(record["step"]) for record in new)
    evidence = sorted({ref["evidence"] for record in every for ref in record["data"]})
    detail = f"steps {steps}; data {', '.join(evidence)}"
    return Check("it went on in a timeline of its own", bound and named and listed and further, detail)
