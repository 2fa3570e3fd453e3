import pytest

from lakemark.data import DataError, DataGone, filesystem
from lakemark.data.cache import CacheFull
from tests.data.faulty import COMMIT

A = f"lakefs://data/{COMMIT}/a"
WHOLE = b"0123456789" * 1000


@pytest.fixture
def fs(faulty):
    found = filesystem(cache="", endpoint=faulty.endpoint)
    found._server.timeout_seconds = 2
    return found


@pytest.mark.parametrize(
    "faults", [[500], [503, 429, 502], ["no answer"], ["short"], ["short", 500, "short", "no answer"]]
)
def test_what_passes_is_tried_again(fs, faulty, faults):
    faulty.faults = list(faults)
    assert fs.cat_file(A) == WHOLE


def test_a_transfer_goes_on_where_it_broke_off(fs, faulty):
    faulty.faults = ["short", "short"]
    assert fs.cat_file(A) == WHOLE
    assert faulty.ranges == ["bytes=0-9999", "bytes=5000-9999", "bytes=7500-9999"]


def test_tries_are_bounded(fs, faulty):
    fs._server.tries = 3
    faulty.faults = [503] * 10
    with pytest.raises(DataError, match=r"a in cccccccccccc of data: .* failed 3 times, lastly: 503"):
        fs.cat_file(A)
    assert len(faulty.ranges) == 3


@pytest.mark.parametrize(
    ("fault", "raised", "text"),
    [
        (410, DataGone, "its bytes were collected"),
        (403, PermissionError, "LAKEFS_ACCESS_KEY_ID"),
        (404, FileNotFoundError, "a in"),
        (400, DataError, "so it was asked"),
        ("other bytes", DataError, "the server sends other, the commit has"),
        ("other range", DataError, "asked from byte 0"),
    ],
)
def test_what_does_not_pass_is_said_at_once(fs, faulty, fault, raised, text):
    faulty.faults = [fault]
    with pytest.raises(raised, match=text):
        fs.cat_file(A)
    assert len(faulty.ranges) == 1


def test_a_server_that_ignores_ranges(fs, faulty):
    faulty.faults = ["no range"]
    assert fs.cat_file(A) == WHOLE
    faulty.faults = ["no range"]
    with pytest.raises(DataError, match="ignores ranges"):
        fs.cat_file(A, 10, 20)


def test_a_server_that_is_not_there(faulty, monkeypatch):
    monkeypatch.setenv("LAKEFS_ENDPOINT", "http://127.0.0.1:9")
    fs = filesystem(cache="", skip_instance_cache=True)
    fs._server.tries = 2
    with pytest.raises(DataError, match="failed 2 times"):
        fs.info(A)


def test_no_server_is_named(faulty, monkeypatch):
    monkeypatch.delenv("LAKEFS_ENDPOINT")
    with pytest.raises(DataError, match="set LAKEFS_ENDPOINT"):
        filesystem(cache="", skip_instance_cache=True)


def test_a_failing_disk_is_not_the_networks_fault(fs, faulty):
    reader, _, _ = fs._at(A)

    def full(_):
        raise CacheFull(28, "full")

    with pytest.raises(CacheFull):
        fs._server.fetch("data", COMMIT, reader.stat("a"), full, start=0, length=10)
    assert len(faulty.ranges) == 1


def test_keys_from_files(faulty, monkeypatch, tmp_path):
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.delenv("LAKEFS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("LAKEFS_SECRET_ACCESS_KEY_FILE", str(tmp_path / "secret"))
    fs = filesystem(cache="", skip_instance_cache=True)
    assert fs._server.secret == "from a file"
    assert "from a file" not in repr(fs._server)
    monkeypatch.delenv("LAKEFS_SECRET_ACCESS_KEY_FILE")
    with pytest.raises(DataError, match="LAKEFS_SECRET_ACCESS_KEY is not set"):
        filesystem(cache="", skip_instance_cache=True)
