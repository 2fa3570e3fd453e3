"""Formats that other packages add, by the entry-point group `lakemark.formats`."""

import sys

import pytest

from lakemark.errors import Misconfigured
from lakemark.formats import recogniser
from lakemark.ports import Verdict
from tests.formats.builders import save

MODULE = """
from lakemark.formats.rules.family import found


class Mine:
    def claims(self, folder):
        return folder.name.startswith("mine-")

    def step(self, folder):
        return int(folder.name.removeprefix("mine-"))

    def judge(self, folder):
        if self.step(folder) == 13:
            raise RuntimeError("unlucky")
        wrong = [] if folder.has_file("DONE") else ["no DONE"]
        return found(folder.path, "mine", self.step(folder), wrong, roles={"w.bin": "weights"})

    def loose(self, folder):
        return iter(())
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    def installed(target):
        package = tmp_path / "packages"
        save(package / "my_checkpoints.py", MODULE)
        save(
            package / "my_checkpoints-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: my-checkpoints\nVersion: 1.0\n",
        )
        save(package / "my_checkpoints-1.0.dist-info/entry_points.txt", f"[lakemark.formats]\nmine = {target}\n")
        monkeypatch.syspath_prepend(str(package))

    yield installed
    sys.modules.pop("my_checkpoints", None)


def test_another_package_s_format_is_asked_and_its_failure_is_its_own(install, tmp_path):
    install("my_checkpoints:Mine")
    out = tmp_path / "out"
    save(out / "mine-7/w.bin")
    save(out / "mine-7/DONE")
    save(out / "mine-8/w.bin")
    save(out / "mine-13/w.bin")
    save(out / "step-20/model.npz.txt", "x")
    found = {one.path.name: one for one in recogniser().find(out)}
    assert {name: (one.framework, one.step, one.verdict) for name, one in found.items() if name != "mine-13"} == {
        "mine-7": ("mine", 7, Verdict.COMPLETE),
        "mine-8": ("mine", 8, Verdict.INCOMPLETE),
        "step-20": ("generic", 20, Verdict.COMPLETE),
    }
    assert found["mine-13"].verdict is Verdict.INCOMPLETE
    assert "unlucky" in found["mine-13"].why


CARELESS = """
from lakemark.formats.rules.family import Loose


class Careless:
    def claims(self, folder):
        return folder.name.startswith("mine-")

    def step(self, folder):
        return folder.name.removeprefix("mine-")

    def judge(self, folder):
        return None

    def loose(self, folder):
        for name in folder.files:
            if name.endswith(".mine"):
                yield Loose(path=folder.path / name, names=(name,), judge=lambda: 1 / 0, step="7")
        raise RuntimeError("no more")
"""


def test_what_another_package_s_format_answers_keeps_nobody_else_s_checkpoint_out(install, tmp_path):
    install("my_checkpoints:Careless")
    save(tmp_path / "packages/my_checkpoints.py", CARELESS)
    out = tmp_path / "out"
    save(out / "mine-7/w.bin")
    save(out / "a.mine")
    save(out / "step-20/model.npz.txt", "x")
    found = {one.path.name: (one.framework, one.step, one.verdict.value) for one in recogniser().find(out)}
    assert found == {
        "mine-7": ("mine", None, "incomplete"),
        "a.mine": ("mine", None, "incomplete"),
        "step-20": ("generic", 20, "complete"),
    }
    assert "division" in recogniser().judge(out / "a.mine").why


WRONG = """
from pathlib import Path
from lakemark.formats.rules.family import found


class Elsewhere:
    def claims(self, folder):
        return folder.name.startswith("mine-")

    def step(self, folder):
        return 7

    def judge(self, folder):
        return found(Path("/etc"), "mine", 7, [])

    def loose(self, folder):
        return iter(())


class Half:
    def claims(self, folder):
        return True


def leaves():
    raise SystemExit(0)
"""


def test_one_that_speaks_of_what_it_was_not_asked_is_not_believed(install, tmp_path):
    install("my_checkpoints:Elsewhere")
    save(tmp_path / "packages/my_checkpoints.py", WRONG)
    save(tmp_path / "out/mine-7/w.bin")
    (found,) = recogniser().find(tmp_path / "out")
    assert (found.path, found.verdict) == (tmp_path / "out/mine-7", Verdict.INCOMPLETE)
    assert "speaks of /etc" in found.why


@pytest.mark.parametrize(
    ("target", "why"),
    [("my_checkpoints:Theirs", "Theirs"), ("my_checkpoints:Half", "no step"), ("my_checkpoints:leaves", "SystemExit")],
)
def test_one_that_can_t_be_loaded_is_named(install, tmp_path, target, why):
    install(target)
    save(tmp_path / "packages/my_checkpoints.py", WRONG)
    with pytest.raises(Misconfigured, match=f"'mine'.*{why}"):
        recogniser()
