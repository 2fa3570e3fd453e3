import io
import multiprocessing

import pytest

from lakemark.errors import Misconfigured, NotFound, Usage
from lakemark.reader import Address, list_uri, open_uri, parse_uri, read_uri

pytestmark = pytest.mark.xdist_group("lakefs")

COMMIT = "0f" * 32


@pytest.fixture(scope="module")
def scratch(lakefs):
    scratch = lakefs.scratch()
    scratch.put("main", {"train/a b%20+&ü": b"spaced", "large": bytes(range(256)) * 10_000})
    return scratch


@pytest.fixture
def uri(scratch):
    return f"lakefs://{scratch.repository}/{scratch.data.head(scratch.repository, 'main')}/"


def test_an_address_taken_apart():
    assert parse_uri(f"lakefs://data/{COMMIT}/train/a b%20.npz") == Address("data", COMMIT, "train/a b%20.npz")
    assert parse_uri(f"lakefs://data/{COMMIT}/") == parse_uri(f"lakefs://data/{COMMIT}") == Address("data", COMMIT, "")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "data/main/x",
        "s3://data/main/x",
        "lakefs://",
        f"lakefs:///{COMMIT}/x",
        "lakefs://data/main/x",
        f"lakefs://data/{COMMIT[:12]}/x",
        f"lakefs://data/{COMMIT.upper()}/x",
        f"lakefs://data/{COMMIT}0/x",
        f"LAKEFS://data/{COMMIT}/x",
    ],
)
def test_only_full_commit_ids_are_read(uri):
    for call in (parse_uri, open_uri, read_uri, list_uri):
        with pytest.raises(Usage):
            call(uri)


@pytest.mark.parametrize("call", [open_uri, read_uri])
def test_a_whole_version_is_no_object(call):
    with pytest.raises(Usage, match="whole data version"):
        call(f"lakefs://data/{COMMIT}/")


def test_what_is_listed_can_be_read(scratch, uri):
    listed = list(list_uri(f"{uri}train/", data=scratch.data))
    assert [path for path, _ in listed] == ["train/0", "train/1", "train/2", "train/a b%20+&ü"]
    for path, size_bytes in listed:
        assert len(read_uri(uri + path, data=scratch.data)) == size_bytes
    assert read_uri(f"{uri}train/a b%20+&ü", data=scratch.data) == b"spaced"


@pytest.mark.parametrize("size", [1, 1000, 1 << 20, 1 << 22])
def test_a_file_gives_the_same_bytes_whatever_is_asked_at_once(scratch, uri, size):
    with open_uri(f"{uri}large", data=scratch.data) as file:
        assert (file.readable(), file.seekable(), file.writable()) == (True, False, False)
        head = file.read(size)
        assert head + file.read() == bytes(range(256)) * 10_000
        assert file.read(1) == b""


def test_a_file_has_lines(scratch, uri):
    scratch.put("main", {"lines": b"one\ntwo\n"})
    commit = scratch.data.head(scratch.repository, "main")
    with open_uri(f"lakefs://{scratch.repository}/{commit}/lines", data=scratch.data) as file:
        assert list(io.TextIOWrapper(file)) == ["one\n", "two\n"]


def test_a_missing_object_is_told_when_it_is_opened(scratch, uri):
    with pytest.raises(NotFound):
        open_uri(f"{uri}none", data=scratch.data)


CONFIGURATION = """\
site: test
node: n
ledger: {{path: ledger.git, remote: null}}
data: {data}
tiers: {{hot: {{class: hot, kind: tree, path: hot}}}}
"""


@pytest.fixture
def configured(lakefs, tmp_path, monkeypatch):
    """A function that writes lakemark.yaml with this `data:` and makes it the one that applies."""

    def write(data):
        file = tmp_path / "lakemark.yaml"
        file.write_text(CONFIGURATION.format(data=data))
        monkeypatch.setenv("LAKEMARK_CONFIG", str(file))
        monkeypatch.setenv("LAKEFS_ACCESS_KEY_ID", lakefs.access_key_id)
        monkeypatch.setenv("LAKEFS_SECRET_ACCESS_KEY", lakefs.secret_access_key)

    return write


def in_new_process(call, uri):
    """A new process: what is configured is remembered for the life of one."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, (uri,))


def test_by_default_the_configured_server_is_read(lakefs, configured, uri):
    configured(f"{{endpoint: '{lakefs.endpoint}'}}")
    assert in_new_process(read_uri, f"{uri}train/1") == b"bytes of 1"


def test_without_data_versions_there_is_nothing_to_read(configured, uri):
    configured("none")
    with pytest.raises(Misconfigured, match="none"):
        in_new_process(read_uri, f"{uri}train/1")
