"""What is particular to the ledger in Git: its trees, its tags, its locks, and what it makes of damage."""

import os
import subprocess
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.dvc.store import DvcStore
from lakemark.adapters.git import pointer as git_pointer, refs as git_refs
from lakemark.adapters.git.ledger import GitLedger, Remote
from lakemark.adapters.git.make import init
from lakemark.errors import Corrupt, Denied, Misconfigured, NotFound, Refused, Usage
from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import DataRef, record_for
from lakemark.model.ledger.entry import SITE, Attachments, Draft, Stamp
from lakemark.model.ledger.run import Place
from lakemark.model.runs.timeline import as_of

RUN = "llama-7b"
START = datetime(2026, 11, 26, 12, tzinfo=UTC)
REMOTES = {
    "warm": Remote(name="warm", url="s3://lakemark/warm", endpoint="http://127.0.0.1:8333", region="us-east-1"),
    "cold": Remote(name="cold", url="/disks/co,ld", directory=True),
}


def git(path, *arguments, check=True):
    done = subprocess.run(["git", "-C", str(path), *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


class Told:
    """A ledger, and short ways to tell it things."""

    def __init__(self, path, **named):
        init(path)
        self.path = path
        self.ledger = GitLedger(path, remotes=REMOTES, **named)
        self.number = 0
        self.add(Draft(kind="opened", timeline=1))

    def add(self, draft, *, minutes=None, request=None):
        self.number += 1
        at = START + timedelta(minutes=self.number if minutes is None else minutes)
        stamp = Stamp(at=at, node="node-a", actor="ana@node-a", request=request or f"request-{self.number}")
        return self.ledger.append(RUN, lambda _: draft, stamp).entry

    def commit(self, step, timeline=1, executable=False, **changes):
        digest = f"{step:064x}"
        files = (
            File(path="b.sh", digest=digest, executable=executable),
            File(path="a/ö\n.npz", size_bytes=5, digest=digest),
        )
        manifest = Manifest(files=files)
        record = record_for(manifest, run=RUN, timeline=timeline, step=step, saved_at=START, node="node-a")
        record = replace(record, **changes)
        contents = Attachments(record=record, manifest=manifest)
        self.add(Draft(kind="committed", timeline=timeline, contents=contents, body={"tier": "hot"}))
        return record

    def replicate(self, record, tier="warm", **named):
        objects = {f"{record.step:064x}": f"{record.step:032x}", "dir": f"{record.step + 1:032x}"}
        body = {"tier": tier, "node": None}
        draft = Draft(kind="replicated", timeline=1, record=record.id, contents=Attachments(objects=objects), body=body)
        return self.add(draft, **named)

    def forget_copies(self):
        """As once a pack holds what they hold: now one damage is enough."""
        for copy in (self.path / "lakemark" / "recent").iterdir():
            copy.unlink()

    def show(self, name):
        return git(self.path, "show", f"runs/{RUN}:{name}")

    def names(self, revision=f"runs/{RUN}"):
        return git(self.path, "ls-tree", "-r", "--name-only", revision).split()

    def pointed(self, revision=f"runs/{RUN}"):
        """The step whose `.dir` the tree points at; None: at none."""
        text = git(self.path, "show", f"{revision}:checkpoint.dvc", check=False)
        return int(text.split("md5: ")[1][:32], 16) - 1 if text else None


@pytest.fixture
def told(tmp_path):
    return Told(tmp_path / "ledger.git")


def test_making_it_twice_keeps_it(tmp_path):
    path = tmp_path / "folder" / "ledger.git"
    identity = init(path)
    assert init(path) == identity == GitLedger(path).id
    assert [name for name in os.listdir(path.parent) if name != "ledger.git"] == []


def test_git_programs_are_kept_from_pruning(tmp_path):
    path = tmp_path / "ledger.git"
    init(path)
    found = {
        name: git(path, "config", name).strip()
        for name in ("gc.auto", "gc.pruneExpire", "maintenance.auto", "core.fsync")
    }
    assert found == {"gc.auto": "0", "gc.pruneExpire": "never", "maintenance.auto": "false", "core.fsync": "all"}
    assert all((path / "objects" / f"{number:02x}").is_dir() for number in range(256))


def test_what_is_no_ledger_is_said_so(tmp_path):
    with pytest.raises(NotFound, match="no ledger at"):
        GitLedger(tmp_path / "nothing")
    git(tmp_path, "init", "-q", "--bare", "other.git")
    with pytest.raises(Misconfigured, match="no ledger"):
        GitLedger(tmp_path / "other.git")
    with pytest.raises(Misconfigured, match="no ledger"):
        init(tmp_path / "other.git")


@pytest.mark.usefixtures("require_root")
def test_a_ledger_of_another_owner_is_denied(tmp_path):
    init(tmp_path / "ledger.git")
    for folder, _, names in os.walk(tmp_path / "ledger.git"):
        for name in (".", *names):
            os.chown(os.path.join(folder, name), 12345, 12345)
    with pytest.raises(Denied, match="not owned by current user") as raised:
        GitLedger(tmp_path / "ledger.git")
    assert "safe.directory" in raised.value.advice


@pytest.mark.parametrize("name", ["", "site", "../x", "a/b", "x.lock", "UPPER", "a" * 64])
def test_a_name_that_is_no_run_is_refused(told, name):
    with pytest.raises(Usage):
        told.ledger.append(name, lambda _: Draft(kind="opened"), Stamp(at=START, node="n", actor="a", request="r"))
    with pytest.raises(Usage):
        told.ledger.run(name)


def test_a_tree_holds_the_entry_and_its_own_files(told):
    assert told.names() == ["entry.json"]
    told.commit(10)
    assert told.names() == ["entry.json", "manifest.json", "record.json"]
    told.add(Draft(kind="closed", timeline=1))
    assert told.names() == ["entry.json"]


def test_a_replica_in_a_dvc_tier_gives_a_pointer_that_later_trees_keep(told):
    told.replicate(told.commit(10))
    pointing = [".dvc/.gitignore", ".dvc/config", ".gitignore", "checkpoint.dvc", "entry.json"]
    assert told.names() == [*pointing, "objects.json"]
    told.add(Draft(kind="closed", timeline=1))
    assert told.names() == pointing
    assert told.show("checkpoint.dvc") == (
        "outs:\n- md5: 0000000000000000000000000000000b.dir\n  size: 5\n  nfiles: 2\n  hash: md5\n  path: checkpoint\n"
    )
    assert (told.show(".gitignore"), told.show(".dvc/.gitignore")) == ("/checkpoint\n", "/config.local\n/tmp\n/cache\n")


def test_a_tier_that_dvc_can_not_reach_gives_none(told):
    told.replicate(told.commit(10), tier="archive")
    assert told.names() == ["entry.json", "objects.json"]
    assert git(told.path, "tag") == ""


def test_the_default_remote_is_a_directory_that_holds_the_record(told):
    record = told.commit(10)
    told.replicate(record)
    warm = (
        "['remote \"warm\"']\n    url = s3://lakemark/warm\n    endpointurl = http://127.0.0.1:8333\n"
        "    region = us-east-1\n    verify = true\n"
    )
    cold = '[\'remote "cold"\']\n    url = "/disks/co,ld"\n    verify = true\n'
    assert told.show(".dvc/config") == warm + cold
    told.replicate(record, tier="cold")
    assert told.show(".dvc/config") == "[core]\n    remote = cold\n" + warm + cold


def test_executable_files_are_listed_by_name(told):
    told.replicate(told.commit(10, executable=True))
    assert told.show("checkpoint.dvc").split("  files:\n")[1] == (
        '  - relpath: "a/\\xf6\\x0a.npz"\n    md5: 0000000000000000000000000000000a\n    size: 5\n'
        '  - relpath: "b.sh"\n    md5: 0000000000000000000000000000000a\n    size: 0\n    isexec: true\n'
    )


def test_the_pointer_follows_the_current_timeline(told):
    first, second = told.commit(10), told.commit(20)
    told.replicate(second)
    told.replicate(first)
    assert told.pointed() == 20
    fork = {"timeline": 1, "step": 10, "record": first.id}
    told.add(Draft(kind="rolled_back", timeline=2, body={"rollback": "r", "fork": fork}))
    assert told.pointed() == 10
    third = told.commit(15, timeline=2)
    assert told.pointed() == 10
    told.replicate(third)
    assert told.pointed() == 15


def test_the_pointer_leaves_what_is_pruned_quarantined_damaged_released_or_superseded(told):
    records = [told.commit(step) for step in (10, 20, 30, 40, 50)]
    for record in records:
        told.replicate(record)
    item = {"record": records[4].id, "tier": "warm", "node": None}
    told.add(Draft(kind="pruned", timeline=1, body={"items": [item | {"reasons": ["old"]}]}))
    assert told.pointed() == 40
    told.add(Draft(kind="quarantined", timeline=1, record=records[3].id))
    assert told.pointed() == 30
    told.add(Draft(kind="verified", timeline=1, body={"items": [item | {"record": records[2].id, "ok": False}]}))
    assert told.pointed() == 20
    told.commit(20, supersedes=records[1].id, framework="other")
    told.add(Draft(kind="released", timeline=1, body={"items": [item | {"record": records[1].id}]}))
    assert told.pointed() == 10
    told.add(Draft(kind="unpruned", timeline=1, record=records[4].id))
    assert told.pointed() == 50
    told.add(Draft(kind="released", timeline=1, body={"items": [item, item | {"record": records[0].id}]}))
    assert told.pointed() is None
    assert told.names() == ["entry.json"]


def test_each_record_has_a_tag_that_points_at_it(told):
    records = [told.commit(step) for step in (10, 20, 30)]
    for record in (records[2], records[0], records[1]):
        told.replicate(record)
    assert set(git(told.path, "tag").split()) == {f"records/{record.id[:12]}" for record in records}
    for record in records:
        assert told.pointed(f"records/{record.id[:12]}") == record.step
    assert told.pointed() == 30


def test_a_tag_that_a_crash_kept_back_is_made_later(told):
    record = told.commit(10)
    told.replicate(record, request="again")
    tag = told.path / "refs" / "tags" / "records" / record.id[:12]
    tag.unlink()
    fresh = GitLedger(told.path, remotes=REMOTES)
    fresh.append(RUN, lambda _: Draft(kind="closed"), Stamp(at=START, node="n", actor="a", request="again"))
    assert told.pointed(f"records/{record.id[:12]}") == 10
    assert tag.read_text().strip() == fresh.tips()[RUN]


def test_messages_can_be_searched(told):
    data = (DataRef(repository="data", commit="a" * 64),)
    record = told.commit(300, data=data)
    told.add(Draft(kind="held", timeline=1, record=record.id, reason="for\n\nStep: 7 <x>"))
    found = git(told.path, "log", "--format=%s", "--grep", "^Step: 300$", f"runs/{RUN}").splitlines()
    short = record.id[:12]
    assert found == [f"held step 300 ({short}): for Step: 7  x", f"committed step 300 ({short})"]
    assert git(told.path, "log", "--format=%s", "--grep", "^Step: 7", f"runs/{RUN}") == ""
    trailers = git(told.path, "log", "-1", "--skip=1", "--format=%(trailers)", f"runs/{RUN}").split("\n")[:5]
    expected = ["Kind: committed", f"Record: {record.id}", "Step: 300", "Timeline: 1", f"Data: data@{'a' * 64}"]
    assert trailers == expected


def test_commit_times_increase_though_clocks_go_back(told):
    for minutes in (30, 10, 10, 20):
        told.add(Draft(kind="closed", timeline=1), minutes=minutes)
    times = [int(text) for text in git(told.path, "log", "--reverse", "--format=%ct", f"runs/{RUN}").split()]
    assert times == sorted(set(times))
    assert [entry.clock for entry, _ in told.ledger.entries(RUN)] == ["ok"] * 5  # as it was written


def test_the_entry_that_jumped_is_suspect_for_every_reader(told):
    """An hour each; the third was written 400 days ahead, the sixth a year behind."""
    records = []
    for number in range(1, 8):
        away = {3: 400 * 1440, 6: -365 * 1440}.get(number, 0)
        at = START + timedelta(minutes=60 * number + away)
        manifest = Manifest(files=(File(path="w", digest=f"{number:064x}"),))
        record = record_for(manifest, run=RUN, timeline=1, step=number, saved_at=at, node="node-a")
        told.add(
            Draft(kind="committed", timeline=1, contents=Attachments(record=record, manifest=manifest)),
            minutes=60 * number + away,
        )
        records.append(record.id)
    for reader in (told.ledger, GitLedger(told.path)):
        state = reader.run(RUN)
        assert [number for number, one in enumerate(records, 1) if state.records[one].clock == "suspect"] == [3, 6]
        for number in (4, 5, 7):
            assert as_of(state, START + timedelta(minutes=60 * number + 1)).record.step == number


def test_a_clone_is_whole(told, tmp_path):
    told.replicate(told.commit(10))
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "-b", f"runs/{RUN}", str(told.path), str(clone))
    assert git(clone, "fsck", "--full", "--strict") == ""
    assert git(clone, "status", "--porcelain") == ""
    assert (clone / "checkpoint.dvc").is_file()


def test_a_state_handed_out_is_not_reached_by_later_entries(told):
    record = told.commit(10)
    state = told.ledger.run(RUN)
    told.replicate(record)
    told.commit(20)
    assert (state.sequence, len(state.records)) == (2, 1)
    assert Place(tier="warm") not in state.records[record.id].replicas
    assert Place(tier="warm") in told.ledger.run(RUN).records[record.id].replicas


def test_an_entry_that_could_not_be_read_back_is_refused(told):
    bad_fork = Draft(kind="rolled_back", timeline=2, body={"fork": {"timeline": "one"}})
    bad_number = Draft(kind="closed", timeline=1, body={"share": float("nan")})
    for draft in (bad_fork, bad_number):
        with pytest.raises(Refused, match="could not be read back"):
            told.add(draft)
    bad_site = Draft(kind="branch_observed", body={"observed_at": "yesterday"})
    with pytest.raises(Refused, match="could not be read back"):
        told.ledger.append_site(lambda _: bad_site, Stamp(at=START, node="n", actor="a", request="r"))
    assert told.ledger.run(RUN).sequence == 1
    assert SITE not in told.ledger.tips()


def append_while_another_closes(told, folder, answers):
    """What the append comes to, and (sequence, closed) of each state that was decided upon. answers: state -> draft or None."""
    copy = folder / "copy.git"
    subprocess.run(["cp", "-r", told.path, copy], check=True)
    stamp = Stamp(at=START, node="node-b", actor="bo", request="between")
    GitLedger(copy).append(RUN, lambda _: Draft(kind="closed", timeline=1), stamp)
    seen = []

    def decide(state):
        seen.append((state.sequence, state.closed))
        if len(seen) == 1:
            git(told.path, "fetch", "-q", str(copy), f"refs/heads/runs/{RUN}:refs/heads/runs/{RUN}")
        return answers(state)

    return told.ledger.append(RUN, decide, Stamp(at=START, node="node-a", actor="ana", request="mine")), seen


def test_another_writer_in_between_is_decided_upon(told, tmp_path):
    answers = Draft(kind="reopened", timeline=1)
    (entry, state), seen = append_while_another_closes(told, tmp_path, lambda _: answers)
    assert (seen, entry.sequence, state.sequence) == ([(1, False), (2, True)], 3, 3)
    assert [found.request for found, _ in told.ledger.entries(RUN)] == ["request-1", "between", "mine"]


def test_what_another_writer_did_in_between_may_leave_nothing_to_append(told, tmp_path):
    closes = Draft(kind="closed", timeline=1)
    done = append_while_another_closes(told, tmp_path, lambda state: None if state.closed else closes)
    (entry, state), seen = done
    assert (seen, entry, state.sequence, state.closed) == ([(1, False), (2, True)], None, 2, True)
    assert [found.request for found, _ in told.ledger.entries(RUN)] == ["request-1", "between"]


def lock_of(told):
    return told.path / "refs" / "heads" / "runs" / f"{RUN}.lock"


def test_an_old_lock_is_removed(told):
    lock_of(told).write_text("")
    os.utime(lock_of(told), (time.time() - 61, time.time() - 61))
    assert told.commit(10).step == 10
    assert not lock_of(told).exists()


def test_a_lock_that_a_killed_append_left_is_removed_at_once(told):
    told.commit(10)
    (told.path / "lakemark" / "locks" / RUN).write_text("f" * 40)
    lock_of(told).write_text("f" * 40 + "\n")
    assert told.commit(20).step == 20
    assert not lock_of(told).exists()


@pytest.mark.parametrize("content", ["f" * 40, ""])
def test_a_tags_lock_that_a_killed_append_left_is_removed(told, content):
    record = told.commit(10)
    lock = told.path / "refs" / "tags" / "records" / f"{record.id[:12]}.lock"
    lock.write_text(content)
    if content:
        (told.path / "lakemark" / "locks" / RUN).write_text(content)
    else:
        os.utime(lock, (time.time() - 61, time.time() - 61))
    told.replicate(record)
    assert told.pointed(f"records/{record.id[:12]}") == 10
    assert (lock.exists(), told.ledger.alarms) == (False, [])


def test_a_git_programs_lock_is_waited_for(told):
    lock_of(told).write_text("")
    done = threading.Thread(target=told.commit, args=(10,))
    done.start()
    done.join(0.3)
    assert done.is_alive()
    assert lock_of(told).exists()
    lock_of(told).unlink()
    done.join(180)
    assert told.ledger.run(RUN).sequence == 2


def test_a_replaced_history_is_an_alarm_and_read_anew(told):
    old = git(told.path, "rev-parse", f"runs/{RUN}").strip()
    told.commit(10)
    assert told.ledger.run(RUN).sequence == 2
    git(told.path, "update-ref", f"refs/heads/runs/{RUN}", old)
    assert told.ledger.run(RUN).sequence == 1
    assert len(told.ledger.alarms) == 1
    told.commit(20)
    assert told.ledger.run(RUN).sequence == 2


def test_a_damaged_object_is_corrupt(told):
    told.commit(10)
    told.forget_copies()
    oid = git(told.path, "rev-parse", f"runs/{RUN}:entry.json").strip()
    blob = told.path / "objects" / oid[:2] / oid[2:]
    blob.chmod(0o644)
    blob.write_bytes(b"")
    with pytest.raises(Corrupt, match="can't be read"):
        GitLedger(told.path).run(RUN)


def test_a_damaged_reference_is_corrupt(told):
    (told.path / "refs" / "heads" / "runs" / RUN).write_bytes(b"\0" * 41)
    with pytest.raises(Corrupt, match="not a commit id"):
        told.ledger.run(RUN)


def test_entries_written_by_hand_are_corrupt(told):
    tip = git(told.path, "rev-parse", f"runs/{RUN}").strip()
    tree = git(told.path, "rev-parse", f"runs/{RUN}^{{tree}}").strip()
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    twice = git(told.path, *who, "commit-tree", tree, "-p", tip, "-m", "again").strip()
    git(told.path, "update-ref", f"refs/heads/runs/{RUN}", twice)
    with pytest.raises(Corrupt, match="after entry 1"):
        told.ledger.run(RUN)


def test_damage_of_an_old_manifest_keeps_no_entry_out(told):
    first, second = told.commit(10), told.commit(20)
    told.replicate(first)
    told.forget_copies()
    oid = git(told.path, "rev-parse", f"runs/{RUN}~1:manifest.json").strip()
    blob = told.path / "objects" / oid[:2] / oid[2:]
    blob.chmod(0o644)
    blob.write_bytes(b"")
    told.ledger = GitLedger(told.path, remotes=REMOTES)
    assert told.replicate(second).sequence == 5
    assert told.pointed() == 10
    assert any("pointer" in alarm for alarm in told.ledger.alarms)


def test_threads_of_one_process_take_turns(told):
    def work(name):
        for number in range(25):
            stamp = Stamp(at=START, node=name, actor="ana", request=f"{name}-{number}")
            told.ledger.append(RUN, lambda _: Draft(kind="closed", timeline=1), stamp)
            assert sum(1 for _ in told.ledger.entries(RUN)) > number

    threads = [threading.Thread(target=work, args=(f"node-{name}",)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.sequence for entry, _ in told.ledger.entries(RUN)] == list(range(1, 102))


def test_packs_of_one_size_become_one(told):
    for step in range(1, 10):
        told.replicate(told.commit(step))
        told.ledger.pack()
    assert len(list((told.path / "objects" / "pack").glob("*.pack"))) <= 2
    assert git(told.path, "fsck", "--full", "--strict") == ""
    assert GitLedger(told.path).run(RUN) == told.ledger.run(RUN)
    assert git(told.path, "count-objects").startswith("0 objects")


def test_folders_that_git_removed_are_made_again(told):
    told.replicate(told.commit(10))
    git(told.path, "repack", "-adq")
    git(told.path, "pack-refs", "--all", "--prune")
    assert len(list((told.path / "objects").iterdir())) < 256
    fresh = GitLedger(told.path, remotes=REMOTES)
    fresh.append(RUN, lambda _: Draft(kind="closed"), Stamp(at=START, node="n", actor="a", request="more"))
    assert all((told.path / "objects" / f"{number:02x}").is_dir() for number in range(256))
    assert fresh.run(RUN).sequence == 4
    assert (fresh.pack(), git(told.path, "fsck", "--full", "--strict")) == (3, "")


def test_what_no_reference_reaches_stays(told):
    oid = subprocess.run(
        ["git", "-C", told.path, "hash-object", "-w", "--stdin"],
        input="mine\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    told.ledger.pack()
    assert git(told.path, "cat-file", "-p", oid) == "mine\n"


def test_references_are_read_from_packed_refs_too(told):
    record = told.commit(10)
    told.replicate(record)
    tip = told.ledger.tips()[RUN]
    for number in range(100):
        git_refs.move(told.path, f"{git_refs.TAGS}{number:012x}", None, tip)
    git(told.path, "-c", "user.name=x", "-c", "user.email=x@x", "tag", "-a", "-m", "x", "records/aaa", tip)
    git(told.path, "pack-refs", "--all", "--prune")
    listed = [line.split() for line in git(told.path, "show-ref").splitlines()]
    assert len(listed) == 103
    assert {name: git_refs.read(told.path, name) for _, name in listed} == {name: commit for commit, name in listed}
    for name in ("refs/heads/runs/a", "refs/zzz", "refs/tags/records/000000000000x", "refs/tags/records/aa"):
        assert git_refs.read(told.path, name) is None
    assert told.ledger.tips() == {RUN: tip}
    told.commit(20)
    assert (told.ledger.tips()[RUN], told.ledger.runs()) == (told.ledger.revision(RUN, 4), (RUN,))
    with pytest.raises(git_refs.ReferenceMoved):
        git_refs.move(told.path, f"{git_refs.TAGS}{1:012x}", None, tip)


@pytest.mark.parametrize("since", ["none", "newer", "older"])
def test_a_lost_ledger_comes_back_from_a_tier_as_the_page_says(tmp_path, since):
    """Runs the very lines of docs/lost-ledger.md. since: what lies beside the whole copy, and goes on from it or one before."""
    told = Told(tmp_path / "old.git")
    told.commit(10)
    cold = DvcStore(DirectoryBlobs(tmp_path / "cold"), name="cold", tier_class="cold")
    cold.claim(told.ledger.id, now=START)
    with ExitStack() as bundles:
        first, before = bundles.enter_context(told.ledger.bundle()), tuple(told.ledger.tips().values())
        told.add(Draft(kind="closed", timeline=1, reason="done"))
        whole, more = (
            bundles.enter_context(told.ledger.bundle()),
            bundles.enter_context(told.ledger.bundle(since=before)),
        )
        cold.keep_ledger(first if since == "newer" else whole)
        if since != "none":
            cold.keep_ledger(more, slot="since")
    page = (Path(__file__).parents[2] / "docs" / "lost-ledger.md").read_text(encoding="utf-8")
    lines = next(one for one in page.split("```") if "git init" in one).replace("/mnt/cold", str(tmp_path / "cold"))
    subprocess.run(["bash", "-euc", lines], cwd=tmp_path, check=True, capture_output=True)
    again = GitLedger(tmp_path / "ledger.git", remotes=REMOTES)
    assert again.id == told.ledger.id
    assert again.tips() == told.ledger.tips()
    assert [entry for entry, _ in again.entries(RUN)] == [entry for entry, _ in told.ledger.entries(RUN)]
    (record,) = again.run(RUN).records
    assert again.manifest(RUN, record) == told.ledger.manifest(RUN, record)
    stamp = Stamp(at=START, node="node-a", actor="ana@node-a", request="again")
    assert again.append(RUN, lambda _: Draft(kind="reopened", timeline=1), stamp).state.sequence == 4
    with again.bundle() as bundle:
        assert bundle.read(20).startswith(b"# v")


def test_a_ledger_that_can_t_be_bundled_says_so(tmp_path):
    init(tmp_path / "empty.git")
    with pytest.raises(Corrupt, match="bundled"), GitLedger(tmp_path / "empty.git").bundle():
        pass


@pytest.mark.parametrize("digest", ["3" * 32, "1" * 15 + "e" + "2" * 16, "0" * 31 + "a", "e" * 32])
def test_a_digest_stays_text_in_the_pointer(digest):
    """Of digits alone YAML would read a number, and `dvc` in a checkout that holds such a file would fail."""
    (said,) = yaml.safe_load(f"- md5: {git_pointer._text(digest)}")
    assert said == {"md5": digest}
