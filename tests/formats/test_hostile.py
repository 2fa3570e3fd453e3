"""Whatever lies in a checkpoint's place: a verdict, in bounded time and memory, never an exception, nothing run.

Each kind of file of each framework's real checkpoints is replaced in turn by what a hostile or dying machine leaves.
"""

import contextlib
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from pathlib import Path

import pytest

from lakemark.errors import Denied, LakemarkError, NotFound
from lakemark.formats import recogniser
from lakemark.formats.roles import of_key
from lakemark.ports import Verdict
from tests.formats.builders import save
from tests.formats.jax_builders import MANIFEST, orbax, tree
from tests.formats.test_cases import CASES, ROWS, root_of

RECOGNISER = recogniser()
MIB = 2**20
MANY = 200_000
NOBODY = 65534


def one_of_each():
    """Framework -> the first of its whole checkpoints."""
    chosen = {}
    for row in ROWS:
        if row["verdict"] == "complete":
            chosen.setdefault(row["framework"], row["path"])
    return chosen


CHOSEN = one_of_each()
EACH = pytest.mark.parametrize("framework", sorted(CHOSEN))


@pytest.fixture(scope="module")
def home():
    """Where any user may look in, unlike pytest's own folders."""
    path = Path(tempfile.mkdtemp(prefix="hostile-"))
    path.chmod(0o755)
    wanted = tuple({root_of(one) + "/" for one in CHOSEN.values()})
    with tarfile.open(CASES / "checkpoints.tar.gz") as archive:
        members = [one for one in archive if one.name.removeprefix("./").startswith(wanted)]
        archive.extractall(path, members=members, filter="tar")
    yield path
    shutil.rmtree(path)


def judged(path):
    """None where there is nothing, or nothing that this user may read."""
    try:
        return RECOGNISER.judge(path)
    except (NotFound, Denied):
        return None


def is_whole(path):
    found = judged(path)
    return found is not None and found.verdict is Verdict.COMPLETE


def kinds_of_files(path):
    """A file of each kind; names that differ in digits and hashes alone are one kind."""
    found = judged(path)
    files = [file for one in found.paths for file in (sorted(one.rglob("*")) if one.is_dir() else [one])]
    kinds = {}
    for file in files:
        if file.is_file() and not file.is_symlink():
            kinds.setdefault(re.sub(r"[0-9a-f]{32}|\d+", "#", str(file.relative_to(path.parent))), file)
    return list(kinds.values())


@contextlib.contextmanager
def replaced(file, home, make):
    aside = home / "aside"
    file.rename(aside)
    try:
        make(file)
        yield
    finally:
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)
        aside.rename(file)


def a_socket(path):
    """A name in the file system; its own may be too long to bind to."""
    with socket.socket(socket.AF_UNIX) as bound, tempfile.TemporaryDirectory(dir=path.parents[2]) as short:
        bound.bind(f"{short}/s")
        os.rename(f"{short}/s", path)


def a_device(path):
    """/dev/zero itself where that may be made, else a link to it."""
    try:
        os.mknod(path, 0o20666, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


THINGS = {
    "fifo": os.mkfifo,
    "socket": a_socket,
    "device": a_device,
    "folder": lambda path: save(path / "a folder/now.txt"),
    "loop": lambda path: path.symlink_to(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link out": lambda path: path.symlink_to("/etc/passwd"),
}


@EACH
@pytest.mark.parametrize("thing", THINGS)
def test_what_is_no_file(home, framework, thing):
    """It is no better than nothing at all."""
    path = home / CHOSEN[framework]
    files = kinds_of_files(path)
    if thing == "folder":  # one that a person names may be a checkpoint; of Ray Train's files nothing is known
        files = [file for file in files if file != path and framework != "ray-train"]
    for file in files:
        with replaced(file, home, lambda _: None):
            whole_without = is_whole(path)
        with replaced(file, home, THINGS[thing]):
            assert not is_whole(path) or whole_without, (file, judged(path).why)
            list(RECOGNISER.find(home / root_of(CHOSEN[framework])))


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (os.fspath(self.path),)


def texts(folder):
    """Name -> a file of hostile content; sparse where it is long."""
    made = {}

    def add(name, content, length=0):
        made[name] = save(folder / name, content)
        if length:
            os.truncate(made[name], length)

    add("a pickle that runs", pickle.dumps(Evil(folder / "ran")))
    add("a pickle with a string of 100 MB", b"\x80\x02X" + (100 * MIB).to_bytes(4, "little"), 100 * MIB + 8)
    add("a pickle with a string that never ends", b"\x80\x04\x8d" + (2**62).to_bytes(8, "little"))
    add("a deep pickle", b"\x80\x02" + b"(" * MANY + b"t" * MANY + b".")
    add("a deep pickle of lists", b"\x80\x02" + b"]" * MANY + b"a" * (MANY - 1) + b".")
    add("a deep JSON", b'{"a":' * MANY)
    add("a wide JSON", b"[" + b"[]," * MANY + b"[]]")
    add("a number of many digits", b'{"step": ' + b"9" * MANY + b"}")
    add("a deep msgpack", b"\x81\xa1a" * MANY)
    add("a msgpack of 2**32 values", b"\xdf\xff\xff\xff\xff" + b"\xa1a\xc0" * MANY)
    add("a safetensors header of 2**63 bytes", b"\xff" * 7 + b"\x7f" + b"{}")
    add("20 GiB of nothing", b"", 20 * 1024 * MIB)
    add("nonsense", bytes(range(256)) * 64)
    with zipfile.ZipFile(folder / "a zip bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("archive/data.pkl", "config.json", "metadata.json", "model.weights.h5"):
            archive.writestr(name, bytes(64 * MIB))
    made["a zip bomb"] = folder / "a zip bomb"
    with zipfile.ZipFile(folder / "a zip that runs", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil(folder / "ran")))
        archive.writestr("archive/version", "3")
    made["a zip that runs"] = folder / "a zip that runs"
    return made


@pytest.fixture(scope="module")
def hostile(home):
    (home / "hostile").mkdir()
    return texts(home / "hostile")


def read_bytes():
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])


@EACH
def test_hostile_content(home, hostile, framework):
    path = home / CHOSEN[framework]
    for file in kinds_of_files(path):
        for name, content in hostile.items():
            with replaced(file, home, lambda at, content=content: os.link(content, at)):
                before = read_bytes()
                judged(path)
                assert read_bytes() - before < 200 * MIB, (file, name)
    assert not (home / "hostile/ran").exists()


@EACH
def test_the_search_reads_no_more_than_headers_of_20_gib(home, hostile, framework):
    path = home / CHOSEN[framework]
    for file in kinds_of_files(path):
        with replaced(file, home, lambda at: os.link(hostile["20 GiB of nothing"], at)):
            before = read_bytes()
            found = list(RECOGNISER.find(home / root_of(CHOSEN[framework])))
            assert read_bytes() - before < 50 * MIB, file
            assert found


LOOK = """
import resource, sys
from pathlib import Path
from lakemark.formats import recogniser
recognise, before = recogniser(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(one,) = recognise.find(Path(sys.argv[1])) if sys.argv[2] == "find" else [recognise.judge(Path(sys.argv[1]))]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, one.verdict, one.framework, one.step, len(one.roles))
"""


def looked_at(path, how):
    """In a process of its own: how many KiB it grew by, and what it found."""
    ran = subprocess.run([sys.executable, "-c", LOOK, path, how], check=True, capture_output=True, text=True)
    grew, *found = ran.stdout.split()
    return int(grew), found


@pytest.mark.parametrize(
    ("framework", "name"),
    [("dcp", ".metadata"), ("orbax", "_METADATA"), ("flax-legacy", ""), ("hf-trainer", "trainer_state.json")],
)
def test_memory_stays_small(home, framework, name):
    """Of the worst that a single file of 8 MiB, or of many more, can do."""
    path = home / CHOSEN[framework]
    wide = {
        "JSON": b"[" + b"[]," * (8 * MIB // 3 - 2) + b"[]]",
        "pickle": b"\x80\x02" + b"]" * 8 * MIB,
        "memo": b"\x80\x04" + b"]\x94" * 4 * MIB,
        "msgpack": b"\xdf\xff\xff\xff\xff" + b"\xa3abc\x80" * (2 * MIB),
    }
    for kind, content in wide.items():
        with replaced(path / name if name else path, home, lambda at, content=content: save(at, content)):
            grew, _ = looked_at(path, "judge")
        assert grew < 400 * 1024, (kind, grew)


NAMES = ("a=b", "a,b", "a:b", "a b", "a\nb", "ünï", os.fsdecode(b"\xff\xfe"), "'\"$(x);*?[", "-rf", "x" * 200)


@EACH
def test_names_above_change_nothing(home, framework, tmp_path):
    root = home / root_of(CHOSEN[framework])
    expected = [
        (str(one.path.relative_to(root)), one.framework, one.step, one.verdict) for one in RECOGNISER.find(root)
    ]
    for name in NAMES:
        there = tmp_path / name / "in it"
        there.parent.mkdir()
        there.symlink_to(root)  # the path alone matters
        found = [
            (str(one.path.relative_to(there)), one.framework, one.step, one.verdict) for one in RECOGNISER.find(there)
        ]
        assert found == expected, name


@EACH
@pytest.mark.parametrize("name", NAMES)
def test_names_beside_and_inside(home, framework, name):
    """A stray file or folder of any name beside a checkpoint, or in it, does not hide it."""
    path = home / CHOSEN[framework]
    strays = [path.parent / name, *([path / name] if path.is_dir() else [])]
    for stray in strays:
        save(stray)
        assert is_whole(path) or stray.parent == path
        assert path in [one.path for one in RECOGNISER.find(home / root_of(CHOSEN[framework]))]
        stray.unlink()


@contextlib.contextmanager
def as_nobody():
    """Root may read everything."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@EACH
def test_what_may_not_be_read(home, framework):
    path = home / CHOSEN[framework]
    root = home / root_of(CHOSEN[framework])
    for file in kinds_of_files(path):
        mode = file.stat().st_mode
        file.chmod(0)
        with as_nobody():
            with contextlib.suppress(LakemarkError):
                assert RECOGNISER.judge(path).verdict in Verdict
            assert [one for one in RECOGNISER.find(root) if one.path == path], file
        file.chmod(mode)


@EACH
def test_a_folder_that_may_not_be_entered(home, framework):
    path = home / CHOSEN[framework]
    root = home / root_of(CHOSEN[framework])
    folders = [folder for folder in (path, *path.rglob("*"), path.parent) if folder.is_dir()]
    for folder in folders[:12]:
        mode = folder.stat().st_mode
        folder.chmod(0)
        try:
            with as_nobody():
                list(RECOGNISER.find(root))
                with contextlib.suppress(LakemarkError):
                    assert RECOGNISER.judge(path).verdict is not Verdict.COMPLETE or folder not in {path, *path.parents}
        finally:
            folder.chmod(mode)


@EACH
def test_gone_between_the_names_and_the_look(home, framework):
    """It was listed, and when it is read it is gone, renamed, or a file now."""
    path = home / CHOSEN[framework]
    root = home / root_of(CHOSEN[framework])
    members = judged(path).paths
    makers = [lambda _: None, os.mkdir, os.mkfifo, *([lambda at: save(at, b"now a file")] if path.is_dir() else [])]
    for make in makers:
        seen = []
        with contextlib.ExitStack() as stack:

            def skip(paths, stack=stack, make=make, seen=seen):
                if not seen and set(paths) & set(members):
                    seen.append(paths)
                    stack.enter_context(replaced(paths[0], home, make))
                return False

            found = {one.path: one for one in RECOGNISER.find(root, skip=skip)}
            assert seen
            assert path not in found or found[path].verdict is not Verdict.COMPLETE, found[path].why


@EACH
def test_while_it_is_renamed_to_and_fro(home, framework):
    """No exception, and only verdicts of what was there."""
    path = home / CHOSEN[framework]
    root = home / root_of(CHOSEN[framework])
    members = judged(path).paths
    stop = threading.Event()

    def storm():
        while not stop.is_set():
            for member in members:
                member.rename(home / "away")
                (home / "away").rename(member)

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for _ in range(20):
            for one in RECOGNISER.find(root):
                assert one.verdict in Verdict
            judged(path)
    finally:
        stop.set()
        thread.join()
    assert is_whole(path)


def test_a_hundred_thousand_small_files(tmp_path):
    """One step as Orbax writes it. Few of them are opened, and what is kept of each is its name."""
    state = tmp_path / "100/state"
    orbax(tmp_path / "100")
    shutil.rmtree(state)
    save(state / "commit_success.txt")
    save(state / "_METADATA", str(tree((), ocdbt=True)).replace("'", '"').replace("True", "true"))
    save(state / "manifest.ocdbt", MANIFEST)
    first = save(state / "d" / f"{0:032x}", b"some value")
    for number in range(1, 100_000):
        if number % 20_000 == 0:
            first = save(state / f"ocdbt.process_{number // 20_000}/d" / f"{number:032x}", b"some value")
            continue
        os.link(first, first.parent / f"{number:032x}")
    for process in range(1, 5):
        save(state / f"ocdbt.process_{process}/manifest.ocdbt", MANIFEST)
    grew, found = looked_at(tmp_path, "find")
    assert found[:3] == ["complete", "orbax", "100"]
    assert int(found[3]) > 100_000
    assert grew < 250 * 1024


@pytest.mark.timeout(240)
@pytest.mark.parametrize("word", ["optim", "dataloader", "model"])
def test_a_key_of_many_digits_is_looked_at_once(word):
    """Each digit more would double the time in which a pattern gives up that can split a number in all ways."""
    assert of_key(f"{word}{'1' * 50}!") is None
    assert of_key(f"{word}_{'1' * 20}_states") is of_key(word)
