"""A reader whose site's ledger is served: by `git daemon`, over HTTP, and by file:// URLs."""

import shutil
import subprocess

import pytest

from tests.cli.conftest import Cli
from tests.cli.git_servers import over_files, over_git, over_http
from tests.services.framework_bench import tree

KINDS = {"file": over_files, "git": over_git, "http": over_http}
SERVED = [kind for kind in KINDS if kind != "file"]


@pytest.fixture
def port(free_port):
    return free_port()


@pytest.fixture(params=KINDS)
def serve(request, port, trained):
    """A context in which what lies in the test's folder is served; its value is the URL of that folder."""
    return lambda: KINDS[request.param](trained.home, port)


@pytest.fixture
def url(serve):
    with serve() as found:
        yield found


def begin(cli: Cli, ledger, *words):
    """`init` of a reader; whatever comes after is given on that machine."""
    document = cli.ok("init", cli.home / "reader", "--profile", "reader", "--ledger", ledger, *words)
    cli.environ |= {"LAKEMARK_CONFIG": document["config"], "LAKEMARK_NODE": "laptop-9"}
    return document


def on_the_site(cli: Cli):
    return {"LAKEMARK_CONFIG": str(cli.home / "lakemark.yaml"), "LAKEMARK_NODE": "node-a"}


def names(folder):
    """Without those of SQLite, which go when a connection of the commands before is let go of."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(("-shm", "-wal")))


def failed(cli: Cli, ledger, *words):
    """The error of an `init` that comes to nothing: nothing is left of it."""
    before = names(cli.home)
    error = cli.fails("init", cli.home / "new" / "reader", "--profile", "reader", "--ledger", ledger, *words)
    assert names(cli.home) == before
    return error["kind"], error["exit_code"]


def test_it_reads_and_restores_by_url(trained, url):
    document = begin(trained, f"{url}/ledger.git")
    rows = {row["name"]: row for row in document["tiers"]}
    assert rows["cold"]["id"] is not None
    assert f"{url}/ledger.git" in (trained.home / "reader/lakemark.yaml").read_text()
    trained.ok("restore", "r1@200", "--to", trained.home / "back")
    assert tree(trained.home / "back") == tree(trained.home / "out/step-200")
    more = trained.save(400)
    trained.ok("commit", more, "--run", "r1", "--step", 400, environ=on_the_site(trained))
    trained.ok("run", "open", "r2", environ=on_the_site(trained))
    assert [row["step"] for row in trained.ok("ls", "r1")["records"]] == [400, 300, 200, 100]
    assert {row["run"] for row in trained.ok("run", "ls")["runs"]} == {"r1", "r2"}
    assert begin(trained, f"{url}/ledger.git") == document


def test_a_url_that_leads_to_no_ledger_leaves_nothing(trained, url):
    subprocess.run(["git", "init", "--quiet", "--bare", trained.home / "empty.git"], check=True)
    for name in ("none.git", "empty.git", "out"):
        assert failed(trained, f"{url}/{name}") == ("NotFound", 3), name


@pytest.mark.parametrize("url", ["nonsense://x/y", "--upload-pack=touch here", "none.git", "/none/ledger.git"])
def test_so_does_what_is_no_url(trained, url):
    assert failed(trained, f"{url}") in {("NotFound", 3), ("Usage", 2)}
    assert not (trained.home / "here").exists()


def test_a_name_that_the_configuration_refuses_leaves_nothing(trained):
    assert failed(trained, trained.home / "ledger.git", "--site", "My Site")[1] == 2


def test_without_git_it_is_said(trained, monkeypatch):
    monkeypatch.setenv("PATH", str(trained.home))
    assert failed(trained, trained.home / "ledger.git") == ("Misconfigured", 2)


@pytest.mark.parametrize("serve", SERVED, indirect=True)
def test_a_server_that_is_away_is_tried_later(trained, serve):
    with serve() as url:
        pass
    assert failed(trained, f"{url}/ledger.git") == ("StoreUnavailable", 6)
    with serve():
        begin(trained, f"{url}/ledger.git")
    done = trained("ls", "r1", "--json")
    assert (done.code, [row["step"] for row in done.json["records"]]) == (0, [300, 200, 100])
    assert "as of the last time" in done.err
    with serve():
        assert trained("ls", "r1", "--json").err == ""


@pytest.mark.parametrize("serve", ["http"], indirect=True)
def test_a_server_that_wants_rights_is_no_server_that_is_away(trained, url):
    assert failed(trained, f"{url}/denied/ledger.git") == ("Denied", 8)
    assert failed(trained, f"{url}/secret/ledger.git") == ("Denied", 8)


@pytest.mark.parametrize("how", ["another", "older"])
def test_a_history_that_was_replaced_is_refused_whole(trained, url, how):
    before = trained.home / "before.git"
    shutil.copytree(trained.home / "ledger.git", before)
    trained.ok("run", "open", "r0", environ=on_the_site(trained))
    trained.ok("run", "close", "r1", "--reason", "because", environ=on_the_site(trained))
    begin(trained, f"{url}/ledger.git")
    trained.ok("ls")
    refs = references(trained.home / "reader/ledger.git")
    assert len(refs) == 3
    if how == "another":
        other = trained.home / "other"
        trained.ok("init", other, "--profile", "solo", environ={"LAKEMARK_NODE": "node-a"})
        trained.ok("run", "open", "strange", environ={"LAKEMARK_CONFIG": str(other / "lakemark.yaml")})
        before = other / "ledger.git"
    shutil.rmtree(trained.home / "ledger.git")
    before.rename(trained.home / "ledger.git")
    error = trained.fails("ls", "r1")
    assert (error["kind"], error["exit_code"]) == ("Refused", 7)
    assert "replaced" in error["message"]
    assert references(trained.home / "reader/ledger.git") == refs, "something of the other history came in"


def references(repository):
    done = subprocess.run(["git", "--git-dir", repository, "show-ref"], check=True, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "refs/heads" in line]


def test_what_is_advised_can_be_done_here(trained):
    """Whatever a reading command says: a command that a reader refuses is for a node of the site."""
    begin(trained, trained.home / "ledger.git")
    victims = [path for path in (trained.home / "cold/files").rglob("*") if path.is_file()]
    for path in victims:
        path.chmod(0o644)
        path.write_bytes(b"rot")
    assert trained("verify", "r1", environ=on_the_site(trained)).code == 4
    (trained.home / "cold/lakemark-tier.json").rename(trained.home / "tier.json")
    said = [problem["next"] for problem in trained("status", "--json").json["problems"]]
    assert any("Mount it" in advice and "tier init" not in advice for advice in said)
    assert any(advice.startswith("On a node of the site: lakemark verify") for advice in said)
    said += [check["advice"] for check in trained("doctor", "--json").json["checks"]]
    (trained.home / "tier.json").rename(trained.home / "cold/lakemark-tier.json")
    said.append(trained.fails("restore", "r1@100", "--to", "back")["advice"])
    shown = trained("show", "r1@100").out
    assert "not known" in shown
    for text in (*said, *shown.splitlines()):
        for refused in ("verify", "sweep", "bind", "tier init", "resume", "run close", "replicate"):
            assert f"lakemark {refused}" not in text or text.startswith("On a node of the site: "), text
