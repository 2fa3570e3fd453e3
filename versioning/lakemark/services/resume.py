"""Resume: make a node's run directory ready to train on, once per job and the same for every node of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lakemark.errors import NotFound, Refused
from lakemark.model.canonical import JSON
from lakemark.model.checkpoint import Manifest
from lakemark.model.entry import Draft
from lakemark.model.ledger import Fork, RecordState, RunState
from lakemark.model.record import DataRef, Evidence
from lakemark.model.rollback import unsound
from lakemark.model.timeline import latest, lineage, usable
from lakemark.ports import Directory, Site
from lakemark.services.appending import Settled, opened, recorded, require_writable
from lakemark.services.find_saves import commit_directory
from lakemark.services.open_run import new_attempt, write_run_file
from lakemark.services.restore import restore_manifest
from lakemark.services.unshare import unshare

ASIDE = ".lakemark-aside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """path: the checkpoint in the run's directory. moved_aside: where later and other steps went."""

    found: RecordState
    timeline: int
    attempt: str
    path: Path
    data: tuple[DataRef, ...]
    run_file: Path
    moved_aside: tuple[Path, ...]
    changed: bool


def resume(site: Site, run: str, *, to: Path, record: str | None = None, job: str | None = None) -> Resumed:
    """Makes the directory `to` ready to train on.

    Brings `record` (default: the newest resumable of the current timeline) into it, moves later steps aside, and writes
    the run file. The same job again decides the same and changes nothing that is right already.

    Raises NotFound, Refused (an older record where approval is required), NoReplica, Conflict.
    """
    require_writable(opened(site, run))
    commit_directory(site, run, to)
    state = site.ledger.run(run)
    attempt = new_attempt(run, job)
    found = _decided(site, state, attempt, record)
    _append(site, run, found, attempt=attempt, job=job, to=to)
    site.progress.step("resume.recorded")
    state = site.ledger.run(run)
    timeline = state.attempts[attempt].timeline
    unshare(site, state)
    path, moved, changed = _arrange(site, state, found, to=to, aside=to / ASIDE / (job or attempt))
    directory = Directory(run=run, timeline=timeline, attempt=attempt, sequence=state.sequence)
    site.journal.bind_directory(to, directory)
    site.progress.step("resume.bound")
    told: dict[str, JSON] = {
        "path": str(site.there(run, path)),
        "step": found.record.step,
        "record": found.record.id,
        "timeline": timeline,
    }
    run_file = write_run_file(site, run, attempt=attempt, resume=told)
    site.progress.step("resume.told")
    interval = state.interval
    data = tuple(replace(ref, evidence=Evidence.OPENED) for ref in (interval.data if interval else ()))
    return Resumed(
        found=found,
        timeline=timeline,
        attempt=attempt,
        path=path,
        data=data,
        run_file=run_file,
        moved_aside=moved,
        changed=changed,
    )


def newest_resumable(state: RunState) -> RecordState:
    """Raises NotFound where the lineage has none; those known not to be resumable are passed over."""
    for found in lineage(state):
        sound = any(replica.sound for replica in found.replicas.values())
        if sound and usable(found) and found.record.resumable is not False:
            return found
    raise NotFound(f"{state.run} has no record to resume from", advice=f"lakemark ls {state.run} --all-timelines")


def _decided(site: Site, state: RunState, attempt: str, record: str | None) -> RecordState:
    before = state.attempts.get(attempt)
    if before is not None and before.record is not None:
        return recorded(state, before.record)
    if record is None:
        return newest_resumable(state)
    found = recorded(state, record)
    wrong = unsound(found)
    if wrong:
        raise Refused(
            f"{state.run}@{found.record.step} can't be resumed from: {wrong[0]}", advice="Choose another record."
        )
    newest = latest(state)
    older = newest is not None and newest.record.id != record
    if older and site.policies.approval.required:
        raise Refused(
            f"{state.run}@{found.record.step} is older than the newest record, {newest.record.step if newest else '?'}",
            advice=f"lakemark rollback request {state.run} --to id:{record} --reason '…'",
        )
    return found


def _append(site: Site, run: str, found: RecordState, *, attempt: str, job: str | None, to: Path) -> None:
    def decide(state: RunState) -> Draft:
        require_writable(state)
        if attempt in state.attempts and state.attempts[attempt].record is not None:
            raise Settled(None)
        newest = next(lineage(state), None)
        fork = None
        timeline = state.timeline
        if newest is not None and newest.record.id != found.record.id and newest.record.step >= found.record.step:
            timeline = max(state.timelines, default=0) + 1
            at = found.record
            fork = Fork(timeline=at.timeline, step=at.step, record=at.id).as_json()
        interval = state.interval
        body: dict[str, JSON] = {
            "attempt": attempt,
            "job": job,
            "directory": str(to),
            "fork": fork,
            "inferred": False,
            "data": [ref.as_json() for ref in (interval.data if interval else ())],
        }
        return Draft(kind="resumed", timeline=timeline, body=body, record=found.record.id)

    try:
        site.ledger.append(run, decide, site.stamp(f"resumed:{attempt}"))
    except Settled:
        return


def _arrange(
    site: Site, state: RunState, found: RecordState, *, to: Path, aside: Path
) -> tuple[Path, tuple[Path, ...], bool]:
    record = found.record
    manifest = site.ledger.manifest(state.run, record.id)
    path = to / directory_name(site, found)
    right = site.workspace.exists(path) and site.workspace.matches(path, manifest, progress=site.progress)
    later = [one.path for one in site.recogniser.find(to) if one.step is not None and one.step > record.step]
    if site.workspace.exists(path) and not right:
        later.append(path)
    for moving in later:
        strange = [file for file in site.workspace.identities(moving) if site.journal.known(file) is None]
        site.journal.remember(strange, record=record.id, why="aside")
    site.progress.step("resume.journalled")
    moved = site.workspace.move_aside(later, aside) if later else ()
    site.progress.step("resume.moved")
    if not right:
        _bring(site, found, manifest, path=path)
    site.journal.remember(site.workspace.identities(path), record=record.id, why="restored")
    site.progress.step("resume.restored")
    return path, tuple(moved), bool(moved) or not right


def _bring(site: Site, found: RecordState, manifest: Manifest, *, path: Path) -> None:
    """A checkpoint that is one file comes back as that file, beside the others of its kind."""
    single = [file.path for file in manifest.files] == [path.name]
    if not single:
        restore_manifest(site, found, manifest, to=path)
        return
    inside = path.parent / ASIDE / f"restored-{found.record.id[:12]}"
    if not site.workspace.exists(inside / path.name):
        restore_manifest(site, found, manifest, to=inside)
    site.workspace.move_aside([inside / path.name], path.parent)


def directory_name(site: Site, found: RecordState) -> str:
    """The name the trainer gave the checkpoint's directory, else `step-N`."""
    for entry, _ in site.ledger.entries(found.record.run, after=found.sequence - 1):
        source = entry.body.get("source")
        if entry.sequence == found.sequence and isinstance(source, str):
            return Path(source).name
        break
    return f"step-{found.record.step}"
