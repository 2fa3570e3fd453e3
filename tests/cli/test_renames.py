"""Another node name or tier key in the configuration: refused, told how to rename on purpose, and lossless either way."""

import re
import shutil

import pytest


def edit(cli, pattern, by):
    """lakemark.yaml, however it is laid out."""
    file = cli.home / "lakemark.yaml"
    text, count = re.subn(pattern, by, file.read_text(), flags=re.MULTILINE)
    assert count
    file.write_text(text)


def trees(cli):
    return sorted(path.name for path in (cli.home / "hot" / "r1").iterdir())


@pytest.mark.parametrize("renamed", ["node", "tier"])
def test_another_name_is_refused_and_a_rename_on_purpose_goes_on(cli, renamed):
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    for step in (1, 2, 3):
        cli.ok("commit", cli.save(step), "--run", "r1", "--step", step)
    kept = trees(cli)
    if renamed == "node":
        cli.environ["LAKEMARK_NODE"] = "node-a.example.org"
        command = ("node", "rename", "node-a", "node-a.example.org")
    else:
        edit(cli, r"^( +)hot:", r"\1nvme:")
        command = ("tier", "rename", "hot", "nvme")
    cli.save(4)
    for words in (
        ("sweep",),
        ("sweep", "--dry-run"),
        ("watch",),
        ("commit", cli.home / "out" / "step-4", "--run", "r1", "--step", 4),
        ("tier", "init", "hot" if renamed == "node" else "nvme"),
    ):
        error = cli.fails(*words)
        assert error["exit_code"] == 7
        assert "is known as hot of node node-a" in error["message"]
        assert " ".join(("lakemark", *command)) in error["advice"]
    assert trees(cli) == kept
    assert cli("doctor", "--json").code == 4
    red = cli("status", "--json")
    assert red.code == 4
    assert any(
        " ".join(("lakemark", *command)) in one["next"] for one in red.json["problems"] if one["colour"] == "red"
    )
    assert cli.ok(*command, "--dry-run")["dry_run"]
    assert cli.ok(*command)["runs"] == ["r1"]
    assert cli.ok(*command)["runs"] == []
    assert trees(cli) == kept
    for step in (1, 2, 3):
        cli.ok("restore", f"r1@{step}", "--to", cli.home / f"back-{step}")
    cli.ok("sweep")
    assert cli.ok("ls", "r1")["records"]


def test_a_name_that_nobody_knows(cli):
    assert cli.fails("tier", "rename", "hot", "nowhere")["exit_code"] == 2
    assert cli.fails("tier", "rename", "nowhere", "hot")["exit_code"] == 3
    assert cli.fails("node", "rename", "nowhere", "node-a")["exit_code"] == 3
    assert cli.fails("node", "rename", "node-a", "nowhere")["exit_code"] == 7


def test_a_disk_that_is_not_mounted_under_a_new_node_name_is_not_claimed(cli):
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    cli.ok("commit", cli.save(1), "--run", "r1", "--step", 1)
    (cli.home / "hot").rename(cli.home / "unmounted")
    (cli.home / "hot").mkdir()
    cli.environ["LAKEMARK_NODE"] = "node-b"
    cli("sweep", "--json")
    assert cli.fails("commit", cli.save(2), "--run", "r1", "--step", 2)["exit_code"] == 7
    assert list((cli.home / "hot").iterdir()) == []
    (cli.home / "hot").rmdir()
    (cli.home / "unmounted").rename(cli.home / "hot")
    cli.environ["LAKEMARK_NODE"] = "node-a"
    cli.ok("restore", "r1@1", "--to", cli.home / "back")


def test_a_place_new_in_the_file_is_amber_until_somebody_claims_it(cli):
    edit(cli, r"^tiers:.*$", "tiers:\n  more: {class: cold, kind: directory, path: more}")
    cli.ok("sweep")
    assert not (cli.home / "more" / "lakemark-tier.json").exists()
    problems = [one for one in cli.ok("status")["problems"] if "more" in one["what"]]
    assert [one["level"] if "level" in one else one["colour"] for one in problems] == ["amber"]
    assert "lakemark tier init more" in problems[0]["next"]
    cli.ok("tier", "init", "more")
    assert (cli.home / "more" / "lakemark-tier.json").exists()


def test_an_ephemeral_hot_begins_anew_by_itself(cli):
    edit(cli, r"^( +)class: hot.*$", r"\1class: hot\n\1ephemeral: true")
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    cli.ok("commit", cli.save(1), "--run", "r1", "--step", 1, "--wait", "cold")
    cli.ok("commit", cli.save(2), "--run", "r1", "--step", 2)
    shutil.rmtree(cli.home / "hot")
    cli.ok("commit", cli.save(3), "--run", "r1", "--step", 3)
    where = {one["step"]: [copy["tier"] for copy in one["replicas"]] for one in cli.ok("ls", "r1")["records"]}
    assert where == {1: ["cold"], 2: [], 3: ["hot"]}
    cli.ok("restore", "r1@1", "--to", cli.home / "back")
    assert "data_lost" in [one["kind"] for one in cli.ok("log", "r1")["entries"]]
    assert cli("status", "--json").code == 4
