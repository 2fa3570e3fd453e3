"""commit, sweep, replicate, release, restore, resume, close: what they answer and what they leave."""

import json

from tests.cli.keys import RECORD, has


def test_commit_answers_the_record_and_again_is_the_same(cli):
    cli.ok("run", "open", "r1")
    path = cli.save(7)
    first = cli.ok("commit", path, "--run", "r1", "--step", 7, "--metric", "a=1.5", "b=2")
    has(first, RECORD)
    assert first["metrics"] == {"a": 1.5, "b": 2}
    assert first["step"] == 7
    tips = cli.tips()
    assert cli.ok("commit", path, "--run", "r1", "--step", 7)["record"] == first["record"]
    assert cli.tips() == tips


def test_other_bytes_at_a_step_are_a_conflict_unless_they_supersede(trained):
    other = trained.save(300, b"other", under="elsewhere")
    assert trained.fails("commit", other, "--run", "r1", "--step", 300)["exit_code"] == 5
    record = trained.ok("commit", other, "--run", "r1", "--step", 300, "--supersede")
    assert record["supersedes"]
    assert trained.ok("show", record["supersedes"])["superseded_by"] == record["record"]
    assert trained.ok("show", "r1@latest")["record"] == record["record"]


def test_sweep_commits_what_lies_there(trained):
    written, _ = trained.save(500), trained.save(400)
    with (written / "weights.bin").open("ab"):
        swept = trained.ok("sweep")
    has(swept, ["committed", "replicated", "released", "incomplete", "pending"])
    assert [one["step"] for one in swept["committed"]] == [400]
    has(swept["committed"][0], RECORD)
    assert [one["tier"] for one in swept["replicated"]] == ["cold"]
    assert [one["path"] for one in swept["incomplete"]] == [str(written)]
    assert [one["step"] for one in trained.ok("sweep")["committed"]] == [500]


def test_replicate_and_release(cli):
    cli.ok("run", "open", "r1")
    cli.ok("commit", cli.save(1), "--run", "r1", "--step", 1)
    record = cli.ok("replicate", "r1@1", "--to", "cold")
    assert {one["tier"] for one in record["replicas"]} == {"hot", "cold"}
    assert cli.ok("replicate", "r1@1", "--to", "cold")["replicas"] == record["replicas"]
    refused = cli.fails("release", "r1@1", "--from", "hot")
    assert refused["exit_code"] == 7
    assert "settle" in refused["message"]
    assert cli.fails("release", "r1@1", "--from", "nowhere")["exit_code"] == 2


def test_restore_brings_every_byte_back(trained):
    document = trained.ok("restore", "r1@200", "--to", "back", "--from", "cold")
    has(document, ["record", "path", "sources", "size_bytes", "restored_seconds", "verified"])
    assert document["sources"] == [{"tier": "cold", "node": None, "files": 2}]
    assert document["verified"] is True
    back = trained.home / "back"
    assert (back / "weights.bin").read_bytes() == (trained.home / "out/step-200/weights.bin").read_bytes()
    assert trained.fails("restore", "r1@200", "--to", "back")["exit_code"] == 7


def test_resume_prepares_a_directory(trained):
    document = trained.ok("resume", "r1", "--to", "out", "--job", "j1", "--record", "r1@latest")
    has(document, ["record", "step", "timeline", "path", "data", "run_file", "moved_aside"])
    assert (document["step"], document["timeline"], document["moved_aside"]) == (300, 1, [])
    told = json.loads((trained.home / "runs/r1.json").read_text())
    assert told["resume"]["step"] == 300
    assert trained.ok("resume", "r1", "--to", "out", "--job", "j1")["attempt"] == document["attempt"]


def test_resuming_an_older_record_moves_later_steps_aside(trained):
    document = trained.ok("resume", "r1", "--to", "out", "--record", "r1@100")
    assert document["timeline"] == 2
    assert {path.rpartition("/")[2] for path in document["moved_aside"]} == {"step-200", "step-300"}
    assert trained.ok("show", "r1@latest")["step"] == 100


def test_an_older_record_needs_a_rollback_where_approval_is_required(trained):
    trained.settings("required: false", "required: true")
    error = trained.fails("resume", "r1", "--to", "out", "--record", "r1@100")
    assert error["exit_code"] == 7
    assert error["advice"].startswith("lakemark rollback request r1 --to id:")


def test_close_and_reopen(trained):
    assert trained.ok("run", "close", "r1", "--reason", "done")["closed"] is True
    assert trained.fails("commit", trained.save(400), "--run", "r1", "--step", 400)["exit_code"] == 7
    assert trained.ok("run", "reopen", "r1", "--reason", "not done")["closed"] is False
    kinds = [one["kind"] for one in trained.ok("log", "r1")["entries"]]
    assert kinds[-2:] == ["closed", "reopened"]


def test_verify_finds_damage_and_repairs_it(trained):
    document = trained.ok("verify", "--invariants")
    has(document, ["checked", "ok", "damaged", "repaired", "data_lost", "violations"])
    assert (document["checked"], document["ok"], document["violations"]) == (6, 6, [])
    stored = max(
        (trained.home / "cold/files/md5").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0
    )
    stored.chmod(0o644)
    stored.write_bytes(b"x" * stored.stat().st_size)
    done = trained("verify", "r1", "--tier", "cold", "--json")
    assert done.code == 4
    assert len(done.json["damaged"]) == 1
    assert done.json["damaged"][0]["paths"]
    assert trained("status").code == 0
    assert "is damaged in cold" in trained("status").out
    repaired = trained.ok("verify", "r1", "--tier", "cold", "--repair")
    assert len(repaired["repaired"]) == 1
    assert trained.ok("verify", "--invariants")["ok"] == 6


def test_invariants_name_a_replica_that_is_gone(trained):
    identity = trained.ok("show", "r1@100")["record"]
    for path in list((trained.home / "cold").rglob(f"*{identity}*")):
        path.unlink()
    done = trained("verify", "r1@200", "--invariants", "--json")
    assert done.code == 4
    assert [one["rule"] for one in done.json["violations"]] == ["claimed"]
    assert "r1@100" in done.json["violations"][0]["what"]


def test_tier_init_registers_a_place(cli):
    cli.tier("more: {class: cold, kind: directory, path: more}")
    assert [row["state"] for row in cli.ok("tiers")["tiers"]][-1] == "not claimed"
    (row,) = cli.ok("tier", "init", "more")["tiers"]
    assert row["state"] == "present"
    assert cli.ok("tier", "init", "more")["tiers"][0]["id"] == row["id"]
    (cli.home / "more/lakemark-tier.json").rename(cli.home / "elsewhere.json")
    assert cli.fails("tier", "init", "more")["exit_code"] == 7
