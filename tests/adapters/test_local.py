"""What the contract of the ports of a node's disk does not see: links planted by others, crashes, locks, a disk that is full."""

import errno
import io
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from lakemark.adapters.node import restore as restoring
from lakemark.adapters.node.files import LocalFiles
from lakemark.adapters.node.restore import place_name
from lakemark.adapters.node.restorer import LocalRestorer
from lakemark.adapters.node.run_files import LocalSpool
from lakemark.errors import Corrupt, Denied, NotFound, Refused, SourceDamaged, StoreUnavailable
from lakemark.model.checkpoints.manifest import File, FileType, Manifest
from lakemark.model.ledger.run import Place
from lakemark.ports import KnownFile, Quiet, RunFile, Sparse
from tests.adapters.disks import tmpfs
from tests.contract.test_node_disk import digests

FAR = Place(tier="far")
CONTENTS = {"a": b"a" * 10, "d/b": b"b" * 3_000_000, "d/e/c": b""}


def manifest(contents=None, **more):
    files = []
    for path, content in (CONTENTS if contents is None else contents).items():
        digest, parts = digests(content, 1_000_000)
        files.append(File(path=path, size_bytes=len(content), digest=digest, parts=parts))
    return Manifest(files=tuple(files), part_size_bytes=1_000_000, **more)


def fetch(file):
    return [(FAR, io.BytesIO(CONTENTS[file.path]))]


def restore(target, fetch=fetch, *, tag="a", wanted=None):
    return LocalRestorer().restore(target, wanted or manifest(), fetch, tag=tag, progress=Quiet())


def check(target):
    for path, content in CONTENTS.items():
        assert (target / path).read_bytes() == content


class Broke(Exception):
    pass


def interrupted(target, at="d/e/c", wanted=None):
    def breaks(file):
        if file.path == at:
            raise Broke
        return fetch(file)

    with pytest.raises(Broke):
        restore(target, breaks, wanted=wanted)
    return target.parent / f".{target.name}.lakemark-restore"


def test_what_was_whole_is_kept_and_what_was_spoilt_is_fetched_again(tmp_path):
    target = tmp_path / "t"
    staging = interrupted(target)
    (staging / "tree/a").write_bytes(b"x" * 10)
    (staging / "tree/d/b").write_bytes(CONTENTS["d/b"])
    done = restore(target)
    check(target)
    assert done.files_by_place == {"kept": 1, "far": 2}
    assert os.listdir(tmp_path) == ["t"]


@pytest.mark.parametrize("where", ["a", "d"])
def test_a_link_planted_in_the_way_is_not_followed(tmp_path, where):
    target, outside = tmp_path / "t", tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"precious")
    tree = interrupted(target) / "tree"
    shutil.rmtree(tree)
    tree.mkdir()
    (tree / where).symlink_to(outside if where == "d" else outside / "a")
    wanted = manifest({"d/a": b"a" * 10} if where == "d" else {"a": b"a" * 10})
    restore(target, lambda _: [(FAR, io.BytesIO(b"a" * 10))], wanted=wanted)
    assert LocalRestorer().matches(target, wanted, progress=Quiet())
    assert os.listdir(outside) == ["a"]
    assert (outside / "a").read_bytes() == b"precious"


def test_a_crash_after_the_rename_is_seen_as_done(tmp_path):
    target = tmp_path / "t"
    restore(target)
    staging = tmp_path / ".t.lakemark-restore"
    staging.mkdir()
    (staging / "tag").write_text("a")
    assert restore(target).files_by_place == {"kept": 3}
    assert os.listdir(tmp_path) == ["t"]
    staging.mkdir()
    (staging / "tag").write_text("a")
    (target / "a").write_bytes(b"y" * 10)
    with pytest.raises(Refused):
        restore(target)
    assert (target / "a").read_bytes() == b"y" * 10
    assert not staging.exists()


@pytest.mark.parametrize("lies", ["a file", "a link", "a pipe"])
def test_an_empty_directory_whose_name_is_taken_is_made_all_the_same(tmp_path, lies):
    wanted = manifest()
    wanted = replace(wanted, files=(*wanted.files, File(path="empty", type=FileType.DIRECTORY)))
    place = interrupted(tmp_path / "t", wanted=wanted) / "tree/empty"
    place.rmdir()
    make = {"a file": place.touch, "a link": lambda: place.symlink_to("/"), "a pipe": lambda: os.mkfifo(place)}
    make[lies]()
    restore(tmp_path / "t", wanted=wanted)
    check(tmp_path / "t")
    assert (tmp_path / "t" / "empty").is_dir()
    assert not (tmp_path / "t" / "empty").is_symlink()


def test_a_file_in_part_whose_name_is_a_directory_s_is_refused_in_words(tmp_path):
    content = b"p" * 2_000_000
    sparse = Sparse(
        paths=frozenset({"big"}),
        wanted=lambda _: {"big": ((0, 10),)},
        fetch=lambda _, start, length: [(FAR, io.BytesIO(content[start : start + length]))],
    )
    staging = tmp_path / ".t.lakemark-restore"
    (staging / "tree/big").mkdir(parents=True)
    (staging / "tag").write_text("a")
    with pytest.raises(Refused, match="big"):
        LocalRestorer().restore_parts(
            tmp_path / "t", manifest({"big": content}), sparse, fetch=fetch, tag="a", progress=Quiet()
        )


@pytest.mark.usefixtures("require_root")
def test_a_disk_that_is_full_when_a_file_in_part_is_made_is_said_to_be(tmp_path):
    content = b"p" * 2_000_000

    def filled_meanwhile(_):
        numbers = itertools.count()
        with suppress(OSError):
            while True:
                (disk / str(next(numbers))).touch()
        return {"big": ((0, 10),)}

    with tmpfs(tmp_path / "disk", "nr_inodes=20") as disk:
        sparse = Sparse(
            paths=frozenset({"big"}),
            wanted=filled_meanwhile,
            fetch=lambda _, start, length: [(FAR, io.BytesIO(content[start : start + length]))],
        )
        with pytest.raises(Refused, match="No space left"):
            LocalRestorer().restore_parts(
                disk / "t", manifest({"big": content}), sparse, fetch=fetch, tag="a", progress=Quiet()
            )


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o755])
def test_a_file_restored_in_part_has_no_more_rights_than_it_was_saved_with(tmp_path, mode):
    content = bytes(range(250)) * 10_000
    file = replace(manifest({"big": content}).files[0], executable=bool(mode & 0o100), mode=mode)
    wanted = Manifest(files=(file,), part_size_bytes=1_000_000)
    sparse = Sparse(
        paths=frozenset({"big"}),
        wanted=lambda _: {"big": ((1_500_000, 10),)},
        fetch=lambda _, start, length: [(FAR, io.BytesIO(content[start : start + length]))],
    )
    LocalRestorer().restore_parts(tmp_path / "t", wanted, sparse, fetch=fetch, tag="a", progress=Quiet())
    restored = tmp_path / "t" / "big"
    assert restored.read_bytes()[1_000_000:2_000_000] == content[1_000_000:2_000_000]
    assert stat.S_IMODE(restored.stat().st_mode) & ~mode == 0


def test_twice_into_one_target_is_refused(tmp_path):
    restore(tmp_path / "t")
    with pytest.raises(Refused, match="not an empty directory"):
        restore(tmp_path / "t")


def test_two_at_once(tmp_path):
    inside, release = threading.Event(), threading.Event()

    def slow(file):
        inside.set()
        assert release.wait(180)
        return fetch(file)

    first = threading.Thread(target=restore, args=(tmp_path / "t", slow))
    first.start()
    try:
        assert inside.wait(180)
        with pytest.raises(Refused, match="another restore"):
            restore(tmp_path / "t")
    finally:
        release.set()
        first.join()
    check(tmp_path / "t")


def test_an_empty_target_keeps_its_mode(tmp_path):
    target = tmp_path / "t"
    target.mkdir(mode=0o750)
    target.chmod(0o2770)
    restore(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o2770


def test_through_a_link_to_an_empty_directory(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert restore(tmp_path / "link").path == tmp_path / "real"
    assert (tmp_path / "link").is_symlink()
    check(tmp_path / "real")


@pytest.mark.parametrize("name", ["n" * 255, "ü" * 120, "with space", "-rf"])
def test_names_of_targets(tmp_path, name):
    restore(tmp_path / name)
    check(tmp_path / name)
    assert os.listdir(tmp_path) == [name]


def test_a_mount_point_is_refused():
    with pytest.raises(Refused, match="mount point"):
        restore(restoring.Path("/proc"))


def test_no_space_is_refused_before_a_byte_is_read(tmp_path):
    huge = Manifest(files=(File(path="a", size_bytes=2**60, digest="0" * 64),))

    def never(file):
        raise AssertionError("read")

    with pytest.raises(Refused, match=r"bytes free; the checkpoint needs"):
        restore(tmp_path / "t", never, wanted=huge)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_refused_and_not_the_replicas_fault(tmp_path, require_root):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=True)
    try:
        asked = []

        def filled_meanwhile(file):
            asked.append(file)
            (disk / "filler").write_bytes(bytes(1_900_000))
            content = bytes(1_500_000)
            return [(FAR, io.BytesIO(content)), (Place(tier="other"), io.BytesIO(content))]

        wanted = manifest({"x": bytes(1_500_000)})
        with pytest.raises(Refused, match="No space left"):
            restore(disk / "t", filled_meanwhile, wanted=wanted)
        assert len(asked) == 1
        (disk / "filler").unlink()
        assert restore(disk / "t", lambda _: [(FAR, io.BytesIO(bytes(1_500_000)))], wanted=wanted).files_by_place == {
            "far": 1
        }
    finally:
        subprocess.run(["umount", disk], check=True)


def test_what_fails_and_whose_fault_it_is(tmp_path):
    near = Place(tier="near", node="n1")

    class Raising(io.BytesIO):
        def __init__(self, error):
            super().__init__()
            self.error = error

        def readinto(self, _):
            raise self.error

    errors = {
        "a": StoreUnavailable("away", advice="x"),
        "d/b": OSError(errno.EIO, "Input/output error"),
        "d/e/c": NotFound("lost", advice="x"),
    }
    done = restore(tmp_path / "t", lambda file: [(near, Raising(errors[file.path])), *fetch(file)])
    check(tmp_path / "t")
    assert sorted(path for _, path in done.damaged) == ["d/b", "d/e/c"]
    for number, (error, kind) in enumerate([(errors["a"], StoreUnavailable), (errors["d/b"], SourceDamaged)]):
        target = tmp_path / f"u{number}"
        with pytest.raises(kind):
            restore(target, lambda file, error=error: [(near, Raising(error))])
        assert not target.exists()


def test_killed_at_any_moment_it_goes_on(tmp_path):
    code = """
import io, sys, pathlib
sys.path.insert(0, sys.argv[2])
from tests.adapters.test_local import *
class Slow(io.BytesIO):
    def readinto(self, buffer):
        print("reading", flush=True)
        return super().readinto(buffer)
restore(pathlib.Path(sys.argv[1]), lambda file: [(FAR, Slow(CONTENTS[file.path]))])
"""
    target = tmp_path / "t"
    for reads in (1, 3, 5):
        command = [sys.executable, "-c", code, str(target), os.getcwd()]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(reads):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if target.exists():
            check(target)
            break
    else:
        restore(target)
        check(target)


def test_place_names():
    assert place_name(FAR) == "far"
    assert place_name(Place(tier="hot", node="n1")) == "hot@n1"


def test_matches_a_single_file(tmp_path):
    (tmp_path / "a").write_bytes(CONTENTS["a"])
    restorer = LocalRestorer()
    assert restorer.matches(tmp_path / "a", manifest({"a": CONTENTS["a"]}), progress=Quiet())
    assert not restorer.matches(tmp_path / "a", manifest({"b": CONTENTS["a"]}), progress=Quiet())
    assert not restorer.matches(tmp_path / "a", manifest(), progress=Quiet())
    assert not restorer.matches(tmp_path / "none", manifest(), progress=Quiet())


def test_move_aside_of_what_is_not_there(tmp_path):
    with pytest.raises(NotFound):
        LocalRestorer().move_aside([tmp_path / "none"], tmp_path / "aside")


def test_identities_are_of_regular_files_only(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_bytes(b"1")
    (tmp_path / "link").symlink_to("d/a")
    os.mkfifo(tmp_path / "fifo")
    (known,) = LocalFiles().identities(tmp_path)
    found = (tmp_path / "d/a").stat()
    numbers = {"device": found.st_dev, "inode": found.st_ino, "size_bytes": 1, "mtime_ns": found.st_mtime_ns}
    assert known == KnownFile(**numbers, mark=known.mark)
    assert known.mark
    os.link(tmp_path / "d/a", tmp_path / "b")
    assert LocalFiles().identities(tmp_path / "b") == (known,)
    assert LocalFiles().identities(tmp_path / "link") == ()
    with pytest.raises(NotFound):
        LocalFiles().identities(tmp_path / "none")


def test_a_run_file_that_is_none(tmp_path):
    path = tmp_path / "r.json"
    for text in ("", "{", "[]", '{"run": "r"}', '{"run": "r", "run": "s"}'):
        path.write_text(text)
        with pytest.raises(Corrupt):
            LocalSpool().read_run_file(path)


def test_rights(tmp_path, require_root):
    tmp_path.chmod(0o755)
    code = """
import os, sys, pathlib
from lakemark.adapters.node.notes import LocalNotes
from lakemark.errors import Denied
os.setuid(65534)
try:
    LocalNotes().save(pathlib.Path(sys.argv[1]) / "x.json", {})
except Denied as error:
    sys.exit(8 if error.advice else 1)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == Denied.exit_code


REJECTED = {
    "truncated": '{"format": "lakemark.spool/1"',
    "twice": '{"format": "lakemark.spool/1", "run": "r", "run": "s"}',
    "relative": '{"format": "lakemark.spool/1", "run": "r", "step": 1, "path": "x", "saved_at": "2026-11-26T12:00:00Z"}',
    "naive": '{"format": "lakemark.spool/1", "run": "r", "step": 1, "path": "/x", "saved_at": "2026-11-26T12:00:00"}',
    "run": '{"format": "lakemark.spool/1", "run": "../r", "step": 1, "path": "/x", "saved_at": "2026-11-26T12:00:00Z"}',
    "identity": '{"format": "lakemark.spool/1", "run": "r", "step": 1, "path": "/x", "saved_at": "2026-11-26T12:00:00Z",'
    ' "identity": {"a": "1 2"}}',
    "step": '{"format": "lakemark.spool/1", "run": "r", "step": -1, "path": "/x", "saved_at": "2026-11-26T12:00:00Z"}',
    "binary": "\x00\x01",
    "empty": "",
    "large": " " * 2_000_000,
}


@pytest.mark.parametrize("name", REJECTED)
def test_malformed_announcements_are_never_lost_nor_in_the_way(tmp_path, name):
    for _ in range(2):
        (tmp_path / "x.json").write_text(REJECTED[name])
        assert list(LocalSpool().spooled(tmp_path)) == []
    assert sorted(os.listdir(tmp_path / "rejected")) == ["x.json", "x.json.2"]
    assert (tmp_path / "rejected/x.json").read_text() == REJECTED[name]


def test_what_is_no_file_in_the_spool_is_rejected_and_holds_nothing_up(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "link.json").symlink_to("/etc/passwd")
    (tmp_path / "folder.json").mkdir()
    opened = os.listdir("/proc/self/fd")
    assert list(LocalSpool().spooled(tmp_path)) == []
    assert os.listdir("/proc/self/fd") == opened
    assert sorted(os.listdir(tmp_path / "rejected")) == ["folder.json", "link.json", "pipe.json"]


def test_run_file_is_replaced_whole_under_a_reader(tmp_path):
    path, spool = tmp_path / "r.json", LocalSpool()
    stop = threading.Event()
    wrong = []

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            spool.write_run_file(
                path, RunFile(run="r" * (number % 60 + 1), timeline=number, attempt="a", spool=tmp_path, data=())
            )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            try:
                spool.read_run_file(path)
            except Corrupt as error:
                wrong.append(error)
    finally:
        stop.set()
        writer.join()
    assert wrong == []
