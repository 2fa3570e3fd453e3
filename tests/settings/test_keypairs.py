"""Secrets: from the environment or files, never shown, and the sandbox's only for the sandbox."""

import copy
import logging
import pickle
from pathlib import Path

import pytest

from lakemark.errors import Denied, Misconfigured
from lakemark.settings import Secret, credentials, is_loopback, lakefs_credentials, loads, with_sandbox

PAIR = {"LAKEMARK_S3_ACCESS_KEY_ID": "AKIA1", "LAKEMARK_S3_SECRET_ACCESS_KEY": "hush"}


def test_a_name_means_two_variables():
    pair = credentials("s3", environ=PAIR)
    assert pair.access_key_id == "AKIA1"
    assert pair.secret_access_key.reveal() == "hush"
    assert pair.session_token is None
    assert credentials("S3", environ={**PAIR, "LAKEMARK_S3_SESSION_TOKEN": "t"}).session_token == Secret("t")


def test_lakefs_has_its_own_two():
    pair = lakefs_credentials({"LAKEFS_ACCESS_KEY_ID": "A", "LAKEFS_SECRET_ACCESS_KEY": "B"})
    assert (pair.access_key_id, pair.secret_access_key.reveal()) == ("A", "B")


def test_each_may_be_a_file(tmp_path):
    (tmp_path / "id").write_text("AKIA2\n")
    (tmp_path / "secret").write_text("hush hush\n")
    environ = {
        "LAKEMARK_S3_ACCESS_KEY_ID_FILE": str(tmp_path / "id"),
        "LAKEMARK_S3_SECRET_ACCESS_KEY_FILE": str(tmp_path / "secret"),
    }
    pair = credentials("s3", environ=environ)
    assert (pair.access_key_id, pair.secret_access_key.reveal()) == ("AKIA2", "hush hush")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "LAKEMARK_S3_ACCESS_KEY_ID is not set"),
        ({"LAKEMARK_S3_ACCESS_KEY_ID": "hush"}, "LAKEMARK_S3_SECRET_ACCESS_KEY is not set"),
        ({**PAIR, "LAKEMARK_S3_SECRET_ACCESS_KEY": ""}, "LAKEMARK_S3_SECRET_ACCESS_KEY is not set"),
        ({**PAIR, "LAKEMARK_S3_SECRET_ACCESS_KEY_FILE": "/x"}, "are both set"),
        (
            {**PAIR, "LAKEMARK_S3_SECRET_ACCESS_KEY": "", "LAKEMARK_S3_SECRET_ACCESS_KEY_FILE": "x"},
            "not an absolute path",
        ),
        (
            {**PAIR, "LAKEMARK_S3_SECRET_ACCESS_KEY": "", "LAKEMARK_S3_SECRET_ACCESS_KEY_FILE": "/gone/x"},
            "cannot be read",
        ),
        ({**PAIR, "LAKEMARK_S3_SECRET_ACCESS_KEY": "", "LAKEMARK_S3_SECRET_ACCESS_KEY_FILE": "/dev/null"}, "one line"),
    ],
)
def test_missing_or_doubtful(environ, message):
    with pytest.raises(Misconfigured, match=message) as caught:
        credentials("s3", environ=environ)
    assert "hush" not in str(caught.value) + caught.value.advice


def test_a_file_of_several_lines_is_refused_unshown(tmp_path):
    (tmp_path / "s").write_text("hush\nhush\n")
    environ = {"LAKEFS_ACCESS_KEY_ID": "A", "LAKEFS_SECRET_ACCESS_KEY_FILE": str(tmp_path / "s")}
    with pytest.raises(Misconfigured, match="does not hold one line") as caught:
        lakefs_credentials(environ)
    assert "hush" not in str(caught.value)


def test_secrets_do_not_show(caplog):
    pair = credentials("s3", environ={**PAIR, "LAKEMARK_S3_SESSION_TOKEN": "hush"})
    logging.getLogger("x").warning("%s %r %s", pair, pair, pair.secret_access_key)
    assert "hush" not in caplog.text + str(pair) + repr(pair) + f"{pair.secret_access_key}"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not copied or pickled"):
            leak(pair.secret_access_key)
    assert pair.secret_access_key == Secret("hush")
    assert hash(pair.secret_access_key) == hash(Secret("hush"))
    assert pair.secret_access_key != Secret("other")


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8333", True),
        ("http://127.9.9.9", True),
        ("http://localhost:1/x", True),
        ("http://[::1]:1", True),
        ("http://127.0.0.1.example.org", False),
        ("http://localhost.example.org", False),
        ("http://10.0.0.1", False),
        ("http://0.0.0.0", False),
        (None, False),
    ],
)
def test_loopback(url, local):
    assert is_loopback(url) is local


GIVEN = {
    "AWS_ACCESS_KEY_ID": "SAND",
    "AWS_SECRET_ACCESS_KEY": "s3-hush",
    "LAKEMARK_S3_ACCESS_KEY_ID": "SAND",
    "LAKEMARK_S3_SECRET_ACCESS_KEY": "s3-hush",
    "LAKEFS_ACCESS_KEY_ID": "FS",
    "LAKEFS_SECRET_ACCESS_KEY": "fs-hush",
    "PREFECT_API_URL": "http://127.0.0.1:4200/api",
    "PREFECT_API_AUTH_STRING": "lakemark:p-hush",
}


@pytest.fixture
def sandboxed(tmp_path):
    """A function that gives the environment of a site with this sandbox and these endpoints."""

    def merge(
        environ,
        *,
        services="s3: seaweedfs, lakefs: stand-in, prefect: server",
        s3="http://127.0.0.1:8333",
        lakefs="http://127.0.0.1:8000",
        lines=None,
        more="",
        mode=0o600,
    ):
        file = tmp_path / "sandbox" / "credentials.env"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(lines or [f"{name}={value}" for name, value in GIVEN.items()]) + "\n")
        file.chmod(mode)
        text = (
            f"site: a\nnode: n\ndata: {{endpoint: '{lakefs}'}}\nsandbox: {{{services}}}\ntiers:\n"
            "  hot: {class: hot, kind: tree, path: hot}\n"
            f"  warm: {{class: warm, kind: s3, url: s3://lakemark/warm, endpoint: '{s3}', credentials: s3}}\n{more}"
        )
        settings = loads(text, file=tmp_path / "lakemark.yaml", environ={}, hostname="h").settings
        return with_sandbox(settings, environ)

    return merge


def test_the_sandbox_brings_its_keys(sandboxed):
    environ = {"PATH": "/bin"}
    assert sandboxed(environ) == {"PATH": "/bin", **GIVEN}
    assert environ == {"PATH": "/bin"}


def test_they_win_where_the_sandbox_serves(sandboxed):
    merged = sandboxed(
        {
            "LAKEFS_ACCESS_KEY_ID": "PROD",
            "LAKEFS_SECRET_ACCESS_KEY_FILE": "/run/secret",
            "LAKEMARK_S3_SESSION_TOKEN": "prod",
            "PREFECT_API_URL": "https://prefect.example.org/api",
        }
    )
    assert lakefs_credentials(merged).access_key_id == "FS"
    assert credentials("s3", environ=merged).session_token is None
    assert merged["PREFECT_API_URL"] == "http://127.0.0.1:4200/api"


def test_aws_keys_of_the_environment_stay_together(sandboxed):
    merged = sandboxed({"AWS_PROFILE": "prod"})
    assert "AWS_ACCESS_KEY_ID" not in merged


@pytest.mark.parametrize(
    ("site", "absent"),
    [
        ({"services": "s3: seaweedfs"}, {"LAKEFS_", "PREFECT_"}),
        ({"services": "lakefs: stand-in"}, {"LAKEMARK_S3_", "AWS_", "PREFECT_"}),
        ({"services": "prefect: server"}, {"LAKEMARK_S3_", "AWS_", "LAKEFS_"}),
        ({"services": ""}, {"LAKEMARK_S3_", "AWS_", "LAKEFS_", "PREFECT_"}),
        ({"s3": "https://s3.example.org"}, {"LAKEMARK_S3_"}),
        ({"lakefs": "https://lakefs.example.org"}, {"LAKEFS_"}),
        (
            {
                "more": "  far: {class: cold, kind: s3, url: s3://far, endpoint: 'https://far.example.org', credentials: s3}\n"
            },
            {"LAKEMARK_S3_"},
        ),
        ({"lines": ["PREFECT_API_URL=https://prefect.example.org/api", "PREFECT_API_KEY=x"]}, {"PREFECT_"}),
    ],
)
def test_they_go_nowhere_else(sandboxed, site, absent):
    merged = sandboxed({}, **site)
    assert not [name for name in merged if name.startswith(tuple(absent))]


def test_keys_stay_as_they_are_where_the_file_has_none(sandboxed):
    environ = {"LAKEFS_ACCESS_KEY_ID": "A", "LAKEFS_SECRET_ACCESS_KEY": "B"}
    assert sandboxed(environ, lines=["X=1"]) == environ


def test_the_files_form(sandboxed):
    merged = sandboxed({}, lines=["# keys", "", "export LAKEFS_ACCESS_KEY_ID='A B'", 'LAKEFS_SECRET_ACCESS_KEY="x=y"'])
    assert (merged["LAKEFS_ACCESS_KEY_ID"], merged["LAKEFS_SECRET_ACCESS_KEY"]) == ("A B", "x=y")


@pytest.mark.parametrize("line", ["hush", "A B=hush", "LAKEFS_X=hush hush", "LAKEFS_X='hush", "=hush", "1A=hush"])
def test_broken_lines_are_named_unshown(sandboxed, line):
    with pytest.raises(Misconfigured, match=r"credentials.env:2 is not NAME=value") as caught:
        sandboxed({}, lines=["A=1", line])
    assert "hush" not in str(caught.value)


def test_others_may_not_read_it(sandboxed):
    with pytest.raises(Denied, match="has mode 644"):
        sandboxed({}, mode=0o644)


def test_no_file_is_no_keys(tmp_path):
    text = (Path(__file__).parents[2] / "configs" / "laptop.yaml").read_text()
    settings = loads(text, file=tmp_path / "lakemark.yaml", environ={}, hostname="h").settings
    assert with_sandbox(settings, {"A": "b"}) == {"A": "b"}
