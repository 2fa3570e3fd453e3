"""What was set aside of a ledger stays there, however often more is."""

import zlib

import pytest

from lakemark.adapters.git.copies import set_reference_aside
from lakemark.adapters.git.damage import DAMAGED, set_damaged_aside
from lakemark.adapters.git.make import init
from lakemark.adapters.git.mend import mend
from lakemark.adapters.git.refs import RUNS, SITE


@pytest.fixture
def path(tmp_path):
    init(tmp_path / "ledger.git", "0" * 8)
    return tmp_path / "ledger.git"


def kept(path):
    return sorted(one.read_bytes() for one in (path / DAMAGED).iterdir())


@pytest.mark.parametrize("name", ["config", "HEAD", SITE, "packed-refs"])
def test_what_mending_sets_aside_again_leaves_what_it_set_aside_before(path, name):
    for text in (b"first", b"second", b"third"):
        (path / name).write_bytes(text)
        assert mend(path, lambda: "0" * 8)
    assert kept(path) == [b"first", b"second", b"third"]


def test_a_branch_set_aside_again_leaves_where_it_stood_before(path):
    for commit in ("1" * 40, "2" * 40):
        (path / RUNS / "x").write_text(commit)
        set_reference_aside(path, RUNS + "x")
    assert kept(path) == [b"1" * 40, b"2" * 40]


def test_an_object_damaged_again_leaves_what_was_left_of_it_before(path):
    place = path / "objects" / "00" / ("0" * 38)
    for data in (b"one", b"two"):
        place.write_bytes(zlib.compress(data))
        assert set_damaged_aside(path) == ["0" * 40]
    assert sorted(map(zlib.decompress, kept(path))) == [b"one", b"two"]
