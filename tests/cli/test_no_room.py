"""A site on a disk that is full, or may not be written: what is known can still be read."""

import subprocess

import pytest

from tests.adapters.disks import tmpfs
from tests.cli.conftest import Cli, environment, train

READING = (("status",), ("ls", "r1"), ("show", "r1@200"), ("run", "ls"), ("as-of", "r1", "0m"), ("log", "r1"))


@pytest.fixture
def small(tmp_path, require_root, monkeypatch, capsys):
    """A site with the steps 100, 200 and 300 of `r1` on a disk of its own."""
    with tmpfs(tmp_path / "disk", "size=16m") as disk:
        monkeypatch.chdir(disk)
        train(disk)
        yield Cli(disk, capsys, monkeypatch, environment(disk))
        monkeypatch.chdir(tmp_path)


def fill(disk):
    with pytest.raises(OSError, match="No space left"):
        (disk / "fill").write_bytes(bytes(17 << 20))


def answers(cli, words):
    done = cli(*words, "--json")
    assert done.code in (0, 4), done.err
    return done


def test_of_a_full_disk_everything_can_be_read(small):
    before = {words: small(*words, "--json").json for words in READING[1:3]}
    fill(small.home)
    for words in READING:
        after = answers(small, words).json
        assert before.get(words, after) == after
    path = small.home.parent / "step-400"
    path.mkdir()
    (path / "weights.bin").write_bytes(b"weights")
    done = small("commit", path, "--run", "r1", "--step", 400)
    assert done.code == 7, done.err
    assert "Make room" in done.err
    (small.home / "fill").unlink()
    assert small.ok("commit", path, "--run", "r1", "--step", 400)["step"] == 400


def test_of_a_disk_that_may_not_be_written_too(small):
    subprocess.run(["mount", "-o", "remount,ro", str(small.home)], check=True)
    for words in READING:
        assert "ledger.index.sqlite" in answers(small, words).err
    assert small("sweep").code == 8
