"""docs/accounts.md, pasted block by block, each as the account that it is for."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.accounts import Machine

pytestmark = pytest.mark.xdist_group("accounts")
PAGE = Path(__file__).parents[2] / "docs" / "accounts.md"
TRAIN = """
import os, pathlib
from lakemark.trainer import Run
run = Run.open("llama-7b")
for step in (100, 200):
    place = pathlib.Path(os.environ["OUT"]) / f"step-{step}"
    place.mkdir()
    for name in ("model", "optimizer", "scheduler", "rng"):
        (place / f"{name}.bin").write_bytes(f"{name} {step}".encode() * 100)
    run.saved(place, step=step)
"""


@pytest.fixture
def machine(require_root, require_command):
    for program in ("useradd", "groupadd", "userdel", "groupdel", "usermod", "setpriv", "unshare"):
        require_command(program)
    made = Machine()
    try:
        yield made
    finally:
        made.close()


class Town:
    """The page's names -> those of accounts, a group and folders that the test made."""

    def __init__(self, machine):
        self.machine = machine
        self.site, self.out = machine.home / "srv", machine.home / "out"
        self.login = {name: machine.account(name).name for name in ("lakemark", "ana", "ben")}
        self.group = machine.later(next(iter(self.login.values())).removesuffix("lakemark") + "all")

    def __call__(self, who, script, **environ):
        """All lines of a block, as typed in a new login's shell."""
        script = script.replace("/srv/lakemark", str(self.site)).replace("/train/out", str(self.out))
        script = re.sub(r"\btraining\b", self.group, script)
        script = re.sub(
            r"(usermod -aG \S+|-o|--as-user) (\w+)", lambda found: f"{found[1]} {self.login[found[2]]}", script
        )
        account = self.machine.root if who == "root" else self.machine.again(self.login[who], umask=0o022)
        return account("sh", "-euc", script, **environ)

    def lakemark(self, who, *words, code=0):
        """A command with --json; its answer."""
        line = " ".join(["lakemark", "--config", str(self.site / "lakemark.yaml"), *words, "--json"])
        account = self.machine.root if who == "root" else self.machine.again(self.login[who], umask=0o022)
        return json.loads(account("sh", "-euc", line, code=code).stdout)


def blocks(section):
    """(who, commands) of a section of the page."""
    text = PAGE.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^As (\w+):\n\n```console\n(.*?)```", text, re.MULTILINE | re.DOTALL)


def unaddressed(section):
    """The other commands of a section."""
    text = PAGE.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```console\n(.*?)```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def town(machine):
    made = Town(machine)
    home = machine.home / "ana"
    (home / "train.py").write_text(TRAIN)
    (home / "train.py").chmod(0o644)
    return made


def test_the_page_makes_a_site_that_three_accounts_work_on(town):
    for who, script in blocks("Set-up"):
        pending = town.lakemark("lakemark", "rollback", "ls")["rollbacks"] if who == "ben" else []
        known = {"ID": pending[0]["rollback"], "DIGEST": pending[0]["plan"]} if pending else {}
        town(who, script, OUT=str(town.out), **known)
    (records, back) = town.lakemark("ben", "ls", "llama-7b")["records"], town.machine.home / "ben" / "back"
    assert sorted(one["step"] for one in records) == [100]
    assert os.listdir(back) == ["model.bin"]
    for who, script in blocks("Is it right?"):
        town(who, script)
    assert town.lakemark("lakemark", "doctor")["ok"]


def test_the_page_gives_a_site_that_is_there_already_to_a_group(town):
    (_, first), *_ = blocks("Set-up")
    town("root", "\n".join(line for line in first.splitlines() if "install" not in line))
    town("root", "install -d -o lakemark /srv/lakemark\ninstall -d -o ana /train/out")
    town("lakemark", "lakemark init /srv/lakemark --profile solo")
    assert "access" not in (town.site / "lakemark.yaml").read_text()
    town.lakemark("lakemark", "run", "open", "llama-7b", "--watch", str(town.out))
    town.lakemark("lakemark", "sweep")
    before = town.lakemark("root", "doctor", "--as-user", town.login["ben"], code=4)["checks"]
    assert sum(not one["ok"] for one in before) > 3
    for who, script in blocks("A site that is there already"):
        town(who, script)
    town("ben", "git config --global --add safe.directory /srv/lakemark/ledger.git")
    left = town.lakemark("root", "doctor", "--as-user", town.login["ben"])["checks"]
    assert [one for one in left if not one["ok"]] == []
    assert (town.site / "ledger.git/config").read_text().count("sharedRepository") == 1


def test_the_page_lets_a_trainer_in_that_is_not_in_the_group(town, require_command):
    require_command("setfacl")
    for who, script in blocks("Set-up")[:2]:
        # What the trainer saves is the service's to read: by the folder's group, which it is not in itself.
        town(who, script.replace("usermod -aG training ana\n", ""))
    look = "cat /srv/lakemark/runs/llama-7b.json"
    town("ana", f"! {look}")
    (script,) = unaddressed("What stays each account's own")
    (later,) = re.findall(r"`(setfacl -d .*?)`", PAGE.read_text())
    again = "export LAKEMARK_CONFIG=/srv/lakemark/lakemark.yaml\numask 007\nlakemark run open llama-7b"
    town("lakemark", named(town, script))
    town("ana", "umask 027\npython train.py", OUT=str(town.out), LAKEMARK_HOME=str(town.site))
    spool = town.site / "spool" / "llama-7b"
    assert len(list(spool.glob("*.json"))) == 2
    town.lakemark("lakemark", "sweep")
    assert list(spool.glob("*.json")) == []
    assert [one["step"] for one in town.lakemark("ben", "ls", "llama-7b")["records"]] == [200, 100]
    # Each time it is written, it is a new file.
    town("lakemark", again)
    town("ana", f"! {look}")
    town("lakemark", named(town, later))
    town("lakemark", again)
    town("ana", look)


def named(town, script):
    return script.replace("u:ana:", f"u:{town.login['ana']}:")
