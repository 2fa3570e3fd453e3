"""What lies where an object of ours should is a directory, or a pipe: the way out is one command, and everything else goes on."""

import os
import shlex
import subprocess

import pytest

from tests.cli.conftest import save


def objects(cli, suffix=""):
    return sorted(
        path for path in (cli.home / "cold" / "files" / "md5").glob("*/*") if path.name.endswith(".dir") == bool(suffix)
    )


def claim(cli):
    return next((cli.home / "cold" / "lakemark" / "records").iterdir())


def replaced_by_directory(path):
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("somebody's")


def replaced_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


PLACES = {
    "object": lambda cli: objects(cli)[0],
    "directory object": lambda cli: objects(cli, ".dir")[0],
    "claim": claim,
}


@pytest.mark.parametrize("what", PLACES)
def test_a_directory_is_moved_away_by_a_person_with_the_line_that_is_given(trained, what):
    place = PLACES[what](trained)
    replaced_by_directory(place)
    found = trained("verify", "--repair", "--json")
    assert found.code == 4
    (advice,) = {one["next"] for one in found.json["unreachable"] if "not repaired" in one["why"]}
    line = advice.partition("`")[2].partition("`")[0]
    assert shlex.split(line)[:2] == ["mv", str(place)], advice
    assert "not repaired" in trained("verify", "--repair").out  # people are told, too
    assert advice in trained("verify", "--repair").out

    # Whoever has not done it yet is told the same by a sweep, and everything else goes on.
    trained.ok("commit", save(trained.home / "out", 400), "--run", "r1", "--step", 400)
    swept = trained.ok("sweep")
    assert advice in {one["next"] for one in swept["pending"]}
    trained.ok("restore", "r1@100", "--to", trained.home / "back")

    subprocess.run(shlex.split(line), check=True)
    assert trained("verify", "--repair", "--json").code == 0
    assert trained.ok("verify")["damaged"] == []


@pytest.mark.parametrize("what", PLACES)
def test_a_pipe_holds_nothing_and_is_written_over(trained, what):
    replaced_by_pipe(PLACES[what](trained))
    assert trained("verify", "--json").code == 4
    assert trained("verify", "--repair", "--json").code == 0
    assert trained.ok("verify")["damaged"] == []


@pytest.mark.parametrize("replaced", [replaced_by_directory, replaced_by_pipe])
def test_a_file_in_hot_is_damage_and_comes_back(trained, replaced):
    replaced(next((trained.home / "hot" / "r1").glob("*/weights.bin")))
    assert [one["tier"] for one in trained("verify", "--json").json["damaged"]] == ["hot"]
    assert trained("verify", "--repair", "--json").code == 0
    assert trained.ok("verify")["damaged"] == []


@pytest.mark.parametrize("replaced", [replaced_by_directory, replaced_by_pipe])
def test_an_identity_that_is_no_file_is_red_and_said(trained, replaced):
    place = trained.home / "cold" / "lakemark-tier.json"
    replaced(place)
    done = trained("status", "--json")
    (red,) = [one for one in done.json["problems"] if one["colour"] == "red"]
    assert done.code == 4
    assert str(place) in red["what"]
    assert "tier init" not in red["next"]
