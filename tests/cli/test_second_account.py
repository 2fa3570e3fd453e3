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
        root=machine.root,
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


def looked_at(site, account, *, by=None, who=(), code=0):
    words = [word for one in who for word in ("--who", one)]
    document = site.lakemark(by or site.root, "doctor", "--as-user", account.name, *words, code=code)
    return {one["name"].partition(": ")[2]: one for one in document["checks"]}


def followed(site, advice):
    """Does what is said, as whom it is said."""
    name = advice.removeprefix("as ").partition(": ")[0] if advice.startswith("as ") else None
    by = {one.name: one for one in (site.keeper, site.ana, site.ben)}.get(name, site.root)
    by("sh", "-c", advice.partition(": ")[2] if name else advice)


def test_doctor_says_that_an_account_may_do_all_of_it(site):
    site.train(site.ana, 100)
    site.lakemark(site.keeper, "sweep")
    checks = looked_at(site, site.ben, code=4)
    assert [name for name, one in checks.items() if not one["ok"]] == ["Git's trust in the ledger"]
    followed(site, checks["Git's trust in the ledger"]["advice"])
    checks = looked_at(site, site.ben)
    assert {"run files", "announcing saves", "writing the ledger", "keeping hot", "keeping cold"} <= set(checks)
    assert looked_at(site, site.ben, by=site.ben).keys() == checks.keys()
    # Nothing of root's was left behind, and nothing was changed.
    owners = {os.lstat(os.path.join(top, name)).st_uid for top, _, names in os.walk(site.home) for name in names}
    assert owners <= {site.keeper.uid, site.ana.uid}


SPOILT = {
    "configuration": ("lakemark.yaml", 0o600),
    "run files": ("runs/llama.json", 0o600),
    "announcing saves": ("spool/llama", 0o2750),
    "reading the ledger": ("ledger.git", 0o700),
    "writing the ledger": ("ledger.git/refs/heads/runs", 0o2755),
    "locks, journal and index": ("ledger.git/lakemark/locks/llama", 0o600),
    "journal": ("ledger.journal.sqlite", 0o640),
    "hot": ("hot/.lakemark", 0o2750),
    "cold": ("cold", 0o700),
    "home": ("runs", 0o2750),
}


def test_doctor_names_place_right_and_the_line_that_gives_it(site):
    site.train(site.ana, 100)
    site.lakemark(site.keeper, "sweep")
    trust(site, site.ben)
    looked_at(site, site.ben)
    for what, (path, mode) in SPOILT.items():
        place = site.home / path
        os.chmod(place, mode)
        checks = looked_at(site, site.ben, code=4)
        wrong = [one for one in checks.values() if not one["ok"]]
        assert wrong, what
        for one in wrong:
            assert str(place) in one["detail"], (what, one)
            assert f"{mode:04o}" in one["detail"], (what, one)
            assert site.ben.name in one["detail"], (what, one)
            followed(site, one["advice"])
        looked_at(site, site.ben)
    assert os.stat(site.home / "cold").st_mode & 0o007 == 0


def test_many_closed_folders_take_one_line(site):
    trust(site, site.ben)
    for folder in (site.home / "ledger.git" / "objects").iterdir():
        folder.chmod(0o755)
    checks = looked_at(site, site.ben, code=4)
    (wrong,) = [one for one in checks.values() if not one["ok"]]
    assert "more place(s)" in wrong["detail"]
    assert len(wrong["advice"]) < 300
    followed(site, wrong["advice"])
    looked_at(site, site.ben)


def test_an_account_that_is_not_in_the_group_is_told_to_join_it(site, machine):
    newcomer = machine.account(f"new{site.home.name[-2:].strip('-')}")
    checks = looked_at(site, newcomer, code=4)
    wrong = {one["advice"] for one in checks.values() if not one["ok"] and "Git" not in one["detail"]}
    assert wrong == {f"usermod -aG {site.group} {newcomer.name}"}
    followed(site, wrong.pop())
    newcomer = machine.again(newcomer.name)
    trust(site, newcomer)
    looked_at(site, newcomer)


def test_a_trainer_and_a_reader_need_no_more_than_what_they_do(site):
    hot = site.home / "hot"
    hot.chmod(0o2750)
    assert not looked_at(site, site.ana, code=4)["keeping hot"]["ok"]
    assert "keeping hot" not in looked_at(site, site.ana, who=["trainer"])
    trust(site, site.ana)
    assert "writing the ledger" not in looked_at(site, site.ana, who=["trainer", "reader"])


def test_an_unknown_account_role_and_somebody_else_s(site):
    unknown = site.lakemark(site.root, "doctor", "--as-user", "nobody-of-that-name", code=2)["error"]
    assert "nobody-of-that-name" in unknown["message"]
    assert site.lakemark(site.root, "doctor", "--as-user", site.ben.name, "--who", "king", code=2)["error"]["advice"]
    assert site.lakemark(site.root, "doctor", "--who", "reader", code=2)["error"]["advice"]
    other = site.lakemark(site.ana, "doctor", "--as-user", site.ben.name, code=8)["error"]
    assert site.ben.name in other["advice"]
    assert "sudo" in other["advice"]
