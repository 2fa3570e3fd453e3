"""Acceptance of a site by its own parts: the stages of dvc.yaml, one command each.

    python -m lakemark.sandbox.story.acceptance train|rollback|report --params configs/acceptance.yaml --out acceptance

The run's data is the site's own: its default branch is resolved and pinned. Where that holds no `train/*.npz`, the little
model trains on made-up numbers and only the binding is real. Commits are made by `lakemark sweep`, the stage between.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lakemark.errors import Corrupt, Incomplete, LakemarkError
from lakemark.model.back.rollback_plan import Flags
from lakemark.ports import Site
from lakemark.sandbox.story.checks import digests
from lakemark.services.back import rollback_apply, rollback_decide, rollback_request
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.settings.document import parse
from lakemark.site import Parts, configuration, open_site

REQUESTER: Final = "acceptance"
APPROVER: Final = "acceptance-approver"


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Runs one stage; what it found goes to a file in `--out`. Exit codes are those of `lakemark`."""
    asked = _parser().parse_args(arguments)
    params = _params(asked.params)
    asked.out.mkdir(parents=True, exist_ok=True)
    try:
        _STAGES[asked.stage](params, asked.out.resolve(), environ)
    except LakemarkError as error:
        sys.stderr.write(f"{error}\n{error.advice}\n")
        return error.exit_code
    return 0


def train_stage(params: Mapping[str, Any], out: Path, environ: Mapping[str, str]) -> None:
    """Opens the run, trains it, and notes what each save held."""
    site = open_site(environ=environ)
    saves = out / "out"
    opened = open_run(site, Opening(run=params["run"], watch=saves))
    words = [
        "--run",
        params["run"],
        "--out",
        str(saves),
        "--steps",
        str(params["steps"]),
        "--every",
        str(params["every"]),
    ]
    # Nothing is rotated away: the comparison needs what was saved.
    words += ["--keep", "999", "--seed", str(params["seed"])]
    # The site's keys may lie in its own file, not in this environment.
    keys = Parts(configuration(environ=environ), environ).keys
    trained = subprocess.run(
        [sys.executable, "-m", "lakemark.sandbox.story.train", *words],
        env={**keys, "LAKEMARK_RUN_FILE": str(opened.run_file)},
        capture_output=True,
        text=True,
        check=False,
    )
    if trained.returncode:
        said = trained.stderr.strip()[-2000:]
        raise Incomplete(f"the trainer ended with {trained.returncode}: {said}", advice="Mend that, then repeat.")
    saved = {path.name.removeprefix("step-"): digests(path) for path in sorted(saves.glob("step-*"))}
    data = [{"repository": ref.repository, "commit": ref.commit} for ref in opened.data]
    _write(out / "trained.json", {"run": params["run"], "data": data, "saved": saved})


def rollback_stage(params: Mapping[str, Any], out: Path, environ: Mapping[str, str]) -> None:
    """Requests, approves and applies a rollback to `back_to`, into `out/restored`; notes how long restoring took."""
    # Two actors: nobody may approve their own request at once.
    asking, approving = open_site(environ=environ, actor=REQUESTER), open_site(environ=environ, actor=APPROVER)
    state = asking.ledger.run(params["run"])
    # Of the acceptance before there may be records of that step that another took the place of.
    target = next(found for found in state.records.values() if found.record.step == params["back_to"] and found.stands)
    # The acceptance run saved seconds ago, which looks like a running trainer.
    flags = Flags(while_running=True, model_only=asking.data is None)
    wish = rollback_request.Wish(
        run=params["run"], record=target.record.id, reason="acceptance of the site", requester=REQUESTER, flags=flags
    )
    standing = rollback_request.request(asking, wish)
    rollback_decide.approve(approving, standing.id, digest=standing.digest)
    began = time.monotonic()
    # A folder for each rollback: a second acceptance must not find the first one's files.
    applied = rollback_apply.apply(asking, standing.id, directory=out / f"restored-{standing.id}")
    _write(
        out / "rollback.json",
        {
            "rollback": applied.rollback,
            "record": applied.record,
            "timeline": applied.timeline,
            "checkpoint_dir": str(applied.checkpoint_dir),
            "data": [list(row) for row in applied.data],
            "restored_seconds": round(time.monotonic() - began, 3),
        },
    )


def report_stage(params: Mapping[str, Any], out: Path, environ: Mapping[str, str]) -> None:
    """Reads everything back: metrics.json, and loss.csv for the plot. Raises Corrupt where something is not as it was."""
    site = open_site(environ=environ)
    trained, rollback = _read(out / "trained.json"), _read(out / "rollback.json")
    restored = digests(Path(rollback["checkpoint_dir"]))
    # Not empty: two missing folders are equal as well.
    equal = restored == trained["saved"][str(params["back_to"])] != {}
    heads = all(_head(site, row) == row[2] for row in rollback["data"])
    state = site.ledger.run(params["run"])
    rows = sorted((found.record.step, found.record.metrics.get("loss")) for found in state.records.values())
    (out / "loss.csv").write_text("step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in rows))
    metrics = {
        "records": len(rows),
        "restored_bytes_equal": equal,
        "data_branches_right": heads,
        "restored_seconds": rollback["restored_seconds"],
    }
    _write(out / "metrics.json", metrics)
    if not (equal and heads):
        raise Corrupt(
            f"the site is not accepted: {json.dumps(metrics)}", advice="See `lakemark doctor` and `lakemark verify`."
        )


def _head(site: Site, row: Sequence[str]) -> str | None:
    return site.data.head(row[0], row[1]) if site.data is not None else None


def _params(path: Path) -> dict[str, Any]:
    return dict(parse(path.read_text(), name=str(path)).value)


def _read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


_STAGES: Final = {"train": train_stage, "rollback": rollback_stage, "report": report_stage}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=sorted(_STAGES))
    parser.add_argument("--params", type=Path, default=Path("configs/acceptance.yaml"))
    parser.add_argument("--out", type=Path, default=Path("acceptance"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
