"""What lies where a regular file should, and links that lead out together: nothing hangs, nothing leaves its directory."""

import os
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lakemark.adapters.disk.files import open_regular
from lakemark.adapters.node.files import LocalFiles
from lakemark.adapters.node.restorer import LocalRestorer
from lakemark.errors import Corrupt, LakemarkError, Refused
from lakemark.model.checkpoints.manifest import File, FileType, Manifest, check_links
from lakemark.ports import Quiet
from lakemark.services.back.restore import restore
from lakemark.services.node.sweep import sweep
from lakemark.services.tiers.verify import verify
from tests.services.on_disk import RUN, plain


@contextmanager
def ends():
    """A call that waits for the other end of a pipe never would."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def committed(yard):
    yard.open()
    yard.commit(plain(yard.out, 1), 1)
    return yard.at(1)


def pipe_at(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("what", ["a file", "the marker", "the identity", "the bundle"])
def test_a_pipe_in_hot_keeps_nobody_waiting(yard, tmp_path, what):
    found = committed(yard)
    site = yard.site()
    sweep(site)
    held = site.hot.load(found.record.id)
    root = site.hot.root
    places = {
        "a file": site.hot.path(held.record) / "model.bin",
        "the marker": root / ".lakemark" / "sealed" / f"{found.record.id}.json",
        "the identity": root / "lakemark-tier.json",
        "the bundle": root / ".lakemark" / "ledger.bundle",
    }
    pipe_at(places[what])
    with ends():
        verify(site, [found])
        back = restore(site, RUN, found.record.id, to=tmp_path / "back").restored.path
        assert (back / "model.bin").read_bytes() == b"weights 1"
        if what != "the identity":
            sweep(site)
        if what == "the bundle":
            with pytest.raises(Corrupt, match="no regular file"):
                site.hot.open_ledger()


def test_a_pipe_in_a_trainer_s_directory_keeps_nobody_waiting(yard):
    yard.open()
    os.mkfifo(plain(yard.out, 1) / "log.bin")
    os.mkfifo(yard.out / "step-2.bin")
    plain(yard.out, 3)
    with ends():
        swept = yard.sweep()
    assert [done.record.step for done in swept.committed] == [3]


def test_a_pipe_where_a_restored_file_should_lie(tmp_path):
    os.mkfifo(tmp_path / "a")
    manifest = Manifest(files=(File(path="a", size_bytes=1, digest="1" * 64),))
    with ends():
        assert not LocalRestorer().matches(tmp_path, manifest, progress=Quiet())
        with pytest.raises(LakemarkError):
            LocalFiles().digest(tmp_path / "a")
        with pytest.raises(Corrupt):
            open_regular(tmp_path / "a")


# Links


LINKS = [
    ({"sub/l1": ".", "sub/l2": "l1/../../outside.txt"}, True),
    ({"a/u": "..", "a/c": "u/../x"}, True),
    ({"d": "a/b", "a/b/up": "..", "l": "d/../../../x"}, True),
    ({"l1": ".", "l2": "l1/../outside.txt"}, True),
    ({"l": "m", "m": "n", "n": "x/.."}, False),
    ({"best": "a/model.pt", "a/back": "..", "deep/l": "../a/back/best"}, False),
    ({"d": "a/b", "l": "d/../../x"}, False),
    ({"loop": "loop", "l": "loop/../loop"}, False),
]


@pytest.mark.parametrize(("links", "out"), LINKS, ids=str)
def test_links_are_followed_as_the_kernel_follows_them(tmp_path, links, out):
    """Against the kernel itself, where it gets anywhere."""
    inside = tmp_path / "one" / "two" / "checkpoint"
    for folder in ("a/b", "sub", "deep", "x"):
        (inside / folder).mkdir(parents=True)
    for path, target in links.items():
        (inside / path).symlink_to(target)
    leaves = [not os.path.realpath(inside / path).startswith(f"{inside}") for path in links]
    assert any(leaves) is out
    if out:
        with pytest.raises(Refused, match="leads outside"):
            check_links(links)
    else:
        check_links(links)


def test_a_checkpoint_whose_links_lead_out_together_is_neither_sealed_nor_restored(yard):
    yard.open()
    path = plain(yard.out, 1)
    (yard.out / "outside.txt").write_text("a secret")
    (path / "sub").mkdir()
    (path / "sub" / "l1").symlink_to(".")
    (path / "sub" / "l2").symlink_to("l1/../../outside.txt")
    with pytest.raises(Refused, match="leads outside"):
        yard.commit(path, 1)
    assert yard.in_hot() == set()
    links = (
        File(path="sub/l1", type=FileType.SYMLINK, target="."),
        File(path="sub/l2", type=FileType.SYMLINK, target="l1/../../outside.txt"),
    )
    with pytest.raises(Refused, match="leads outside"):
        Manifest(files=links)
    told = Manifest(files=links[:1]).as_json()
    with pytest.raises(Corrupt, match="leads outside"):
        Manifest.from_json(told | {"files": [*told["files"], replace(links[1]).as_json()]})
