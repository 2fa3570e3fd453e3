import os
import stat
import subprocess

import pytest

from lakemark.errors import Denied, Misconfigured, NotFound
from lakemark.sandbox import credentials


def test_only_the_owner_may_read_what_is_written(tmp_path):
    old = os.umask(0)
    try:
        credentials.generate(tmp_path / "box" / "credentials.env", prefect_port=4200)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "box" / "credentials.env").stat().st_mode) == 0o600
    assert os.listdir(tmp_path / "box") == ["credentials.env"]


def test_it_has_every_name_and_s3_one_pair(tmp_path):
    made = credentials.generate(tmp_path / "c.env", prefect_port=20123)
    assert tuple(made) == credentials.NAMES
    assert made["AWS_ACCESS_KEY_ID"] == made["LAKEMARK_S3_ACCESS_KEY_ID"]
    assert made["AWS_SECRET_ACCESS_KEY"] == made["LAKEMARK_S3_SECRET_ACCESS_KEY"]
    assert made["LAKEFS_ACCESS_KEY_ID"].startswith("AKIA")
    assert made["LAKEFS_ACCESS_KEY_ID"] != made["AWS_ACCESS_KEY_ID"]
    assert made["PREFECT_API_URL"] == "http://127.0.0.1:20123/api"
    assert made["PREFECT_API_AUTH_STRING"].startswith("lakemark:")
    assert credentials.read(tmp_path / "c.env") == made


def test_again_changes_nothing_and_completes_what_is_missing(tmp_path):
    path = tmp_path / "c.env"
    made = credentials.generate(path, prefect_port=20123)
    before = path.stat()
    assert credentials.generate(path, prefect_port=20999) == made
    assert path.stat().st_ino == before.st_ino
    path.write_text("AWS_ACCESS_KEY_ID=mine\nAWS_SECRET_ACCESS_KEY=own\nOTHER=kept\n")
    completed = credentials.generate(path, prefect_port=20999)
    assert completed["LAKEMARK_S3_ACCESS_KEY_ID"] == "mine"
    assert completed["LAKEMARK_S3_SECRET_ACCESS_KEY"] == "own"
    assert completed["OTHER"] == "kept"
    assert completed["PREFECT_API_URL"].endswith(":20999/api")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_shell_reads_the_same(tmp_path):
    made = credentials.generate(tmp_path / "c.env", prefect_port=20123)
    script = f'set -a; . "{tmp_path}/c.env"; env'
    told = subprocess.check_output(["sh", "-c", script], env={"PATH": os.environ["PATH"]}, text=True)
    assert made.items() <= dict(line.split("=", 1) for line in told.splitlines() if "=" in line).items()


@pytest.mark.parametrize("line", ["hidden", "na me=hidden", "A=hid den", "A=$(hidden)", "A='hidden'", "1=hidden"])
def test_a_line_that_is_no_plain_value_is_named_without_its_value(tmp_path, line):
    path = tmp_path / "c.env"
    path.write_text(f"# mine\n\nA=secret\n{line}\n")
    path.chmod(0o600)
    with pytest.raises(Misconfigured, match="line 4") as caught:
        credentials.read(path)
    assert "secret" not in str(caught.value)
    assert "hid" not in str(caught.value)


def test_a_file_that_others_may_read_is_refused(tmp_path):
    credentials.generate(tmp_path / "c.env", prefect_port=20123)
    (tmp_path / "c.env").chmod(0o640)
    with pytest.raises(Denied, match="640"):
        credentials.read(tmp_path / "c.env")


def test_no_file(tmp_path):
    with pytest.raises(NotFound):
        credentials.read(tmp_path / "c.env")
