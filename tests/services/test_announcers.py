"""A spool file says where a save lies, and any container may write one: what is not its writer's own is not taken."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from lakemark.adapters.node.announcers import why_not
from lakemark.adapters.node.run_files import SPOOL_FORMAT
from tests.services.on_disk import RUN, Yard, plain

NOBODY = 65534


@pytest.fixture
def place(require_root):
    """Where any user may go."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


def save(folder, step, *, uid=NOBODY, mode=0o600):
    path = plain(folder, step)
    os.chown(path, uid, uid)
    for file in path.iterdir():
        os.chown(file, uid, uid)
        file.chmod(mode)
    return path


def announcement(place, *, uid=NOBODY, path="/x", step=1):
    value = {
        "format": SPOOL_FORMAT,
        "run": RUN,
        "path": str(path),
        "step": step,
        "saved_at": "2026-03-01T12:00:00.000000Z",
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(value))
    os.chown(place, uid, uid)
    return place


def why(place, path, *, uid=NOBODY, inside=()):
    return why_not(announcement(place / "spool" / "1.json", uid=uid), [path], inside=inside)


def test_one_s_own_files_are_taken_whatever_their_mode(place):
    assert why(place, save(place, 1, mode=0o000)) is None


def test_what_everybody_may_read_is_taken(place):
    assert why(place, save(place, 1, uid=0, mode=0o644)) is None


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/gshadow"])
def test_a_file_of_the_host_is_not(place, path):
    assert "may not be read by the user 65534" in why(place, Path(path))
    assert why(place, Path(path), uid=0) is None


def test_one_foreign_file_in_a_save_is_enough(place):
    path = save(place, 1)
    os.chown(path / "optim.bin", 0, 0)
    assert "optim.bin" in why(place, path)


def test_a_link_is_what_it_leads_to(place):
    (place / "mine").symlink_to("/etc/shadow")
    os.chown(place / "mine", NOBODY, NOBODY, follow_symlinks=False)
    assert "may not be read" in why(place, place / "mine")


def test_a_closed_directory_on_the_way_counts(place):
    (place / "closed").mkdir(mode=0o700)
    assert "closed" in why(place, save(place / "closed", 1, uid=0, mode=0o644))


def test_it_lies_in_the_run_s_own_directories_where_there_are_any(place):
    (place / "out").mkdir()
    (place / "out-of-it").mkdir()
    inside, outside = save(place / "out", 1), save(place / "out-of-it", 2)
    (place / "out" / "link").symlink_to(outside)
    (place / "way").symlink_to(place / "out")
    assert why(place, inside, inside=[place / "out"]) is None
    assert why(place, inside, inside=[place / "way"]) is None
    assert why(place, place / "way" / "step-1", inside=[place / "out"]) is None
    for path in (outside, place / "out" / "link", place / "out" / ".." / "out-of-it" / "step-2"):
        assert "lies outside" in why(place, path, uid=0, inside=[place / "out"])
    assert why(place, outside) is None


def test_a_sweep_says_so_and_keeps_the_rest_going(place):
    yard = Yard(place / "home")
    yard.open()
    site = yard.site()
    secret = place / "secret"
    secret.mkdir(mode=0o700)
    mine, theirs = save(yard.out, 100), save(secret, 200, uid=0)
    for step, path in ((100, mine), (200, theirs)):
        announcement(site.spool_of(RUN) / f"{step}.json", path=path, step=step)
    swept = yard.sweep()
    assert yard.steps() == [100]
    assert [one.why for one in swept.pending if "step 200" in one.why and "is not taken" in one.why] or any(
        "is not taken" in str(one) for one in swept.pending
    )
    assert [file.name for file in site.spool_of(RUN).glob("*.json")] == ["200.json"]
