"""The hot tier where the contract can't look: who has files open, links and leases, full disks, kills, power loss."""

import json
import mmap
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from blake3 import blake3

from lakemark.adapters.hot.store import TreeStore
from lakemark.contract.store import source
from lakemark.errors import Conflict, Corrupt, Denied, Incomplete, NotFound, Refused
from lakemark.model.checkpoints.manifest import PART_SIZE_BYTES
from lakemark.model.checkpoints.record import record_for
from lakemark.ports import Checkpoint, Quiet
from tests.adapters.disks import tmpfs
from tests.contract.store_places import NOW, flip
from tests.support.power_loss import disk

QUIET = Quiet()
SWEEP = Path(__file__).with_name("kill_sweep.py")


@pytest.fixture
def hot(tmp_path):
    return hot_at(tmp_path / "hot")


def hot_at(place, **how):
    store = TreeStore(place, name="hot", node="node-a", **{"min_free": 0, **how})
    store.claim("ledger", now=NOW)
    return store


@pytest.fixture
def out(tmp_path):
    return saved(tmp_path / "out")


def saved(path, size=3000):
    path.mkdir(parents=True)
    (path / "weights.bin").write_bytes(os.urandom(size))
    (path / "rng").write_bytes(b"r")
    return path


def land(store, path, *, quiet_seconds=0.0):
    return store.land(path, quiet_seconds=quiet_seconds, roles={}, progress=QUIET)


def commit(store, path, *, step=1):
    landed = land(store, path)
    record = record_for(landed.manifest, run="run", timeline=1, step=step, saved_at=NOW, node="node-a")
    assert store.adopt(landed, record)
    return Checkpoint(record=record, manifest=landed.manifest)


def leftovers(store):
    bench = store.root / ".lakemark" / "incoming"
    return sorted(path.name for path in bench.glob("[!.]*"))


def test_the_default_links_on_one_file_system(hot, out):
    checkpoint = commit(hot, out)
    assert (hot.path(checkpoint.record) / "weights.bin").stat().st_ino == (out / "weights.bin").stat().st_ino


def test_copies_are_read_only_files_of_our_own(tmp_path, out):
    hot = hot_at(tmp_path / "hot", landing="copy")
    (out / "rng").chmod(0o750)
    tree = hot.path(commit(hot, out).record)
    assert (tree / "weights.bin").stat().st_ino != (out / "weights.bin").stat().st_ino
    assert stat.S_IMODE((tree / "weights.bin").stat().st_mode) == 0o444
    assert stat.S_IMODE((tree / "rng").stat().st_mode) == 0o550


def test_digests_are_those_of_the_parts(hot, tmp_path):
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(PART_SIZE_BYTES + 5)
        file.seek(PART_SIZE_BYTES - 3)
        file.write(b"straddles")
    content = path.read_bytes()
    for landing in ("link", "copy"):
        store = hot_at(tmp_path / landing, landing=landing)
        (file,) = land(store, path).manifest.files
        parts = [blake3(content[:PART_SIZE_BYTES]), blake3(content[PART_SIZE_BYTES:])]
        assert file.parts == tuple(part.hexdigest() for part in parts)
        assert file.digest == blake3(b"".join(part.digest() for part in parts)).hexdigest()
        assert file.size_bytes == len(content)


def test_members_are_all_that_lands(hot, out):
    (out / "50_gda").mkdir()
    (out / "50_gda" / "array").write_bytes(b"a")
    landed = hot.land(out / "50", quiet_seconds=0, roles={}, progress=QUIET, members=[out / "rng", out / "50_gda"])
    record = record_for(landed.manifest, run="run", timeline=1, step=50, saved_at=NOW, node="node-a")
    assert hot.adopt(landed, record)
    tree = hot.path(record)
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == ["50_gda", "50_gda/array", "rng"]


@pytest.mark.parametrize("landing", ["link", "copy"])
def test_holes_cost_nothing(tmp_path, landing):
    path = tmp_path / "out" / "sparse.bin"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(2**30)
        for place in (0, 2**29, 2**30 - 4096):
            file.seek(place)
            file.write(b"data" * 1024)
    hot = hot_at(tmp_path / "hot", landing=landing)
    checkpoint = commit(hot, path.parent)
    copy = hot.path(checkpoint.record) / "sparse.bin"
    assert copy.stat().st_size == 2**30
    assert copy.stat().st_blocks * 512 < 2**26
    assert hot.verify(checkpoint, progress=QUIET) == ()
    with copy.open("rb") as file:
        for place in (0, 2**29, 2**30 - 4096):
            file.seek(place)
            assert file.read(4096) == b"data" * 1024


def test_ten_thousand_small_files_land(hot, tmp_path):
    out = tmp_path / "out"
    for folder in range(100):
        (out / "d" / str(folder)).mkdir(parents=True)
        for number in range(100):
            (out / "d" / str(folder) / str(number)).write_bytes(b"%d" % number)
    checkpoint = commit(hot, out)
    assert len(checkpoint.manifest.files) == 10_000
    assert hot.verify(checkpoint, progress=QUIET) == ()


@pytest.mark.parametrize("landing", ["link", "copy"])
def test_a_file_open_for_writing_is_not_landed(tmp_path, out, landing):
    hot = hot_at(tmp_path / "hot", landing=landing)
    with (out / "weights.bin").open("r+b"), pytest.raises(Incomplete, match="open for writing"):
        land(hot, out)
    assert leftovers(hot) == []
    assert len(land(hot, out).manifest.files) == 2


def test_a_writable_mapping_counts_as_open(hot, out):
    with (out / "weights.bin").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    with mapped, pytest.raises(Incomplete, match="open for writing"):
        land(hot, out)


def test_a_store_through_a_mapping_made_later_is_seen(hot, out):
    checkpoint = commit(hot, out)
    with (out / "weights.bin").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0] ^= 1
    assert [damage.suspect for damage in hot.changed(checkpoint.record.id)] == [True]
    assert [damage.path for damage in hot.verify(checkpoint, progress=QUIET)] == ["weights.bin"]


def test_full_is_below_min_free(tmp_path):
    assert not hot_at(tmp_path / "hot").full()
    assert hot_at(tmp_path / "hot", min_free=Fraction(1)).full()


def test_a_second_name_for_writing_counts_as_open(hot, out, tmp_path):
    os.link(out / "weights.bin", tmp_path / "other-name")
    with (tmp_path / "other-name").open("ab"), pytest.raises(Incomplete, match="open for writing"):
        land(hot, out)


def test_the_quiet_window_is_kept(hot, out):
    stop = threading.Event()

    def keep_writing():
        while not stop.wait(0.02):
            with (out / "log").open("ab") as file:
                file.write(b"more")

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        with pytest.raises(Incomplete):
            land(hot, out, quiet_seconds=1.0)
    finally:
        stop.set()
        writer.join()
    assert leftovers(hot) == []
    assert len(land(hot, out, quiet_seconds=0.1).manifest.files) == 3


def test_a_written_file_with_the_right_bytes_again_is_sound(hot, out):
    content = (out / "rng").read_bytes()
    checkpoint = commit(hot, out)
    (out / "rng").write_bytes(content)
    assert [damage.suspect for damage in hot.changed(checkpoint.record.id)] == [True]
    assert hot.verify(checkpoint, progress=QUIET) == ()
    assert hot.changed(checkpoint.record.id) == ()


def test_touched_files_are_read_once_and_then_known(hot, out):
    checkpoint = commit(hot, out)
    (out / "rng").unlink()
    marker = hot.root / ".lakemark" / "sealed" / f"{checkpoint.record.id}.json"
    before = json.loads(marker.read_bytes())["linked"]
    assert hot.changed(checkpoint.record.id) == ()
    after = json.loads(marker.read_bytes())["linked"]
    assert before["rng"] != after["rng"]
    assert before["weights.bin"] == after["weights.bin"]


def test_unshare_refuses_what_changed(hot, out):
    checkpoint = commit(hot, out)
    (out / "rng").write_bytes(b"x")
    with pytest.raises(Corrupt):
        hot.unshare(checkpoint.record.id, progress=QUIET)
    assert leftovers(hot) == []
    assert (hot.path(checkpoint.record) / "weights.bin").stat().st_nlink == 2


def test_a_damaged_tree_is_replaced_by_a_new_landing(tmp_path, out):
    hot = hot_at(tmp_path / "hot", landing="copy")
    checkpoint = commit(hot, out)
    os.unlink(hot.path(checkpoint.record) / "rng")
    assert hot.adopt(land(hot, out), checkpoint.record)
    assert hot.verify(checkpoint, progress=QUIET) == ()


def test_what_verify_finds(tmp_path, out):
    (out / "void").mkdir()
    (out / "link").symlink_to("rng")
    hot = hot_at(tmp_path / "hot", landing="copy")
    checkpoint = commit(hot, out)
    tree = hot.path(checkpoint.record)
    flip(tree / "weights.bin", 2000)
    (tree / "rng").unlink()
    (tree / "link").unlink()
    (tree / "link").symlink_to("weights.bin")
    (tree / "void").rmdir()
    found = {damage.path: damage for damage in hot.verify(checkpoint, progress=QUIET)}
    assert sorted(found) == ["link", "rng", "void", "weights.bin"]
    assert [path for path, damage in found.items() if damage.missing] == ["rng", "void"]
    assert not any(damage.suspect for damage in found.values())


def test_a_lost_ledger_can_be_read_back(hot, out):
    checkpoint = commit(hot, out)
    assert hot_at(hot.root).load(checkpoint.record.id) == checkpoint
    with pytest.raises(NotFound):
        hot.load("0" * 64)


def test_identity_that_changes_under_us_is_refused(hot, out):
    checkpoint = commit(hot, out)
    path = hot.root / "lakemark-tier.json"
    path.write_text(path.read_text().replace(hot.identity().id, "f" * 32))
    for deed in (lambda: land(hot, out), lambda: hot.drop(checkpoint, now=NOW)):
        with pytest.raises(Refused, match="was the tier"):
            deed()
    path.unlink()
    with pytest.raises(Refused, match="not mounted"):
        land(hot, out)
    assert not hot.records().complete


def test_a_tier_of_another_class_is_refused(hot):
    path = hot.root / "lakemark-tier.json"
    path.write_text(path.read_text().replace('"hot"', '"cold"'))
    with pytest.raises(Refused, match="cold tier"):
        hot_at(hot.root)


def test_nothing_lands_below_min_free(tmp_path, out):
    hot = hot_at(tmp_path / "hot", min_free=Fraction(1))
    with pytest.raises(Refused, match="must stay free"):
        land(hot, out)
    assert leftovers(hot) == []


def test_a_put_below_min_free_is_refused(tmp_path, hot, out):
    checkpoint = commit(hot, out)
    full = hot_at(tmp_path / "full", min_free=Fraction(1))
    with pytest.raises(Refused, match="must stay free"):
        full.put(checkpoint, lambda file: hot.open(checkpoint, file), now=NOW, progress=QUIET)


@pytest.mark.parametrize("landing", ["link", "copy"])
def test_nothing_lands_beyond_capacity(tmp_path, out, landing):
    hot = hot_at(tmp_path / "hot", landing=landing, capacity_bytes=6000)
    assert not hot.full()
    checkpoint = commit(hot, out)
    assert hot.full()
    other = saved(tmp_path / "other")
    with pytest.raises(Refused, match="`capacity` is 6000"):
        land(hot, other)
    assert leftovers(hot) == []
    assert hot.records().records == (checkpoint.record.id,)
    hot.drop(checkpoint, now=NOW)
    assert not hot.full()
    commit(hot, other, step=2)


def test_a_put_beyond_capacity_is_refused(tmp_path, hot, out):
    first, second = commit(hot, out), commit(hot, saved(tmp_path / "other"), step=2)
    small = hot_at(tmp_path / "small", capacity_bytes=3001)
    for _ in range(2):
        small.put(first, lambda file: hot.open(first, file), now=NOW, progress=QUIET)
    with pytest.raises(Refused, match="`capacity` is 3001"):
        small.put(second, lambda file: hot.open(second, file), now=NOW, progress=QUIET)
    (small.path(first.record) / "rng").chmod(0o644)
    flip(small.path(first.record) / "weights.bin", 2000)
    small.put(first, lambda file: hot.open(first, file), now=NOW, progress=QUIET)
    assert small.verify(first, progress=QUIET) == ()


def test_no_damaged_marker_keeps_a_landing_from_capacity(tmp_path, out):
    hot = hot_at(tmp_path / "hot", capacity_bytes=4000)
    checkpoint = commit(hot, out)
    (hot.root / ".lakemark" / "sealed" / f"{checkpoint.record.id}.json").write_text("{")
    assert len(land(hot, out).manifest.files) == 2


def test_a_full_disk_is_refused_and_left_clean(require_root, tmp_path, out):
    with tmpfs(tmp_path / "small", "size=8m", "nr_inodes=24") as small:
        hot = hot_at(small / "hot")
        (out / "more").mkdir()
        for number in range(20):
            (out / "more" / str(number)).write_bytes(b"x")
        with pytest.raises(Refused, match="No space left"):
            land(hot, out)
        assert leftovers(hot) == []
        big = saved(tmp_path / "big", size=9 * 2**20)
        with pytest.raises(Refused):
            land(hot, big)
        assert leftovers(hot) == []
        assert hot.records().records == ()


def test_reflinks_where_the_file_system_can(require_root, require_command, tmp_path):
    with disk(tmp_path, "xfs", require_command) as xfs:
        hot = hot_at(xfs.path / "hot")
        out = saved(xfs.path / "out")
        content = (out / "weights.bin").read_bytes()
        landed = land(hot, out)
        assert not landed.linked
        record = record_for(landed.manifest, run="run", timeline=1, step=1, saved_at=NOW, node="node-a")
        hot.adopt(landed, record)
        checkpoint = Checkpoint(record=record, manifest=landed.manifest)
        (out / "weights.bin").write_bytes(b"other")
        assert hot.changed(checkpoint.record.id) == ()
        assert hot.verify(checkpoint, progress=QUIET) == ()
        assert (hot.path(checkpoint.record) / "weights.bin").read_bytes() == content


@pytest.mark.parametrize("landing", ["auto", "copy"])
def test_what_was_acknowledged_survives_power_loss(require_root, require_command, tmp_path, landing):
    with disk(tmp_path, "ext4", require_command) as ext4:
        hot = hot_at(ext4.path / "hot", landing=landing)
        checkpoint = commit(hot, saved(ext4.path / "out", size=300_000))
        ext4.cut()
        ext4.revive()
        assert hot.verify(checkpoint, progress=QUIET) == ()
        assert hot.records().records == (checkpoint.record.id,)
        hot.drop(checkpoint, now=NOW)
        ext4.cut()
        ext4.revive()
        assert hot.records().records == ()


FOREIGN = """
    import os, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from lakemark.adapters.hot.store import TreeStore
    from lakemark.errors import Denied
    from lakemark.ports import Quiet
    from lakemark.adapters.disk import files
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    hot = TreeStore(Path(sys.argv[1]), name="hot", node="n", min_free=0)
    hot.claim("ledger", now=datetime(2026, 11, 26, tzinfo=UTC))
    landed = hot.land(Path(sys.argv[2]), quiet_seconds=0, roles={}, progress=Quiet())
    print(landed.linked)
    hot.discard(landed)
    try:
        hot.land(Path(sys.argv[3]), quiet_seconds=0, roles={}, progress=Quiet())
    except Denied as error:
        print(error.kind)
"""


@pytest.fixture
def open_folder():
    """A folder that every user can reach, which tmp_path is not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_files_of_another_owner(require_root, open_folder):
    hot, readable, secret = open_folder / "hot", saved(open_folder / "readable"), saved(open_folder / "secret")
    hot.mkdir()
    os.chown(hot, 65534, 65534)
    (secret / "rng").chmod(0o600)
    script = textwrap.dedent(FOREIGN)
    done = subprocess.run(
        [sys.executable, "-c", script, hot, readable, secret], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    protected = Path("/proc/sys/fs/protected_hardlinks").read_text().strip() == "1"
    assert done.stdout.split() == [str(not protected), "Denied"]
    assert list((hot / ".lakemark" / "incoming").glob("[!.]*")) == []


def test_a_dead_landing_is_cleaned_and_a_living_one_kept(hot, out):
    living = land(hot, out)
    script = textwrap.dedent("""
        import os, sys
        from pathlib import Path
        from lakemark.adapters.hot.store import TreeStore
        from lakemark.ports import Quiet
        hot = TreeStore(Path(sys.argv[1]), name="hot", node="n", min_free=0)
        hot.land(Path(sys.argv[2]), quiet_seconds=0, roles={}, progress=Quiet())
        os.kill(os.getpid(), 9)
    """)
    subprocess.run([sys.executable, "-c", script, hot.root, out], check=False)
    assert len(leftovers(hot)) == 2
    assert hot.clean() == 1
    assert leftovers(hot) == [living.token]
    hot.discard(living)


@pytest.mark.parametrize("scenario", ["land", "copy", "drop", "unshare", "put", "ledger", "remove"])
def test_a_kill_at_any_step_is_survived(tmp_path, scenario):
    done = subprocess.run(
        [sys.executable, SWEEP, scenario, tmp_path], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10


def test_many_land_at_once(hot, tmp_path):
    landings, errors = [], []

    def work(number):
        try:
            landings.append(commit(hot, saved(tmp_path / f"out-{number}"), step=number))
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(hot.records().records) == 8
    assert leftovers(hot) == []
    assert all(hot.verify(checkpoint, progress=QUIET) == () for checkpoint in landings)


def test_the_same_record_adopted_by_many_at_once_is_one(hot, out):
    landed = [land(hot, out) for _ in range(6)]
    record = record_for(landed[0].manifest, run="run", timeline=1, step=1, saved_at=NOW, node="node-a")
    new = []
    threads = [threading.Thread(target=lambda one=one: new.append(hot.adopt(one, record))) for one in landed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(new) == [False] * 5 + [True]
    assert hot.verify(Checkpoint(record=record, manifest=landed[0].manifest), progress=QUIET) == ()


def test_a_tree_and_its_source_may_not_lie_in_one_another(hot, out):
    checkpoint = commit(hot, out)
    for path in (hot.path(checkpoint.record), hot.root.parent, hot.root):
        with pytest.raises(Refused, match="in one another"):
            land(hot, path)


def test_a_link_to_a_checkpoint_is_followed_once(hot, out, tmp_path):
    (tmp_path / "latest").symlink_to("out")
    assert land(hot, tmp_path / "latest").manifest == land(hot, out).manifest


def test_an_empty_directory_is_no_checkpoint(hot, tmp_path):
    (tmp_path / "out" / "deep").mkdir(parents=True)
    with pytest.raises(Incomplete, match="holds no file"):
        land(hot, tmp_path / "out")


def marker_of(store, checkpoint):
    return store.root / ".lakemark" / "sealed" / f"{checkpoint.record.id}.json"


@pytest.fixture(params=["garbage", "empty", "another's"])
def unmarked(request, hot, out, tmp_path):
    """A sealed tree whose marker says nothing right."""
    checkpoint, other = commit(hot, out), commit(hot, saved(tmp_path / "other"), step=2)
    data = {"garbage": b"{", "empty": b"", "another's": marker_of(hot, other).read_bytes()}[request.param]
    marker_of(hot, checkpoint).write_bytes(data)
    return checkpoint


def test_a_tree_with_right_bytes_is_sound_whatever_its_marker_says(hot, out, unmarked):
    right = {file.path: (out / file.path).read_bytes() for file in unmarked.manifest.regular}
    with pytest.raises(Corrupt):
        hot.load(unmarked.record.id)
    assert hot.changed(unmarked.record.id) == ()
    for file in unmarked.manifest.regular:
        with hot.open(unmarked, file) as stream:
            assert stream.read() == right[file.path]
    assert hot.verify(unmarked, progress=QUIET) == ()
    again = hot.load(unmarked.record.id)
    assert (again.record, again.manifest) == (unmarked.record, unmarked.manifest)
    (out / "rng").write_bytes(b"in place")
    assert [damage.path for damage in hot.changed(unmarked.record.id)] == ["rng"]


def test_its_wrong_bytes_are_named_and_a_put_makes_both_anew(hot, out, unmarked):
    contents = {file.path: (out / file.path).read_bytes() for file in unmarked.manifest.regular}
    (out / "rng").write_bytes(b"x")
    assert [damage.path for damage in hot.verify(unmarked, progress=QUIET)] == ["rng"]
    stored = hot.put(unmarked, source(contents), now=NOW, progress=QUIET)
    assert stored.written_bytes == unmarked.manifest.size_bytes
    assert hot.verify(unmarked, progress=QUIET) == ()
    assert hot.load(unmarked.record.id).record == unmarked.record


def test_unreadable_markers_can_be_dropped_and_landed_over(hot, out, unmarked):
    assert hot.adopt(land(hot, out), unmarked.record)
    assert hot.verify(unmarked, progress=QUIET) == ()
    marker_of(hot, unmarked).write_text("{")
    hot.drop(unmarked, now=NOW)
    assert unmarked.record.id not in hot.records().records


def test_hot_needs_no_grace(hot, out):
    checkpoint = commit(hot, out)
    (out / "weights.bin").unlink()
    assert hot.drop(checkpoint, now=NOW) == 3000
    assert hot.collect(now=NOW, grace=timedelta(days=3), needed=[checkpoint]) == 0
    assert sorted(os.listdir(hot.root)) == [".lakemark", "lakemark-tier.json"]


def test_adopting_other_contents_is_a_conflict(hot, out):
    landed = land(hot, out)
    record = record_for(landed.manifest, run="run", timeline=1, step=1, saved_at=NOW, node="node-a")
    with pytest.raises(Conflict):
        hot.adopt(landed, replace(record, content="0" * 64))


def test_put_goes_past_a_source_that_lies(hot, out, tmp_path):
    checkpoint = commit(hot, out)
    other = hot_at(tmp_path / "other")
    with pytest.raises(Corrupt):
        other.put(checkpoint, source({"weights.bin": b"w" * 3000, "rng": b"r"}), now=NOW, progress=QUIET)
    assert leftovers(other) == []
    assert not other.holds(checkpoint.record.id)


def test_errors_of_the_system_are_ours(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises((Denied, NotFound, Refused, Conflict)):
        hot_at(tmp_path / "file")
