"""Addresses that hold a password or token: they are used, and nowhere shown."""

import pickle

import pytest

from lakemark.cli.prefect_api import PrefectApi
from lakemark.data import options
from lakemark.errors import NotFound, StoreUnavailable, quoted, without_secrets
from tests.cli.git_servers import over_http
from tests.cli.test_reader_urls import begin, names

SECRET = "hush%2Fh:ush"
"""With what a URL's parts are told by."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:hush@host/x.git", "http://host/x.git"),
        ("https://hush@host:8080/x.git", "https://host:8080/x.git"),
        ("https://user:hush@hush@host/x", "https://host/x"),
        ("https://user:hu/sh@host/x", "https://host/x"),
        ("HTTPS://user:hush@host", "HTTPS://host"),
        ("ssh://git:hush@host/x", "ssh://git@host/x"),
        ("ssh://git@host:22/x", "ssh://git@host:22/x"),
        ("git@host:x.git", "git@host:x.git"),
        ("https://host/x?token=hush&more", "https://host/x?…"),
        ("https://host/x#hush", "https://host/x#…"),
        ("two: 'http://u:hush@a/b', \"http://u:hush@c/d?e=hush\".", "two: 'http://a/b', \"http://c/d?…\"."),
        ("http://[::1]:80/x and http://host/x@v2", "http://[::1]:80/x and http://host/x@v2"),
        ("lakefs://data/0a1b/", "lakefs://data/0a1b/"),
        ("/a/path@home, a:b@c", "/a/path@home, a:b@c"),
    ],
)
def test_what_is_shown_of_an_address(text, shown):
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


def test_no_error_of_ours_holds_one():
    error = StoreUnavailable("http://u:hush@host/ is silent", advice="Look at https://u:hush@host/.")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert "hush" not in f"{one} {one!r} {one.advice} {one.as_json()}"
    assert "hush" not in quoted(f"http://{'u' * 100}:hush{'h' * 100}@host/"), "cut off before what ends it"
    assert "hush" not in str(NotFound(quoted("x://u:hush@y"), advice="http://u:hush@z"))


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
@pytest.mark.parametrize("folder", ["", "/secret", "/denied"])
def test_the_address_of_a_ledger(trained, free_port, words, folder):
    """It works with its password, which the mirror's own file alone keeps, for this user alone."""
    with over_http(trained.home, free_port()) as url:
        secret = f"{url}{folder}/ledger.git".replace("http://", f"http://user:{SECRET}@")
        done = trained("init", trained.home / "reader", "--profile", "reader", "--ledger", secret, *words, "--json")
        assert "hush" not in done.out + done.err
        assert (done.code == 0) == (not folder or bool(words))
        if folder or words:
            assert "reader" not in names(trained.home)
            return
        begin(trained, secret)
        done = trained("ls", "r1", "--verbose")
        assert (done.code, done.err) == (0, "")
        done = trained("config", "show")
        assert f"{url}/ledger.git" in done.out
        assert "hush" not in done.out
    done = trained("ls", "r1")
    assert "as of the last time" in done.err
    assert "hush" not in done.err
    holding = [path for path in (trained.home / "reader").rglob("*") if path.is_file() and b"hush" in path.read_bytes()]
    assert holding == [trained.home / "reader/ledger.git/config"]
    assert holding[0].stat().st_mode & 0o777 == 0o600


def test_a_password_that_changed_is_kept_by_a_second_init(trained, free_port):
    with over_http(trained.home, free_port()) as url:
        for word in ("hush", "shush"):
            begin(trained, f"{url}/ledger.git".replace("http://", f"http://user:{word}@"))
            config = (trained.home / "reader/ledger.git/config").read_text()
            assert f":{word}@" in config
            assert config.count("insteadOf") == 1


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_the_address_of_prefect(cli, free_port, command):
    environ = {"PREFECT_API_URL": f"http://user:hush@127.0.0.1:{free_port()}/api?token=hush"}
    for words in ((), ("--json",), ("--verbose",)):
        done = cli(command, *words, environ=environ)
        assert "127.0.0.1" in done.out
        assert "hush" not in done.out + done.err
    assert "hush" not in repr(PrefectApi.of(environ))
    assert "hush" not in PrefectApi.of(environ).page_of("x")


@pytest.mark.parametrize(
    "remote", ["https://host/x?private_token=hush", "https://user:hush@host/x", "https://u:hu/sh@h"]
)
def test_an_address_in_the_configuration(cli, remote):
    cli.settings("  path: ledger.git", f"  path: ledger.git\n  remote: {remote}")
    for words in (("config", "show"), ("status",), ("ls",), ("doctor", "--verbose")):
        done = cli(*words)
        assert "hush" not in done.out + done.err, words
        assert "hu/sh" not in done.out + done.err, words


def test_an_address_of_a_data_server():
    environ = {"LAKEFS_ENDPOINT": "http://u:hush@host:1/api/v1", "LAKEFS_ACCESS_KEY_ID": "a"}
    server = options.server(None, environ=environ | {"LAKEFS_SECRET_ACCESS_KEY": "b"})
    assert server.endpoint == "http://host:1"
