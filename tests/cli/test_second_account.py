"""One site, several accounts of this machine: the service's own, a trainer's, a colleague's, and one that is nobody's friend."""

import json
import os
import sys
from types import SimpleNamespace

import pytest

from tests.support.accounts import Machine

pytestmark = pytest.mark.xdist_group("accounts")
RUN = "llama"
CONFIG = """\
site: solo
node: node-a
ledger: {path: ledger.git, remote: null}
data: none
tiers:
  hot: {class: hot, kind: tree, path: hot, min_free: 0%}
  cold: {class: cold, kind: directory, path: cold, access: group}
residence:
  hot: {keep_last: 1, settle: 0s}
approval: {required: true, alone_after: null}
"""
TRAIN = """
import sys, pathlib
from lakemark.trainer import Run
run, folder, step = Run.open(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
place = folder / f"step-{step}"
place.mkdir(parents=True)
for name in ("model", "optimizer", "scheduler", "rng"):
    (place / f"{name}.bin").write_bytes(f"{name} {step}".encode() * 100)
run.saved(place, step=step, metrics={"loss": 1000 / step})
"""


@pytest.fixture(scope="module")
def machine(require_root, require_command):
    for program in ("useradd", "groupadd", "userdel", "groupdel", "setpriv", "unshare"):
        require_command(program)
    made = Machine()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def people(machine):
    """None of them has the umask that the page asks for: whoever forgets it must keep nobody else out."""
    group = machine.group("team")
    return SimpleNamespace(
        group=group,
        keeper=machine.account("keeper", group, umask=0o077),
        ana=machine.account("ana", group, umask=0o027),
        ben=machine.account("ben", group, umask=0o077),
        eve=machine.account("eve"),
    )


@pytest.fixture
def site(machine, people, request):
    """A folder of the group's, with a site that the keeper made there."""
    home = machine.home / f"site-{len(list(machine.home.iterdir()))}"
    machine.root("install", "-d", "-m", "2770", "-o", people.keeper.name, "-g", people.group, home)
    out = machine.home / f"out-{home.name}"
    machine.root("install", "-d", "-m", "2750", "-o", people.ana.name, "-g", people.group, out)
    (home / "lakemark.yaml").write_text(CONFIG)
    os.chown(home / "lakemark.yaml", people.keeper.uid, -1)
    (home / "lakemark.yaml").chmod(0o640)

    def lakemark(account, *words, code=0):
        done = account("lakemark", *words, "--json", code=code, LAKEMARK_CONFIG=str(home / "lakemark.yaml"))
        return json.loads(done.stdout if code in (0, 4) and done.stdout else done.stderr.splitlines()[-1])

    def train(account, step):
        account(sys.executable, "-c", TRAIN, RUN, out, step, LAKEMARK_HOME=str(home))

    made = SimpleNamespace(home=home, out=out, lakemark=lakemark, train=train, **vars(people))
    lakemark(made.keeper, "init", home, "--profile", "solo")
    lakemark(made.keeper, "run", "open", RUN, "--watch", out)
    return made


def trust(site, account):
    """What the refusal says is pasted as it is."""
    error = site.lakemark(account, "verify", "--invariants", code=8)["error"]
    command = error["advice"].partition("tell Git so: ")[2]
    assert str(site.home / "ledger.git") in command
    account("sh", "-c", command)


def test_several_accounts_of_a_group_work_on_one_site(site):
    site.train(site.ana, 100)
    site.train(site.ana, 200)
    swept = site.lakemark(site.keeper, "sweep")
    assert [one["step"] for one in swept["committed"]] == [100, 200]
    assert swept["unreadable"] == []
    trust(site, site.ben)
    assert site.lakemark(site.ben, "status")["ok"]
    # A colleague commits, and the keeper's pass sinks and releases what he landed.
    mine = site.home / "by-ben" / "step-300"
    site.ben("mkdir", "-p", mine)
    site.ben("cp", "-r", f"{site.out}/step-200/.", mine)
    site.ben("sh", "-c", f"echo more >> {mine}/model.bin; chmod -R g+rX {mine.parent}")
    site.lakemark(site.ben, "commit", mine, "--run", RUN, "--step", 300)
    site.train(site.ana, 400)
    swept = site.lakemark(site.keeper, "sweep")
    assert [one for one in swept["pending"] if "enied" in one["why"]] == []
    assert [{one["tier"] for one in row["replicas"]} for row in site.lakemark(site.ben, "ls", RUN)["records"]] == [
        {"hot", "cold"},
        {"cold"},
        {"cold"},
        {"cold"},
    ]
    # One asks to go back, another agrees, and the first carries it out.
    asked = site.lakemark(
        site.keeper, "rollback", "request", RUN, "--to", "200", "--while-running", "--reason", "why not"
    )
    rollback, digest = asked["rollback"], asked["plan"]
    site.lakemark(site.ben, "rollback", "approve", rollback, "--digest", digest)
    done = site.lakemark(site.ben, "rollback", "apply", rollback)
    assert done["timeline"] == 2
    # The trainer goes on from there, and what it saves then is found.
    trust(site, site.ana)
    assert site.lakemark(site.ana, "resume", RUN, "--to", site.out)["step"] == 200
    site.train(site.ana, 250)
    assert [one["step"] for one in site.lakemark(site.keeper, "sweep")["committed"]] == [250]
    assert site.lakemark(site.keeper, "verify")["damaged"] == []
    site.lakemark(site.ben, "restore", f"{RUN}@250", "--to", site.ben.home / "back")


def test_an_account_outside_the_group_gets_nothing(site):
    site.train(site.ana, 100)
    site.lakemark(site.keeper, "sweep")
    assert site.lakemark(site.eve, "ls", code=8)["error"]["kind"] == "Denied"
    for folder, _, names in os.walk(site.home):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                assert site.eve("cat", path, code=None).returncode != 0, path
