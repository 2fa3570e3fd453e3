"""Accounts of this machine's own, made for a test and removed after it, and programs run as one of them.

The interpreter that runs the tests may lie in a home that is closed to others: then each program gets a view of the file
system in which the way to it is open, and nothing else is.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_VIEW = """
set -e
mask=$(umask)
umask 022
mount --make-rprivate /
top=$1 inside=$2; shift 2
kept=$(mktemp -d)
mount --bind "$inside" "$kept"
mount -t tmpfs -o mode=755 tmpfs "$top"
mkdir -p "$inside"
mount --bind "$kept" "$inside"
umount "$kept"
rmdir "$kept"
umask "$mask"
exec "$@"
"""


@dataclass(frozen=True)
class Account:
    """umask: of the shell that it types in."""

    name: str
    uid: int
    gids: tuple[int, ...]
    home: Path
    umask: int = 0o007
    environ: dict = field(default_factory=dict)

    def __call__(self, *words, code=0, **environ):
        """Runs a program; answers what it left. `lakemark` is that of the tests' environment."""
        base = {"HOME": str(self.home), "LOGNAME": self.name, "USER": self.name, "LANG": "C.UTF-8"}
        path = os.pathsep.join(
            [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        )
        command = [*_in_reach(), *self._become(), *map(str, words)]
        done = subprocess.run(
            command,
            env={**base, "PATH": path, **self.environ, **environ},
            cwd=self.home,
            umask=self.umask,
            capture_output=True,
            text=True,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, f"{self.name}: {words}: {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def _become(self):
        if self.uid == 0:
            return []
        groups = ",".join(map(str, self.gids))
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.gids[0]}", f"--groups={groups}", "--"]


def _in_reach():
    """What opens the way to the interpreter, where it lies in a folder that is closed to others."""
    place = Path(os.path.realpath(sys.executable)).parent.parent
    closed = [folder for folder in (place, *place.parents) if not folder.stat().st_mode & 0o001]
    if not closed:
        return []
    return ["unshare", "--mount", "--", "sh", "-c", _VIEW, "sh", str(closed[-1]), str(place)]


class Machine:
    """Makes accounts and groups, under names that no other test has, in a folder that everybody may enter."""

    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="lakemark-accounts-"))
        self.home.chmod(0o755)
        self._word = self.home.name.rpartition("-")[2].lower().replace("_", "x")
        self._made = []
        self.root = Account("root", 0, (0,), self.home, umask=0o022)

    def group(self, name):
        name = f"lm{self._word}{name}"
        _run("groupadd", name)
        self._made.append(("groupdel", name))
        return name

    def later(self, name):
        """A group that the test makes itself: here it is only removed."""
        self._made.append(("groupdel", name))
        return name

    def account(self, name, *groups, umask=0o007):
        """Its main group is one of its own name, as Debian's accounts have it."""
        login = f"lm{self._word}{name}"
        more = ["--groups", ",".join(groups)] if groups else []
        _run("useradd", "--create-home", "--home-dir", self.home / name, "--user-group", *more, login)
        self._made.append(("userdel", login))
        return self.again(login, umask=umask)

    def again(self, login, *, umask=0o007):
        """The account as a new login has it: with the groups that it is in by now."""
        import pwd

        found = pwd.getpwnam(login)
        groups = [found.pw_gid, *(one for one in os.getgrouplist(login, found.pw_gid) if one != found.pw_gid)]
        return Account(login, found.pw_uid, tuple(groups), Path(found.pw_dir), umask=umask)

    def close(self):
        for command in reversed(self._made):
            subprocess.run(command, capture_output=True, check=False)
        shutil.rmtree(self.home)


def _run(*words):
    subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
