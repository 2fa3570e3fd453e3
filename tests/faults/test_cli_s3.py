"""The command line's own verbs on a site whose warm tier is a store that fails as asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import s3_faults as faults
from tests.support.command import here

pytestmark = pytest.mark.xdist_group("seaweedfs")
RUN = "llama"
CONFIG = """\
site: solo
node: node-a
ledger: {{path: ledger.git, remote: null}}
data: none
tiers:
  hot: {{class: hot, kind: tree, path: hot, min_free: 0%}}
  warm: {{class: warm, kind: s3, url: "s3://{bucket}/{prefix}", endpoint: "{endpoint}", credentials: s3, domain: array}}
  cold: {{class: cold, kind: directory, path: cold, domain: hdd}}
residence:
  hot: {{keep_last: 1, settle: 0s}}
  cold: {{settle: 0s}}
approval: {{required: false}}
"""


class Cli:
    def __init__(self, home, server):
        self.home = home
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LAKEMARK_", "AWS_"))},
            "LAKEMARK_CONFIG": str(home / "lakemark.yaml"),
            "LAKEMARK_NODE": "node-a",
            "LAKEMARK_S3_ACCESS_KEY_ID": server.credentials.access_key_id,
            "LAKEMARK_S3_SECRET_ACCESS_KEY": server.credentials.secret_access_key,
        }

    def __call__(self, *words, code=0):
        return self.said(here(*words, "--json", environ=self.environ), code)

    def hurry(self):
        """Gives a store up soon; only where it stalls: a busy machine may take its time."""
        with (self.home / "lakemark.yaml").open("a") as file:
            file.write("limits: {minimum_rate: 64KiB, stall: 2s}\n")

    def process(self, *words, code=0):
        """In a process of its own: it must end, too."""
        command = [str(Path(sys.executable).with_name("lakemark")), *map(str, words), "--json"]
        return self.said(
            subprocess.run(command, env=self.environ, cwd=self.home, capture_output=True, text=True, check=False), code
        )

    def said(self, done, code):
        assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout or done.stderr.splitlines()[-1])


@pytest.fixture
def cli(seaweedfs, s3_faults, tmp_path):
    made = Cli(tmp_path, seaweedfs)
    made("init", tmp_path, "--profile", "solo")
    text = CONFIG.format(
        bucket=seaweedfs.bucket, prefix=f"cli-{tmp_path.name}-{os.getpid()}", endpoint=s3_faults.endpoint
    )
    (tmp_path / "lakemark.yaml").write_text(text)
    made("tier", "init", "warm")
    made("run", "open", RUN)
    return made


def save(cli, step):
    path = cli.home / "out" / f"step-{step}"
    path.mkdir(parents=True)
    (path / "model.bin").write_bytes(f"weights of {step}".encode() * 20_000)
    return cli("commit", path, "--run", RUN, "--step", step)["record"]


def same(cli, record, to, *more):
    answer = cli("restore", record, "--to", to, *more)
    assert answer["verified"]
    return (Path(to) / "model.bin").read_bytes()


@pytest.mark.parametrize("seed", [1])
def test_verbs_under_what_any_store_does_now_and_then(cli, s3_faults, seed):
    record = save(cli, 100)
    wanted = (cli.home / "out" / "step-100" / "model.bin").read_bytes()
    s3_faults.at_random(seed=seed, share=0.1, faults=faults.TRANSIENT)
    cli("sweep")
    s3_faults.clear()
    cli("sweep")
    assert cli("verify", record)["damaged"] == []
    s3_faults.at_random(seed=seed, share=0.1, faults=[*faults.TRANSIENT, faults.flipped_body, faults.short_body])
    assert same(cli, record, cli.home / "back") == wanted
    s3_faults.clear()
    assert {one["tier"] for one in cli("show", record)["replicas"]} == {"hot", "warm", "cold"}


@pytest.mark.parametrize(("fault", "kind"), [("flipped", "SourceDamaged"), ("gone", "NoReplica")])
def test_a_store_with_only_damaged_bytes_is_4_and_one_without_them_3(cli, s3_faults, fault, kind):
    record = save(cli, 100)
    cli("sweep")
    wrong = faults.flipped_body if fault == "flipped" else faults.status(404, "NoSuchKey")
    s3_faults.on(wrong, operation="GetObject", key="*/files/md5/*", times=None)
    code = 4 if kind == "SourceDamaged" else 3
    error = cli("restore", record, "--from", "warm", "--to", cli.home / "back", code=code)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)


def test_a_dripping_object_stops_nothing_else(cli, s3_faults):
    record = save(cli, 100)
    s3_faults.on(faults.dripping(every_seconds=0.5), operation="GetObject", key="*/files/md5/*", times=None)
    cli.hurry()
    swept = cli.process("sweep")
    assert any("to warm" in one["what"] and "a second" in one["why"] for one in swept["pending"])
    assert {one["tier"] for one in cli("show", record)["replicas"]} == {"hot", "cold"}


def test_a_store_that_hardly_takes_an_object_stops_nothing_else(cli, s3_faults):
    record = save(cli, 100)
    s3_faults.reading(faults.slowly(), operation="PutObject", key="*/files/md5/*")
    cli.hurry()
    swept = cli.process("sweep")
    (pending,) = [one for one in swept["pending"] if "to warm" in one["what"]]
    assert pending["transient"]
    assert "PutObject" in pending["why"]
    assert {one["tier"] for one in cli("show", record)["replicas"]} == {"hot", "cold"}
    assert any("warm" in one["what"] for one in cli("status")["problems"])


def test_hot_is_not_released_on_rules_nobody_can_read(cli, s3_faults):
    s3_faults.on(faults.status(403, "AccessDenied"), operation="GetBucketLifecycle", times=None)
    record = save(cli, 100)
    cli("sweep")
    error = cli("release", record, "--from", "cold", code=7)["error"]
    assert "can't be read" in error["message"]
    assert "expires: never" in error["advice"]
    assert {one["tier"] for one in cli("show", record)["replicas"]} == {"hot", "warm", "cold"}


def told_of_warm(cli, *, code=0):
    return [one for one in cli("status", code=code)["problems"] if "tier warm" in one["what"]]


def test_status_names_the_bucket_whose_rules_nobody_can_read(cli, s3_faults):
    s3_faults.on(faults.status(403, "AccessDenied"), operation="GetBucketLifecycle", times=None)
    cli("sweep")
    (told,) = told_of_warm(cli)
    assert told["colour"] == "amber"
    assert "can't be read" in told["what"]
    assert "seen" in told["what"]
    assert "expires: never" in told["next"]
    file = cli.home / "lakemark.yaml"
    text = file.read_text()
    file.write_text(text.replace("domain: array", "domain: array, expires: never"))
    assert told_of_warm(cli) == []
    file.write_text(text)
    s3_faults.clear()
    cli("sweep")
    assert told_of_warm(cli) == []


def test_status_is_red_where_a_bucket_removes_what_lies_there(cli, s3_faults):
    rules = b"<LifecycleConfiguration><Rule><ID>a-day</ID><Status>Enabled</Status><Prefix></Prefix>"
    rules += b"<Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>"
    s3_faults.on(
        lambda exchange: exchange.send(faults.Answer(200, (), rules)), operation="GetBucketLifecycle", times=None
    )
    cli("sweep")
    (told,) = told_of_warm(cli, code=4)
    assert (told["colour"], "a-day" in told["what"]) == ("red", True)


def test_a_cursor_that_is_none_is_an_argument(cli):
    save(cli, 100)
    for cursor in ("9" * 30 + "." + "9" * 30 + ".r", "x.1.r", "1_0.1.r", "\uff11.1.r"):
        assert cli("ls", "--after", cursor, code=2)["error"]["exit_code"] == 2
