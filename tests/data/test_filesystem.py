import pickle

import fsspec
import pytest

from lakemark.data import NotPinned, filesystem, paths
from lakemark.data.lakefs import LakeFS
from tests.data.conftest import BIG, OBJECTS

pytestmark = [pytest.mark.xdist_group("lakefs"), pytest.mark.usefixtures("keys")]


@pytest.fixture
def fs(cache):
    return filesystem(cache=cache)


def test_names(fs, uri):
    root = uri.removeprefix("lakefs://")
    assert fs.ls(f"{uri}train", detail=False) == [
        f"{root}train/{name}" for name in ("0.parquet", "1.parquet", "deep", "empty")
    ]
    assert [fs.info(f"{uri}{path}")["type"] for path in ("train", "train/", "train/0.parquet", "", "both")] == [
        "directory",
        "directory",
        "file",
        "directory",
        "file",
    ]
    assert sorted(one.removeprefix(root) for one in fs.find(uri)) == sorted(OBJECTS)
    assert fs.find(f"{uri}train/0.parquet") == [f"{root}train/0.parquet"]
    assert [one.removeprefix(root) for one in fs.glob(f"{uri}train/*.parquet")] == [
        "train/0.parquet",
        "train/1.parquet",
    ]
    assert f"{root}train/deep" in fs.find(f"{uri}train", withdirs=True)
    assert f"{root}train/deep" in fs.glob(f"{uri}train/**")
    assert {folder.removeprefix(root.rstrip("/")): len(files) for folder, _, files in fs.walk(f"{uri}train")} == {
        "/train": 3,
        "/train/deep": 1,
    }
    assert fs.size(f"{uri}big.bin") == len(BIG)
    assert (fs.exists(f"{uri}train"), fs.exists(f"{uri}trai"), fs.isdir(f"{uri}train/deep")) == (True, False, True)
    assert fs.checksum(f"{uri}train/0.parquet") == fs.info(f"{uri}train/0.parquet")["checksum"] != ""


@pytest.mark.parametrize("path", sorted(OBJECTS))
def test_bytes(fs, uri, path):
    assert fs.cat_file(uri + path) == OBJECTS[path]
    with fs.open(uri + path) as file:
        assert file.read() == OBJECTS[path]


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 1), (5, 5), (9, 3), (-3, None), (None, -5), (8 * 2**20 - 1, 8 * 2**20 + 1), (100, 17 * 2**20), (2**40, None)],
)
def test_parts(fs, uri, start, end):
    assert fs.cat_file(f"{uri}big.bin", start, end) == BIG[start:end]


def test_a_large_file_is_read_where_it_is_needed(fs, uri, cache, tmp_path):
    with fs.open(f"{uri}big.bin") as file:
        file.seek(17 * 2**20)
        assert file.read(1000) == BIG[17 * 2**20 : 17 * 2**20 + 1000]
        file.seek(-5, 2)
        assert file.read() == BIG[-5:]
    kept = [path.stat().st_size for path in (tmp_path / "cache/objects").glob("*/*")]
    assert kept == [4 * 2**20]  # the last block alone
    with fs.open(f"{uri}train/0.parquet", "r") as text:
        assert text.read() == "zero"


def test_the_pin_is_the_point(fs, uri, scratch, cache):
    repository = scratch.repository
    for moving in ("main", "c" * 12, "main~1"):
        with pytest.raises(NotPinned, match="no full commit id"):
            fs.cat_file(f"lakefs://{repository}/{moving}/train/0.parquet")
    assert fs.cat_file(f"{uri}train/0.parquet") == b"zero"
    now = filesystem(cache=cache, moving=True)
    assert now.cat_file(f"lakefs://{repository}/main/train/0.parquet") == b"changed"
    scratch.put("main", {"later": b"even later"})
    assert now.cat_file(f"lakefs://{repository}/main/later") == b"later"


def test_a_branch_that_looks_like_a_commit(fs, scratch, commit):
    scratch.make_branch("f" * 64, commit)
    with pytest.raises((NotPinned, FileNotFoundError)):
        fs.cat_file(f"lakefs://{scratch.repository}/{'f' * 64}/train/0.parquet")


def test_what_is_not_there(fs, uri, scratch):
    elsewhere = (f"lakefs://{repository}/{'0' * 64}/x" for repository in (scratch.repository, "no-such-repo"))
    for path in (f"{uri}none", f"{uri}train/none", *elsewhere):
        with pytest.raises(FileNotFoundError):
            fs.cat_file(path)
        with pytest.raises(FileNotFoundError):
            fs.info(path)
    with pytest.raises(ValueError, match="is not lakefs://repository/commit/path"):
        fs.info("lakefs://Not_a_repository/x")


def test_keys_that_are_wrong(cache, uri, monkeypatch):
    monkeypatch.setenv("LAKEFS_SECRET_ACCESS_KEY", "wrong")
    LakeFS.clear_instance_cache()
    with pytest.raises(PermissionError, match="LAKEFS_SECRET_ACCESS_KEY"):
        filesystem(cache=cache).cat_file(f"{uri}train/0.parquet")
    LakeFS.clear_instance_cache()


def test_nothing_is_written(fs, uri):
    for attempt in (
        lambda: fs.open(f"{uri}x", "wb"),
        lambda: fs.pipe_file(f"{uri}x", b"x"),
        lambda: fs.rm(f"{uri}train/0.parquet"),
        lambda: fs.mkdir(f"{uri}x"),
        lambda: fs.touch(f"{uri}x"),
    ):
        with pytest.raises(OSError, match="read-only"):
            attempt()


def test_worker_processes_get_no_secret(fs, uri, server):
    sent = pickle.dumps(fs)
    assert server.secret_access_key.encode() not in sent
    assert pickle.loads(sent).cat_file(f"{uri}train/1.parquet") == b"one"


def test_other_libraries_find_it_by_the_scheme(uri, cache):
    with fsspec.open(f"{uri}train/1.parquet", cache=cache) as file:
        assert file.read() == b"one"
    opened = fsspec.open_files(f"{uri}train/*.parquet", cache=cache)
    assert [one.path.rpartition("/")[2] for one in opened] == ["0.parquet", "1.parquet"]


def test_local_paths(uri, cache, scratch, commit):
    found = paths(uri, cache=cache)
    assert sorted(path.read_bytes() for path in found) == sorted(OBJECTS.values())
    names = {path.name.replace("as_well", "as well") for path in found}  # a file system has no `both` beside `both/…`
    assert names == {name.rpartition("/")[2] for name in OBJECTS}
    below = f"{scratch.repository}/{commit[:12]}"
    assert str(paths(f"{uri}train/", "*.parquet", cache=cache)[0]).endswith(f"{below}/train/0.parquet")
    assert paths(uri, "none*", cache=cache) == []
    assert {path.stat().st_mode & 0o777 for path in found} == {0o444}
    with pytest.raises(OSError, match="don't fit the cache"):
        paths(uri, cache=cache, cache_bytes=2**20)


def test_all_bytes_come_from_the_cache_the_second_time(uri, cache):
    assert filesystem(cache=cache).cat_file(f"{uri}big.bin") == BIG
    again = filesystem(cache=cache)
    known = again.info(f"{uri}big.bin")
    assert known["size"] == len(BIG)
    again._server.endpoint = "http://127.0.0.1:9"
    assert again.cat_file(f"{uri}big.bin") == BIG


def test_without_a_cache(uri):
    fs = filesystem(cache="")
    assert fs.cat_file(f"{uri}big.bin", 5, 9 * 2**20) == BIG[5 : 9 * 2**20]
    with pytest.raises(OSError, match="need a cache"):
        paths(uri, cache="")
