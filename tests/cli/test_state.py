"""status and doctor: what is red, and that they work whatever is down."""

import shutil
import socket
import threading
from contextlib import suppress

import pytest

from tests.cli.keys import has
from tests.support.restless import numbered_anew


def test_status_of_a_healthy_site(shared):
    document = shared.ok("status")
    has(document, ["ok", "problems", "runs", "services"])
    assert document["ok"] is True
    (best,) = document["problems"]  # the profile keeps the best by val_loss, which this run's records do not have
    assert best["colour"] == "amber"
    (run,) = document["runs"]
    assert (run["run"], run["step"], run["replicas"]) == ("r1", 300, ["cold", "hot"])
    assert "RED" not in shared("status").out


def red(cli, **environ):
    done = cli("status", "--json", environ=environ)
    problems = [one for one in done.json["problems"] if one["colour"] == "red"]
    assert (done.code == 4) == bool(problems) == (not done.json["ok"])
    for one in done.json["problems"]:
        has(one, ["what", "since", "next"])
        assert one["next"]
    return [one["what"] for one in problems]


def test_servers_that_are_down_are_red(shared, free_port):
    (what,) = red(shared, PREFECT_API_URL=f"http://127.0.0.1:{free_port()}/api")
    assert what.startswith("prefect at http://127.0.0.1:")


def test_a_laptop_site_before_up_is_red_and_answers(empty):
    empty.ok("init", "site", "--profile", "laptop")
    done = empty("--config", "site", "status", "--json")
    assert done.code == 4
    assert {one["name"]: one["ok"] for one in done.json["services"]} == {
        "lakefs": False,
        "s3 (warm)": False,
        "prefect": False,
    }


def test_a_removable_disk_may_be_away_another_one_not(trained):
    shutil.move(trained.home / "cold", trained.home / "away")
    assert red(trained) == []
    assert "cold is absent" in trained("status").out
    trained.settings("removable: true", "removable: false")
    assert red(trained) == ["the tier cold is absent: no identity file there"]


def test_a_full_file_system_is_red(trained):
    trained.settings("min_free: 10%", "min_free: 100%")
    (what,) = red(trained)
    assert what.startswith("nothing new lands in hot: ")


def test_whole_saves_that_wait_for_room_are_counted(trained):
    trained.settings("min_free: 10%", "min_free: 100%")
    for step in (400, 500):
        trained.save(step)
    swept = trained.ok("sweep")
    assert len(swept["pending"]) == 2
    assert swept["committed"] == []
    _, what = red(trained)
    assert what.startswith("2 whole save(s) of r1 wait for room, the first for ")
    assert "must stay free" in what
    assert trained.fails("run", "close", "r1", "--reason", "over")["exit_code"] == 7
    trained.ok("run", "close", "r1", "--reason", "over", "--without-step", 400, "--without-step", 500)
    assert len(red(trained)) == 1
    trained.ok("run", "reopen", "r1", "--reason", "not over")
    (trained.home / "waiting" / "r1.json").write_text("{")
    assert len(red(trained)) == 1
    assert "can't be read" in trained("status").out
    trained.settings("min_free: 100%", "min_free: 0%")
    trained.ok("sweep")
    assert red(trained) == []


def test_a_record_without_a_sound_replica_is_red(trained):
    for place in ("hot", "cold"):
        for path in (trained.home / place).rglob("*"):
            if (
                path.is_file()
                and path.stat().st_size == len(b"weights 100" * 100)
                and b"weights 100" in path.read_bytes()
            ):
                path.chmod(0o644)
                path.write_bytes(b"x" * path.stat().st_size)
    assert trained("verify", "r1@100").code == 4
    (what,) = red(trained)
    assert "r1@100" in what
    assert "no sound replica" in what


def test_doctor_of_a_healthy_site(shared):
    document = shared.ok("doctor")
    has(document, ["ok", "checks"])
    for check in document["checks"]:
        has(check, ["name", "ok", "detail", "advice"])
        assert check["detail"]
    names = [check["name"] for check in document["checks"]]
    for wanted in ("ledger", "fsync", "rights", "tier hot", "tier cold", "failure domains", "clock", "dot"):
        assert wanted in names
    assert [name for name in names if name.startswith("tier cold, ")]
    assert "probe" not in "".join(str(path) for path in (shared.home / "hot").rglob("*"))
    assert shared.ok("verify", "--invariants", "--dry-run")


def test_doctor_says_which_tier_is_wrong(trained):
    shutil.move(trained.home / "cold", trained.home / "away")
    done = trained("doctor", "--json")
    assert done.code == 4
    assert done.json["ok"] is False
    wrong = {one["name"]: one for one in done.json["checks"] if not one["ok"]}
    assert "tier cold" in wrong
    assert wrong["tier cold"]["advice"]
    assert [one for name, one in wrong.items() if name.startswith("tier hot")] == []
    assert not (trained.home / "cold").exists()


def warm_tier(cli, endpoint, *, bucket="tests"):
    """Adds a warm tier to the configuration; answers the environment with its keys."""
    place = f"url: s3://{bucket}/{cli.home.name}, endpoint: {endpoint}"
    cli.tier(f"warm: {{class: warm, kind: s3, {place}, credentials: s3, domain: array}}")
    return {"LAKEMARK_S3_ACCESS_KEY_ID": "nobody", "LAKEMARK_S3_SECRET_ACCESS_KEY": "nobody's"}


def of_warm(done):
    return [one for one in done.json["checks"] if one["name"].startswith("tier warm")]


def test_doctor_does_not_wait_for_a_tier_where_nobody_listens(trained, free_port):
    endpoint = f"http://127.0.0.1:{free_port()}"
    done = trained("doctor", "--json", environ=warm_tier(trained, endpoint))
    assert done.code == 4
    (one,) = of_warm(done)
    assert one["detail"].startswith(f"{endpoint} does not answer: Connection refused; ")
    assert all(one["ok"] for one in done.json["checks"] if one["name"].startswith("tier cold"))


@pytest.fixture
def hangs_up():
    """The endpoint of a server that takes connections and hangs up, and those it took."""
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with suppress(OSError):
                while True:
                    connection, peer = server.accept()
                    taken.append(peer)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", taken
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_doctor_asks_a_tier_that_is_away_once_for_all_checks(trained, hangs_up):
    endpoint, taken = hangs_up
    warm = of_warm(trained("doctor", "--json", environ=warm_tier(trained, endpoint)))
    (one,) = warm
    assert not one["ok"]
    assert len(taken) <= 18, "more than one question and its retries"


@pytest.mark.xdist_group("seaweedfs")
def test_doctor_tries_a_tier_on_s3(trained, seaweedfs):
    keys = warm_tier(trained, seaweedfs.endpoint, bucket=seaweedfs.bucket) | {
        "LAKEMARK_S3_ACCESS_KEY_ID": seaweedfs.credentials.access_key_id,
        "LAKEMARK_S3_SECRET_ACCESS_KEY": seaweedfs.credentials.secret_access_key,
    }
    assert not any(one["ok"] for one in of_warm(trained("doctor", "--json", environ=keys)))
    trained.ok("tier", "init", "warm", environ=keys)
    warm = of_warm(trained("doctor", "--json", environ=keys))
    assert [one for one in warm if not one["ok"]] == []
    assert len(warm) > len(["create", "read", "list", "checksum", "whole", "others"])


def test_behind_a_proxy_the_tier_itself_is_asked(trained, free_port, monkeypatch):
    keys = warm_tier(trained, "http://s3.invalid")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    (first, *_) = of_warm(trained("doctor", "--json", environ=keys))
    assert "proxy" in first["detail"].lower()


def test_doctor_wants_as_many_failure_domains_as_copies(trained):
    trained.settings("    path: cold\n", "    path: cold\n    domain: usb\n")
    trained.tier("more: {class: cold, kind: directory, path: more, domain: usb}")
    trained.settings("copies: 1", "copies: 2")
    wrong = [one for one in trained("doctor", "--json").json["checks"] if one["name"] == "failure domains"]
    assert [one["ok"] for one in wrong] == [False]


def test_verbose_and_quiet_are_about_stderr(shared):
    assert shared("ls", "--since", "3d", "--quiet").err == ""
    assert shared("ls", "--since", "3d", "--verbose").err != ""


def test_doctor_names_what_is_configured_to_no_effect(trained):
    def check():
        return next(one for one in trained.ok("doctor")["checks"] if one["name"] == "unused configuration")

    half = "retention (what is kept, admitted and thinned goes by it; nothing is pruned by it yet)"
    assert check()["detail"] == f"this version does not act on {half}"
    trained.settings("heartbeat: null", "heartbeat: https://example.org/x")
    assert check()["ok"] is True
    assert check()["detail"] == f"this version does not act on notify.heartbeat, {half}"


def test_a_full_capacity_of_hot_is_found_by_doctor(trained):
    trained.settings("min_free: 10%", "min_free: 10%\n    capacity: 4KiB")
    (space,) = [one for one in trained("doctor", "--json").json["checks"] if one["name"] == "space"]
    assert not space["ok"]
    assert "hot is full" in space["detail"]


def test_signed_decisions_are_not_promised(trained):
    trained.settings("approval:\n", "approval:\n  allowed_signers: signers\n")
    for words in (["verify", "r1@100"], ["rollback", "request", "r1", "--to", "100", "--reason", "because"]):
        error = trained.fails(*words)
        assert error["exit_code"] == 2
        assert "checks no signatures" in error["message"]


def test_doctor_names_places_whose_mounts_number_files_anew(trained, monkeypatch):
    def check():
        return next(one for one in trained.ok("doctor")["checks"] if one["name"] == "inode numbers")

    assert (check()["noted"], check()["detail"]) == (False, "stay the same in 2 place(s)")
    with numbered_anew(monkeypatch):
        found = check()
    assert found["noted"]
    assert f"{trained.home / 'hot'} and {trained.home / 'out'}: " in found["detail"]
    assert "known by their times and contents" in found["detail"]
