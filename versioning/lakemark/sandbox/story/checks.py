"""What the demo claims, each read back from where it lies now."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from lakemark.sandbox import credentials
from lakemark.sandbox.story.data_repository import DataRepository

_TIERS: Final = ("cold", "warm")


@dataclass(frozen=True, slots=True)
class Claim:
    """ok is what was seen; `detail` says what was compared."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryFacts:
    """What the story left behind: `saved` and `digests_then` were taken when it happened."""

    home: Path
    run: str
    out: Path
    reference: Path
    step: int
    last_step: int
    saved: Mapping[int, Mapping[str, str]]
    commit: str
    trained_with: Sequence[Mapping[str, Any]]
    plan: Mapping[str, Any]
    applied: Mapping[str, Any]
    digests_then: Mapping[str, str]
    repository: DataRepository
    environ: Mapping[str, str] = field(repr=False)


def check_all(facts: StoryFacts) -> list[Claim]:
    """Every claim, in the order of the story."""
    checks = [restored_bytes(facts), target_is_three_days_back(facts), data_was_read(facts)]
    checks += [branch_head(facts), branch_objects(facts)]
    checks += [cloned(facts, tier) for tier in _TIERS]
    return [*checks, same_weights(facts), differs_from_before(facts)]


def restored_bytes(facts: StoryFacts) -> Claim:
    """The rollback brought back what the trainer had saved."""
    where = facts.applied.get("checkpoint_dir")
    found = digests(Path(str(where))) if where else {}
    saved = dict(facts.saved[facts.step])
    return Claim("restored bytes equal the saved ones", found == saved != {}, f"{len(found)} files in {where}")


def target_is_three_days_back(facts: StoryFacts) -> Claim:
    """The plan went to the right save."""
    # Both as `to_text` writes them: of one width and in UTC, so they compare as texts.
    at, saved = str(facts.plan["at"]), str(facts.plan["target"]["saved_at"])
    return Claim("the target is the newest save at or before three days ago", saved <= at, f"saved {saved}, asked {at}")


def data_was_read(facts: StoryFacts) -> Claim:
    """The trainer read of it while it trained: the record does not merely say what it was told to read."""
    found = [str(ref["evidence"]) for ref in facts.trained_with]
    return Claim("the record's data was read by the trainer", found == ["read"], f"evidence: {', '.join(found)}")


def branch_head(facts: StoryFacts) -> Claim:
    """The branch it opened is at the right commit."""
    name = facts.plan["data"][0]["opens_branch"]
    head = facts.repository.head(name)
    detail = f"{name} is at {head[:12]}, trained with {facts.commit[:12]}"
    return Claim("the opened data branch is the commit the checkpoint was trained with", head == facts.commit, detail)


def branch_objects(facts: StoryFacts) -> Claim:
    """And its objects are those of that day, byte for byte."""
    found = facts.repository.digests(facts.plan["data"][0]["opens_branch"])
    # Not empty, too: two listings of nothing would be equal.
    same = found == dict(facts.digests_then)
    return Claim("objects read from it equal those of that day", same and bool(found), f"{len(found)} objects")


def cloned(facts: StoryFacts, tier: str) -> Claim:
    """`git clone` and `dvc pull` alone, without any of our code."""
    name = f"git clone and dvc pull from {tier} give the same bytes"
    record = str(facts.plan["target"]["record"])
    clone = facts.home / "clones" / tier
    # Of a demo before; `git clone` takes no folder with something in it.
    shutil.rmtree(clone, ignore_errors=True)
    clone.parent.mkdir(parents=True, exist_ok=True)
    keys = credentials.read(facts.home / "sandbox" / "credentials.env")
    # The keys under the names that DVC's S3 client looks for.
    environ = {**facts.environ, **{key: value for key, value in keys.items() if key.startswith("AWS_")}}
    environ |= {"DVC_NO_ANALYTICS": "1", "AWS_EC2_METADATA_DISABLED": "true"}
    # The branch that every record has for people who have Git and DVC, and no lakemark.
    git = ["git", "clone", "-q", "-b", f"records/{record[:12]}", str(facts.home / "ledger.git"), str(clone)]
    dvc = [sys.executable, "-m", "dvc", "pull", "-q", "-r", tier]
    for words, where in ((git, facts.home), (dvc, clone)):
        done = subprocess.run(words, cwd=where, env=environ, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return Claim(name, ok=False, detail=f"{words[0]} {words[1]}: {(done.stderr or done.stdout).strip()[-300:]}")
    found = digests(clone / "checkpoint")
    return Claim(name, found == dict(facts.saved[facts.step]) != {}, f"{len(found)} files of records/{record[:12]}")


def same_weights(facts: StoryFacts) -> Claim:
    """Going on from the restored checkpoint is as if nothing had happened."""
    name = "training resumed from the restored checkpoint reaches the same weights as the uninterrupted run"
    mine, other = (path / f"step-{facts.last_step}" for path in (facts.out, facts.reference))
    found, wanted = digests(mine), digests(other)
    same = found == wanted != {}
    return Claim(name, same, f"step {facts.last_step}: {', '.join(sorted(found))} bit for bit")


def differs_from_before(facts: StoryFacts) -> Claim:
    """Otherwise the comparison would prove nothing: the run that was given up went another way."""
    before, after = facts.saved[facts.last_step], digests(facts.out / f"step-{facts.last_step}")
    differ = before["weights.npz"] != after.get("weights.npz")
    return Claim(
        "the weights given up were other ones", differ, f"step {facts.last_step} before and after the rollback"
    )


def digests(path: Path) -> dict[str, str]:
    """Relative path -> sha256 of every regular file under `path`."""
    return {
        str(file.relative_to(path)): sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.is_symlink()
    }


def failed(report: Mapping[str, Any]) -> list[str]:
    """Names of the checks that do not hold."""
    return [check["name"] for check in report["checks"] if not check["ok"]]
