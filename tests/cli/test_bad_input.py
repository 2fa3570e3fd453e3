"""What is wrong says so, with its exit code, and changes nothing."""

import json
import os
import shlex
import subprocess
import sys

import pytest

HEX = "ab" * 32


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/", "holds the ledger"),
        (".", "holds the ledger"),
        ("ledger.git", "is the ledger"),
        ("ledger.git/objects", "lies in the ledger"),
        ("hot", "is the tier hot"),
        ("hot/r1", "lies in the tier hot"),
        ("cold/lakemark", "lies in the tier cold"),
        ("linked", "is the tier hot"),
        ("home", "is a home directory, or holds one"),
        ("/home/ana", "is a home directory, or holds one"),
    ],
)
@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_no_trainer_saves_there(cli, place, why, dry_run):
    (cli.home / "linked").symlink_to(cli.home / "hot")
    error = cli.fails("run", "open", "r1", "--watch", place, *dry_run)
    assert (error["kind"], error["exit_code"]) == ("Usage", 2)
    assert error["message"].endswith(f": it {why}")
    assert "saves into" in error["advice"]
    assert cli.ok("run", "ls")["runs"] == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("ls nope", 3),
        ("show r1@999", 3),
        ("show nope@1", 3),
        ("show deadbeef01", 3),
        ("show id:00", 3),
        ("show r1~7@100", 3),
        ("show r1@best:nothing", 3),
        ("show r1@3d", 3),
        ("show 100", 2),
        ("show abc", 2),
        ("show ''", 2),
        ("show r1@2026-11-26T12:00:00", 2),
        ("show r1@2026-11-26", 2),
        ("show r1@１００", 2),  # noqa: RUF001 - full-width digits
        ("ls --since yesterday", 2),
        ("ls --since 2026-11-26T12:00", 2),
        ("ls --limit 0", 2),
        ("ls --limit 5000", 2),
        ("ls --limit x", 2),
        ("ls --limit １", 2),  # noqa: RUF001
        ("ls --tier nowhere", 2),
        ("ls --after nonsense", 2),
        ("ls --expiring soon", 2),
        ("ls a b", 2),
        ("as-of r1 12:00", 2),
        ("as-of nope 3d", 3),
        ("log nope", 3),
        ("run show nope", 3),
        ("run close nope --reason because", 3),
        ("run close r1", 2),
        ("run close r1 --reason ''", 2),
        ("run open", 2),
        ("run open nope --repin", 3),
        ("run open r2 --at-step 3", 2),
        ("run open r2 --parts 2", 2),
        ("run open r2 --data data/main", 2),
        ("inspect nowhere", 3),
        ("commit nowhere --run r1 --step 1", 3),
        ("commit out/step-100 --run nope --step 1", 3),
        ("commit out/step-100 --run r1 --step -1", 2),
        ("commit out/step-100 --run r1 --step x", 2),
        ("commit out/step-100 --run r1 --step １００", 2),  # noqa: RUF001
        ("commit out/step-100 --run r1 --step 1_00", 2),
        ("commit out/step-100 --run r1 --step 1 --metric loss", 2),
        ("commit out/step-100 --run r1 --step 1 --metric loss=nan", 2),
        ("commit out/step-100 --run r1 --step 1 --part node-b", 2),
        ("commit out/step-100 --run r1 --step 1 --wait nowhere", 2),
        ("commit out/step-100 --step 1", 2),
        ("replicate r1@100 --to nowhere", 2),
        ("replicate r1@100", 2),
        ("release r1@100 --from nowhere", 2),
        ("restore r1@100 --to new --role nonsense", 2),
        ("restore r1@100 --to new --role rng", 3),
        ("restore r1@100 --to new --from nowhere", 2),
        ("restore r1@100 --to out", 7),
        ("restore r1@999 --to new", 3),
        ("resume nope --to new", 3),
        ("resume r1 --to new --world 0", 2),
        ("resume r1 --to lakemark.yaml", 2),
        ("resume r1 --to new --job=", 2),
        (f"bind r1@100 --data data/{HEX} --reason because", 2),
        ("bind r1@100 --data data/main --reason because", 2),
        ("bind nope --data data/main --reason because", 3),
        ("verify nope", 3),
        ("verify --tier nowhere", 2),
        ("verify --sample 200%", 2),
        ("tier init nowhere", 2),
        ("rollback plan r1 --to 100", 2),
        ("rollback plan r1 --to 999 --reason because", 3),
        ("rollback plan r1 --to soon --reason because", 2),
        ("rollback plan r1 --to 100 --reason ' '", 2),
        ("rollback plan r1 --to 100 --reason because --model-only --data-only", 2),
        ("rollback plan r1 --to 100 --reason because --model-only --move-branch", 2),
        ("rollback plan nope --to 100 --reason because", 3),
        ("rollback request r1 --to 3d --reason because", 3),
        ("rollback ls nope", 3),
        ("flows deploy", 2),
        ("up", 2),
        ("init . --profile huge", 2),
        ("init other --profile node", 2),
        ("init other --profile node --ledger https://example.org/ledger.git", 2),
        ("--config nowhere.yaml ls", 2),
    ],
)
def test_each_has_its_exit_code(shared, line, code):
    error = shared.fails(*shlex.split(line))
    assert error["exit_code"] == code, error
    assert set(error) >= {"kind", "message", "advice", "exit_code"}
    assert "\n" not in error["message"]


def test_for_people_it_is_two_lines_on_stderr(shared):
    done = shared("show", "nope@1")
    assert done.out == ""
    message, advice = done.err.splitlines()
    assert message.startswith("lakemark: there is no run 'nope'")
    assert advice.startswith("  ")


def test_an_ambiguous_prefix_lists_candidates(cli):
    cli.ok("run", "open", "r1")
    seen: dict[str, str] = {}
    for step in range(1, 40):
        path = cli.save(step)
        identity = cli.ok("commit", path, "--run", "r1", "--step", step)["record"]
        if identity[:1] in seen:
            break
        seen[identity[:1]] = identity
    error = cli.fails("show", f"id:{identity[:1]}")
    assert error["exit_code"] == 2
    assert identity[:16] in error["message"]
    assert seen[identity[:1]][:16] in error["message"]


def test_an_unknown_key_names_file_and_nearest_key(trained):
    trained.settings("copies: 1", "copis: 1")
    error = trained.fails("ls")
    assert error["exit_code"] == 2
    assert "lakemark.yaml" in error["message"]
    assert "copies" in error["message"]


def test_no_configuration_at_all(empty):
    error = empty.fails("ls")
    assert error["exit_code"] == 2
    assert "lakemark init" in error["advice"]


def test_a_site_without_ledger_is_3(cli):
    (cli.home / "ledger.git").rename(cli.home / "taken.git")
    assert cli.fails("ls")["exit_code"] == 3
    done = cli("status", "--json")  # says that, and whatever else can be said without one
    assert (done.code, done.json["ok"]) == (4, False)
    assert any("there is no ledger" in one["what"] for one in done.json["problems"])


def test_the_clock_is_set_only_where_that_is_allowed(trained):
    clock = {"LAKEMARK_CLOCK": "2030-01-01T00:00:00Z"}
    assert trained.fails("ls", environ=clock)["exit_code"] == 2
    with (trained.home / "lakemark.yaml").open("a") as file:
        file.write("simulated_clock: true\n")
    assert trained.ok("status", environ=clock)["now"] == "2030-01-01T00:00:00.000000Z"
    assert trained.fails("ls", "--since", "3d", environ={"LAKEMARK_CLOCK": "noon"})["exit_code"] == 2


def test_another_tiers_identity_is_refused(trained):
    file = trained.home / "cold" / "lakemark-tier.json"
    text = json.loads(file.read_text())
    file.chmod(0o644)
    file.write_text(json.dumps({**text, "id": "0" * 32}))
    trained.ok("commit", trained.save(400), "--run", "r1", "--step", 400)
    before = trained.tips()
    assert trained.fails("replicate", "r1@400", "--to", "cold")["exit_code"] == 7
    assert trained("status").code == 4
    assert trained.tips() == before


def test_a_second_site_on_the_same_prefix_is_refused(trained):
    other = trained.home / "other"
    trained.ok("init", other, "--profile", "solo")
    file = other / "lakemark.yaml"
    file.write_text(file.read_text().replace("path: cold\n", f"path: {trained.home / 'cold'}\n"))
    (other / "cold").rename(other / "old")
    assert trained.fails("--config", file, "tier", "init", "cold")["exit_code"] == 7


def test_a_place_with_other_things_is_no_tier(cli):
    (cli.home / "usb").mkdir()
    (cli.home / "usb" / "holiday.jpg").write_bytes(b"x")
    cli.tier("usb: {class: cold, kind: directory, path: usb}")
    assert cli.fails("tier", "init", "usb")["exit_code"] == 7
    assert os.listdir(cli.home / "usb") == ["holiday.jpg"]


def test_links_that_lead_outside_are_refused(trained):
    path = trained.save(400)
    (path / "out").symlink_to("/etc/passwd")
    error = trained.fails("commit", path, "--run", "r1", "--step", 400)
    assert (error["kind"], error["exit_code"]) == ("Refused", 7)


def test_an_unfinished_checkpoint_is_4(trained):
    path = trained.home / "out" / "step-400.tmp"
    path.mkdir()
    (path / "weights.bin").write_bytes(b"half")
    assert trained.fails("commit", path, "--run", "r1", "--step", 400)["exit_code"] == 4


def test_another_owners_ledger_is_8(trained, require_root):
    for folder, _, names in os.walk(trained.home / "ledger.git"):
        for name in ("", *names):
            os.chown(os.path.join(folder, name), 65534, 65534)
    error = trained.fails("show", "r1@100")
    assert error["exit_code"] == 8


def test_a_configuration_of_another_user_found_upwards_is_8(trained, require_root, monkeypatch):
    os.chown(trained.home / "lakemark.yaml", 65534, 65534)
    assert trained.fails("ls")["exit_code"] == 8
    assert trained("ls", "--config", trained.home / "lakemark.yaml").code == 0


@pytest.mark.parametrize("inside", ["hot", "cold/back", "ledger.git/back"])
def test_nothing_is_restored_into_a_tier_or_the_ledger(trained, inside):
    target = trained.home / inside / "r1-100"
    error = trained.fails("restore", "r1@latest", "--to", target)
    assert (error["kind"], error["exit_code"]) == ("Refused", 7)
    assert not target.exists()


def test_restoring_from_a_tier_that_is_not_the_ledgers_is_refused(trained):
    step = trained.ok("show", "r1@latest")["step"]
    trained.ok("replicate", f"r1@{step}", "--to", "cold")
    file = trained.home / "cold" / "lakemark-tier.json"
    file.rename(file.with_name("elsewhere"))
    target = trained.home / "back"
    assert trained.fails("restore", f"r1@{step}", "--from", "cold", "--to", target)["exit_code"] == 7
    assert trained.ok("restore", f"r1@{step}", "--to", target)["verified"] is True


def test_an_unreadable_folder_of_a_checkpoint_is_8(trained, require_root):
    path = trained.save(400)
    (path / "private").mkdir(mode=0o700)
    os.chmod(trained.home, 0o755)
    program = (
        "from lakemark.formats import recogniser; from pathlib import Path; import sys, os\nknown = recogniser()\n"
    )
    program += "os.setuid(65534)\ntry: known.judge(Path(sys.argv[1]))\nexcept Exception as e: print(e.exit_code)"
    for folder in [path, *path.parents]:
        if folder.stat().st_uid == 0 and folder != folder.parent and "pytest" in str(folder):
            folder.chmod(folder.stat().st_mode | 0o755)
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "8", done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", ""),
        ("commit", "", "--run", "r1", "--step", "400"),
        ("run", "open", "r1", "--watch", ""),
        ("run", "open", "r1", "--watch="),
        ("run", "open", "r2", "--parent", ""),
        ("restore", "r1@100", "--to", ""),
        ("resume", "r1", "--to", "new", "--record", ""),
        ("resume", "r1", "--to", ""),
        ("ls", ""),
        ("ls", "--since", ""),
        ("", "ls"),
        ("--config", "", "ls"),
    ],
)
def test_a_variable_that_is_not_set_is_never_taken_for_a_value(shared, words):
    before = shared.tips()
    error = shared.fails(*words)
    assert (error["kind"], error["exit_code"]) == ("Usage", 2)
    assert error["message"].endswith("is empty")
    assert shared.tips() == before


@pytest.mark.parametrize(
    "line",
    [
        "run open r2 --job {}",
        "run open r2 --data data/{}",
        "run open r2 --watch new{}",
        "run open {}",
        "run close r1 --reason {}",
        "rollback plan r1 --to 100 --model-only --reason {}",
        "resume r1 --to new --job {}",
        "resume r1 --to new{}",
        "restore r1@100 --to new --role {}",
    ],
)
def test_text_that_is_not_utf_8_is_refused_where_the_ledger_would_keep_it(shared, line):
    before = shared.tips()
    error = shared.fails(*line.format("\udcff").split())
    assert (error["kind"], error["exit_code"]) == ("Usage", 2)
    assert "has bytes that are not UTF-8" in error["message"]
    assert "\\udcff" in error["message"]
    assert shared.tips() == before


def test_a_place_may_have_any_name(trained):
    target = trained.home / "n\udcff"
    assert trained.ok("restore", "r1@100", "--to", target)["verified"] is True
    assert (target / "weights.bin").is_file()


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
@pytest.mark.parametrize("words", [("restore", "r1@100"), ("resume", "r1", "--without", "rng", "scheduler")])
def test_a_name_that_no_file_system_takes_is_7(shared, words, dry_run):
    assert shared.fails(*words, "--to", "x" * 5000, *dry_run)["exit_code"] == 7


def test_where_a_trainer_saves_is_a_directory(cli):
    (cli.home / "file").write_bytes(b"x")
    (cli.home / "loop").symlink_to("loop")
    (cli.home / "away").symlink_to("nowhere")
    for place in ("file", "loop", "away"):
        error = cli.fails("run", "open", "r1", "--watch", place)
        assert (error["kind"], error["message"]) == ("Usage", f"--watch {place!r}: it is not a directory")
    assert cli.ok("run", "ls")["runs"] == []


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_nothing_is_resumed_into_what_is_no_directory(shared, dry_run):
    (shared.home / "round").unlink(missing_ok=True)
    (shared.home / "round").symlink_to("round")
    for place in ("lakemark.yaml", "lakemark.yaml/x", "round", "round/x"):
        error = shared.fails("resume", "r1", "--to", place, *dry_run)
        assert (error["kind"], error["exit_code"]) == ("Usage", 2)
        assert "is not a directory" in error["message"]
        assert place in error["message"]


@pytest.mark.parametrize("place", [".", "out/..", "hot", "hot/r1", "cold", "ledger.git", "ledger.git/new"])
def test_nothing_is_resumed_into_the_sites_own_places(shared, place):
    before = shared.tips()
    error = shared.fails("resume", "r1", "--to", place)
    assert (error["kind"], error["exit_code"]) == ("Usage", 2)
    assert error["message"].startswith("--to ")
    assert shared.tips() == before


def test_a_link_that_leads_back_to_itself_is_no_place_to_restore_to(trained):
    (trained.home / "loop").symlink_to("loop")
    error = trained.fails("restore", "r1@100", "--to", "loop")
    assert (error["kind"], error["exit_code"]) == ("Refused", 7)
    assert "leads back to itself" in error["message"]
    assert not [name for name in os.listdir(trained.home) if name.endswith(".lakemark-restore")]


def test_two_open_runs_do_not_save_within_each_other(cli):
    (cli.home / "out" / "inner").mkdir(parents=True)
    (cli.home / "link").symlink_to("out")
    cli.ok("run", "open", "r1", "--watch", "link")
    for place, how in (("out/inner", "lies in"), ("out/new/../inner", "lies in"), ("link/later", "lies in")):
        error = cli.fails("run", "open", "r2", "--watch", place)
        assert (error["kind"], error["exit_code"]) == ("Usage", 2)
        assert f"it {how} " in error["message"]
        assert "where the open run r1 saves" in error["message"]
    cli.ok("run", "open", "r1", "--watch", "out/inner")
    assert "it holds " in cli.fails("run", "open", "r2", "--watch", "out")["message"]
    assert cli.fails("run", "open", "r3", "--watch", "out/inner")["exit_code"] == 7
    cli.ok("run", "close", "r1", "--reason", "over")
    cli.ok("run", "open", "r2", "--watch", "out")


def test_a_way_back_up_is_not_kept_in_a_name(cli):
    (cli.home / "out").mkdir()
    cli.ok("run", "open", "r1", "--watch", "out/../out")
    assert cli.ok("run", "show", "r1")["watch"] == {"node-a": str(cli.home / "out")}


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
@pytest.mark.parametrize("place", ["x" * 5000, "file", "file/site"])
def test_no_site_is_made_where_none_can_be(empty, place, dry_run):
    (empty.home / "file").write_bytes(b"x")
    error = empty.fails("init", place, *dry_run)
    assert (error["kind"], error["exit_code"]) == ("Misconfigured", 2)
    assert "can't be used: " in error["message"]
    assert os.listdir(empty.home) == ["file"]
