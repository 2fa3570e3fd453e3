"""The main job, told as a story: train over eight days, go back three, with the data of that day.

Everything is done as its users do it: by the command line, Prefect's deployments on a worker, and a training script. The
report is made of what is read back afterwards: files, refs, objects, weights.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, Final

from lakemark.errors import LakemarkError
from lakemark.sandbox import credentials, directions
from lakemark.sandbox.prefect import Api
from lakemark.sandbox.services import down
from lakemark.sandbox.stopping import ignoring_signals
from lakemark.sandbox.story.checks import Claim, StoryFacts, check_all, digests
from lakemark.sandbox.story.data_repository import DataRepository
from lakemark.sandbox.story.deployments import WAITING, Deployments
from lakemark.sandbox.story.train import advance, make_part

RUN: Final = "demo"
STEPS: Final = (300, 500, 700)
EVERY: Final = 50
# Of the last stage 550 to 700 stay: step 500, which three days back name, has been rotated away by then.
KEEPS: Final = (6, 4, 4)
# A hundred steps a day: 700 steps are a week.
MINUTES_PER_STEP: Final = 14.4
DAYS_BACK: Final = 3
# Saves come every twelve hours, and after two such intervals a run counts as stopped.
SILENCE_MINUTES: Final = 26 * 60.0

Say = Callable[[str], None]


class Step(LakemarkError):
    """A part of the demo did not do what it should."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """The demo's folder and how to act in it. reading: what a trainer is told of where its data is."""

    home: Path
    say: Say
    environ: dict[str, str]
    reading: dict[str, str] = field(default_factory=dict, repr=False)
    began: float = field(default_factory=time.monotonic)
    saved: dict[int, dict[str, str]] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.home / "train" / "out"

    @property
    def reference(self) -> Path:
        return self.home / "train" / "reference"

    @property
    def clock(self) -> Path:
        return self.home / "clock"

    def tell(self, text: str) -> None:
        self.say(f"[{time.monotonic() - self.began:5.0f} s] {text}")

    def lakemark(self, *words: str) -> dict[str, Any]:
        """One command of the command line; answers its JSON."""
        # This installation's own, whatever `lakemark` the PATH finds.
        program = [sys.executable, "-c", "import sys; from lakemark.cli import main; sys.exit(main())"]
        done = subprocess.run(
            [*program, *words, "--json"], env=self.environ, cwd=self.home, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Step(
                f"`lakemark {' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()[-2000:]}",
                advice=f"The servers' logs are in {self.home / 'sandbox' / 'logs'}; with --keep they stay to be looked at.",
            )
        value = json.loads(done.stdout)
        return value if isinstance(value, dict) else {}

    def train(self, *words: str) -> None:
        """The training script, in a process of its own."""
        common = ["--every", str(EVERY), *words]
        program = [sys.executable, "-m", "lakemark.sandbox.story.train", *common]
        environ = self.environ | self.reading | {"LAKEMARK_DATA_CACHE": str(self.home / "train" / "data")}
        done = subprocess.run(program, env=environ, cwd=self.home, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Step(
                f"the trainer ended with {done.returncode}: {done.stderr.strip()[-2000:]}",
                advice="`--keep` leaves the servers to be looked at.",
            )

    def remember(self) -> None:
        """What the trainer's checkpoints hold now, before it rotates them away."""
        for path in self.out.glob("step-*"):
            self.saved[int(path.name.removeprefix("step-"))] = digests(path)


def run(home: Path, *, say: Say, environ: Mapping[str, str], keep: bool) -> dict[str, Any]:
    """Runs the demo in `home`, an empty or absent folder; answers the report, also written to `home/report.json`.

    keep: leave the services running. Raises LakemarkError where a step fails, KeyboardInterrupt where it is stopped; what
    it started is ended then too, but for a failed step with `keep`: there is something to look at.
    """
    stage = Stage(home=home.resolve(), say=say, environ=dict(environ))
    services: dict[str, str] = {}
    facts: StoryFacts | None = None
    try:
        services = set_up(stage)
        facts = story(stage)
        return reported(stage, services, facts)
    except KeyboardInterrupt:
        # Who stops it wants nothing left running, whatever was asked for before.
        keep = False
        raise
    finally:
        if not keep:
            end(stage)
        if (stage.home / "lakemark.yaml").exists():
            for line in look_around(stage, services, facts, keep=keep):
                say(line)


def end(stage: Stage) -> None:
    """Ends what the demo started, however far it came: it is found by its mark. Another Ctrl-C does not stop this."""
    stage.tell("ending the services it started; SeaweedFS takes up to half a minute")
    # Half ended servers would hold ports and folders, and nobody would know of them.
    with ignoring_signals():
        down(stage.home / "sandbox")


def look_around(stage: Stage, services: Mapping[str, str], facts: StoryFacts | None, *, keep: bool) -> list[str]:
    """What to type next: each indented line works as it is, from the folder the demo was started in."""
    site = stage.home / "lakemark.yaml"
    lines = ["look around:"]
    if keep and "prefect-server" in services:
        lines += [f"  # {line}" for line in directions.login(services["prefect-server"], stage.home / "sandbox")]
    lines.append(f"  {directions.command(site, 'ls', RUN, '--all-timelines')}")
    lines.append(f"  {directions.command(site, 'log', RUN)}")
    if facts is not None:
        lines.append(f"  {directions.command(site, 'as-of', RUN, str(facts.plan['target']['saved_at']))}")
        lines.append(f"  {directions.command(site, 'rollback', 'show', str(facts.applied['rollback']))}")
    lines.append(f"  git -C {quote(directions.shown(stage.home / 'ledger.git'))} log --oneline runs/{RUN}")
    if keep:
        lines.append("end the services:")
        lines.append(f"  {directions.command(site, 'down')}")
    return lines


def set_up(stage: Stage) -> dict[str, str]:
    """A site of its own with a simulated clock, and its services. Answers name -> url."""
    stage.home.mkdir(parents=True, exist_ok=True)
    stage.lakemark("init", str(stage.home), "--profile", "laptop")
    file = stage.home / "lakemark.yaml"
    file.write_text(file.read_text().replace("simulated_clock: false", "simulated_clock: true"))
    stage.environ |= {"LAKEMARK_HOME": str(stage.home), "LAKEMARK_CONFIG": str(file)}
    if "LAKEFS_ENDPOINT" in stage.environ:
        use_lakefs(stage, file)
    # Nine days back: the story takes a little less, so nothing is dated after the present.
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=9)
    stage.clock.write_text(start.isoformat())
    stage.environ["LAKEMARK_CLOCK"] = f"@{stage.clock}"
    stage.tell("starting SeaweedFS, lakeFS, Prefect's server and a worker")
    services = stage.lakemark("up")["services"]
    return {row["name"]: row["url"] for row in services}


def use_lakefs(stage: Stage, file: Path) -> None:
    """A repository of its own on the server LAKEFS_ENDPOINT names, instead of the stand-in.

    LAKEFS_NAMESPACES is where repositories may lie there, such as `local://` or `s3://bucket/`.
    """
    endpoint, name = stage.environ["LAKEFS_ENDPOINT"], f"lakemark-demo-{secrets.token_hex(4)}"
    repository = DataRepository.at(endpoint, name, stage.environ)
    repository.create(stage.environ.get("LAKEFS_NAMESPACES", "local://") + name)
    text = re.sub(
        r"(?m)^data:\n(?:  .*\n)+",
        f"data: {{endpoint: {endpoint}, repository: {name}, branch: main}}\n",
        file.read_text(),
    )
    # The sandbox is not to start a second lakeFS beside it.
    file.write_text(text.replace("  lakefs: stand-in\n", ""))
    stage.tell(f"using the lakeFS server at {endpoint}, repository {name}")


def story(stage: Stage) -> StoryFacts:
    """Trains, moves data, sinks, rolls back, goes on. Answers what has to be checked."""
    repository = repository_of(stage)
    stage.reading = repository.environ
    prefect = deployments_of(stage)
    commits = [repository.commit("main", part(1), message="First data")]
    opened = stage.lakemark("run", "open", RUN, "--data", f"{repository.name}/main", "--watch", str(stage.out))
    pin = opened["data"][0]
    stage.tell(
        f"opened the run {RUN} on {repository.name}/main at {pin['commit'][:12]}, pin {pin['pin']} ({pin['strength']})"
    )
    for number, (steps, keep) in enumerate(zip(STEPS, KEEPS, strict=True)):
        if number:
            commits.append(repository.commit("main", part(number + 1), message=f"Data, edition {number + 1}"))
            stage.lakemark("run", "open", RUN, "--repin", "--at-step", str(STEPS[number - 1]))
            stage.tell(f"the data moved to {commits[-1][:12]}; the run re-pinned at step {STEPS[number - 1]}")
        train_to(stage, steps, keep=keep)
        stage.remember()
        stage.tell(f"trained to step {steps} on {commits[-1][:12]}, saving every {EVERY} steps; sweeping")
        prefect.finish("sweep")
        prefect.finish("demote")
        # Past the time that replicas settle, so that the next demotion may release.
        advance(stage.clock, 30)
    prefect.finish("demote")
    stage.tell(f"{held(stage)}")
    return roll_back(stage, prefect, repository, commits)


def roll_back(stage: Stage, prefect: Deployments, repository: DataRepository, commits: Sequence[str]) -> StoryFacts:
    """Asks for a rollback of three days, answers the form, resumes, trains on; and trains the uninterrupted reference."""
    advance(stage.clock, SILENCE_MINUTES)
    stage.tell("something is wrong since two days: asking the deployment `rollback` to go back three")
    asked = {"run": RUN, "to": f"{DAYS_BACK}d", "reason": "the loss rises since two days", "requester": "ana"}
    flow_run = prefect.start("rollback", asked)
    # A run that ended where it should wait says why.
    if prefect.wait(flow_run, WAITING, within_seconds=900) not in WAITING:
        prefect.completed(flow_run)
    rollback = stage.lakemark("rollback", "ls")["rollbacks"][-1]
    plan = stage.lakemark("rollback", "show", rollback["rollback"])
    for line in plan_lines(plan):
        stage.tell(line)
    answer = {"decision": "approve", "approver": "bea", "plan_digest": plan["plan"][:12]}
    prefect.answer(flow_run, answer)
    stage.tell("approved by bea in Prefect's form; the suspended run goes on")
    prefect.completed(flow_run)
    applied = stage.lakemark("rollback", "show", rollback["rollback"])
    resumed = stage.lakemark("resume", RUN, "--to", str(stage.out), "--job", "night-2")
    stage.tell(
        f"resumed {stage.out.name} at step {resumed['step']}; moved {len(resumed['moved_aside'])} later ones aside"
    )
    train_to(stage, STEPS[-1], keep=KEEPS[-1], resume=True)
    prefect.finish("sweep")
    stage.tell("training the same without interruption, for comparison")
    fork = int(resumed["step"])
    used = commits[next(n for n, steps in enumerate(STEPS) if fork <= steps)]
    reference(stage, repository, commits, used=used, fork=fork)
    return StoryFacts(
        home=stage.home,
        run=RUN,
        out=stage.out,
        reference=stage.reference,
        step=fork,
        last_step=STEPS[-1],
        saved=stage.saved,
        commit=used,
        trained_with=stage.lakemark("show", f"id:{plan['target']['record']}")["data"],
        plan=plan,
        applied=applied,
        digests_then={path: sha256(content).hexdigest() for path, content in at_commit(commits, used).items()},
        repository=repository,
        environ=stage.environ,
    )


def reported(stage: Stage, services: Mapping[str, str], facts: StoryFacts) -> dict[str, Any]:
    """The report, from what is read back now."""
    stage.tell("reading back: files, branches, objects, clones, weights")
    checks: list[Claim] = check_all(facts)
    report = {
        "services": dict(services),
        "records": stage.lakemark("ls", RUN, "--all-timelines")["records"],
        "rollback": stage.lakemark("rollback", "show", facts.applied["rollback"]),
        "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in checks],
    }
    (stage.home / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    return report


def train_to(stage: Stage, steps: int, *, keep: int, resume: bool = False) -> None:
    """Trains up to `steps`; each step takes its share of a simulated day."""
    words = ["--run", RUN, "--out", str(stage.out), "--steps", str(steps), "--keep", str(keep)]
    words += ["--clock", str(stage.clock), "--minutes-per-step", str(MINUTES_PER_STEP)]
    stage.train(*words, *(["--resume"] if resume else []))


def reference(stage: Stage, repository: DataRepository, commits: Sequence[str], *, used: str, fork: int) -> None:
    """The run as it would have been on the data of that day all along: the same data up to the fork, then on with it."""
    for commit, steps in zip(commits, STEPS, strict=True):
        last = commit == used or steps >= fork
        to = STEPS[-1] if last else steps
        uri = f"lakefs://{repository.name}/{commit}/"
        stage.train("--data", uri, "--out", str(stage.reference), "--steps", str(to), "--keep", "99")
        if last:
            return


def part(edition: int) -> dict[str, bytes]:
    """What an edition of the data adds or replaces."""
    files = {f"train/part-{edition}.npz": make_part(edition, shift=0.1 * edition)}
    return files if edition > 1 else files | {"train/part-0.npz": make_part(0)}


def at_commit(commits: Sequence[str], commit: str) -> dict[str, bytes]:
    """Every object of the data as of `commit`, from what was uploaded."""
    files: dict[str, bytes] = {}
    for edition, one in enumerate(commits, start=1):
        files |= part(edition)
        if one == commit:
            break
    return files


def plan_lines(plan: Mapping[str, Any]) -> list[str]:
    """The plan, for people."""
    target, gives_up = plan["target"], plan["gives_up"]
    data = ", ".join(
        f"{row['repository']}@{row['commit'][:12]} as branch {row['opens_branch']}" for row in plan["data"]
    )
    return [
        f"  plan {plan['plan'][:12]}: back to step {target['step']}, saved {target['saved_at'][:16]}Z",
        f"  data {data}",
        f"  gives up {len(gives_up['records'])} records, {gives_up['steps']} steps, {gives_up['hours']} hours",
        f"  {plan['size_bytes']} bytes from {plan['source_tier']}, about {plan['estimated_seconds']} s",
    ]


def held(stage: Stage) -> str:
    """Where the replicas are now."""
    counts: dict[str, int] = {}
    for record in stage.lakemark("ls", RUN)["records"]:
        for replica in record["replicas"]:
            counts[replica["tier"]] = counts.get(replica["tier"], 0) + 1
    return "replicas: " + ", ".join(f"{count} in {tier}" for tier, count in counts.items())


def repository_of(stage: Stage) -> DataRepository:
    """The data repository of the configuration: the stand-in's, or a real server's where LAKEFS_ENDPOINT names one."""
    shown = {row["key"]: row["value"] for row in stage.lakemark("config", "show")["values"]}
    keys = dict(stage.environ)
    if "LAKEFS_ACCESS_KEY_ID" not in keys:
        keys |= credentials.read(stage.home / "sandbox" / "credentials.env")
    return DataRepository.at(str(shown["data.endpoint"]), str(shown["data.repository"]), keys)


def deployments_of(stage: Stage) -> Deployments:
    """Those of the sandbox's Prefect."""
    keys = credentials.read(stage.home / "sandbox" / "credentials.env")
    return Deployments(Api.at(keys["PREFECT_API_URL"], keys["PREFECT_API_AUTH_STRING"]))
