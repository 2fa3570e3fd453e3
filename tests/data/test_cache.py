import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakemark.data import filesystem, paths
from lakemark.data.cache import Cache, CacheFull, key_of
from tests.data.faulty import COMMIT

KEY = key_of("an object")
A = f"lakefs://data/{COMMIT}/a"
WHOLE = b"0123456789" * 1000


def put(cache, key, content):
    return cache.get(key, len(content), lambda stream: stream.write(content))


def unwanted(_stream):
    raise AssertionError("it is here already")


def entries(cache):
    return sorted(path for path in (cache.folder / "objects").rglob("*") if path.is_file())


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache", 10 * 2**20)


def test_an_entry_is_made_once(cache):
    path = put(cache, KEY, b"bytes")
    assert path.read_bytes() == b"bytes"
    assert path.stat().st_mode & 0o777 == 0o444
    assert cache.get(KEY, 5, unwanted) == path
    assert Cache(cache.folder, 10).get(KEY, 5, unwanted) == path
    assert list((cache.folder / "tmp").glob("*.part")) == []


def test_an_entry_of_another_length_is_made_again(cache):
    path = put(cache, KEY, b"bytes")
    path.chmod(0o600)
    path.write_bytes(b"cut")
    assert put(cache, KEY, b"bytes").read_bytes() == b"bytes"


def test_what_fails_leaves_nothing(cache):
    def fails(stream):
        stream.write(b"half")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        cache.get(KEY, 9, fails)
    with pytest.raises(OSError, match="4 bytes came instead of 9"):
        cache.get(KEY, 9, lambda stream: stream.write(b"half"))
    assert [path.name for path in (cache.folder / "tmp").iterdir() if path.suffix == ".part"] == []
    assert entries(cache) == []


def test_the_bound_holds(cache):
    for number in range(200):
        put(cache, key_of(number), bytes(100_000))
        assert sum(path.stat().st_blocks * 512 for path in entries(cache)) <= cache.limit_bytes
    assert len(entries(cache)) > 40
    assert (
        abs(int((cache.folder / "used").read_text()) - sum(path.stat().st_blocks * 512 for path in entries(cache))) == 0
    )


def test_the_oldest_of_a_shelf_goes_first(cache):
    keys = [f"00{number:046x}" for number in range(20)]
    for age, key in enumerate(reversed(keys)):
        path = put(cache, key, bytes(400_000))
        os.utime(path, (1e9 - age * 1000, 1e9 - age * 1000))
    put(cache, key_of("one more"), bytes(5_000_000))
    left = {path.name for path in entries(cache)}
    assert key_of("one more") in left
    assert set(keys[10:]) & left == set(keys[10:])
    assert not set(keys[:10]) & left


def test_larger_than_the_cache(cache):
    with pytest.raises(CacheFull, match="are more than"):
        put(cache, KEY, bytes(11 * 2**20))


def test_a_full_disk(cache):
    def full(_stream):
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(CacheFull):
        cache.get(KEY, 5, full)


def test_reading_goes_on_without_room(faulty, tmp_path):
    fs = filesystem(cache=str(tmp_path / "c"), cache_bytes=10)
    assert fs.cat_file(A) == WHOLE
    assert fs.cat_file(f"lakefs://data/{COMMIT}/b") == b"b"
    assert [path.stat().st_size for path in (tmp_path / "c/objects").glob("*/*")] == [1]


def test_a_lost_count_is_made_again(cache):
    put(cache, KEY, bytes(100_000))
    (cache.folder / "used").unlink(missing_ok=True)
    put(cache, key_of(2), bytes(100_000))
    assert int((cache.folder / "used").read_text()) == sum(path.stat().st_blocks * 512 for path in entries(cache))


def test_threads_fetch_an_object_once(faulty, tmp_path):
    fs = filesystem(cache=str(tmp_path / "c"))
    fs.info(A)
    threads = [threading.Thread(target=fs.cat_file, args=(A,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faulty.ranges == ["bytes=0-9999"]


READ = (
    "import sys; from lakemark.data import filesystem; print(len(filesystem(cache=sys.argv[2]).cat_file(sys.argv[1])))"
)
FILL = """
import os, sys, time
from pathlib import Path
from lakemark.data.cache import Cache
def fill(stream):
    stream.write(b"half"); stream.flush(); print("half", flush=True); time.sleep(600)
cache = Cache(Path(sys.argv[1]), 2**20)
if sys.argv[3] == "fill":
    cache.get(sys.argv[2], 8, fill)
print(cache.hold(cache.get(sys.argv[2], 8, lambda stream: stream.write(b"complete")), "a/b.txt"), flush=True)
time.sleep(600)
"""


def test_processes_of_a_node_fetch_an_object_once(faulty, tmp_path):
    command = [sys.executable, "-c", READ, A, str(tmp_path / "c")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [one.communicate(timeout=240)[0].strip() for one in running] == ["10000"] * 3
    assert faulty.ranges == ["bytes=0-9999"]


def killed(cache, how):
    """Runs until it has said a line, then as `kill -9`; answers the line."""
    command = [sys.executable, "-c", FILL, str(cache.folder), KEY, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        line = running.stdout.readline().strip()
        yield line
        running.send_signal(signal.SIGKILL)
        running.wait(240)


def test_killed_while_it_fetches(cache):
    for line in killed(cache, "fill"):
        assert line == "half"
        assert entries(cache) == []
    assert put(cache, KEY, b"complete").read_bytes() == b"complete"
    assert list((cache.folder / "tmp").glob("*.part")) == []


def test_names_are_held_as_long_as_the_process_lives(cache):
    for line in killed(cache, "hold"):
        held = Path(line)
        assert held.name == "b.txt"
        Cache(cache.folder, 2**20)  # sweeps
        cache._evict(2**30)
        assert held.read_bytes() == b"complete"
        assert [path.name for path in entries(cache)] == [KEY]  # removing it would free nothing
    Cache(cache.folder, 2**20)
    assert not held.exists()
    assert list((cache.folder / "held").iterdir()) == []


def test_odd_names_of_objects(faulty, tmp_path):
    faulty.objects |= {
        "../../out": b"1",
        "a/b": b"2",
        "/x": b"3",
        "d//e": b"4",
        "y" * 300: b"5",
        "..": b"6",
        "q/.": b"7",
    }
    found = paths(f"lakefs://data/{COMMIT}/", cache=str(tmp_path / "c"))
    assert sorted(path.read_bytes() for path in found) == sorted(faulty.objects.values())
    held = tmp_path / "c/held"
    assert all(held in path.resolve().parents for path in found)


def test_a_fork_has_connections_and_names_of_its_own(faulty, tmp_path):
    fs = filesystem(cache=str(tmp_path / "c"))
    assert fs.cat_file(f"lakefs://data/{COMMIT}/b") == b"b"
    child = os.fork()
    if not child:
        os._exit(0 if fs.cat_file(A) == WHOLE else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert fs.cat_file(A) == WHOLE


SWEEPS = """
import contextlib, fcntl, os, sys
held, seen = sys.argv[1], set()
print("ready", flush=True)
while len(seen) < 400 and os.getppid() == int(sys.argv[2]):
    for name in os.listdir(held):
        if name.endswith(".lock") and name not in seen:
            seen.add(name)
            with contextlib.suppress(OSError), open(f"{held}/{name}", "r+") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(f"{held}/{name}")
"""


def test_a_name_is_held_although_another_process_sweeps_at_this_moment(cache):
    path = put(cache, KEY, b"bytes")
    caches = [Cache(cache.folder, cache.limit_bytes) for _ in range(400)]
    arguments = [sys.executable, "-c", SWEEPS, str(cache.folder / "held"), str(os.getpid())]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as sweeper:
        assert sweeper.stdout.readline() == b"ready\n"
        names = [one.hold(path, "name") for one in caches]
        sweeper.kill()
    assert [name for name in names if not name.parent.with_suffix(".lock").exists()] == []
