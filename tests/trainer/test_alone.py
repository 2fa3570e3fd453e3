"""The wheel without extras is all that a training image needs."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = """
import json, sys
before = set(sys.modules)
from lakemark.trainer import Run
run = Run.open("r")
run.saved("/x", step=7, metrics={"loss": 1})
ours = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names)
print(json.dumps([ours, run.data_uri(), run.resume]))
"""
RUN_FILE = {
    "run": "r", "timeline": 1, "attempt": "t", "resume": None,
    "data": [{"kind": "lakefs", "repository": "data", "branch": "main", "commit": "a" * 64, "uri": f"lakefs://data/{'a' * 64}/"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory, require_command):
    """The Python of an environment that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    uv = require_command("uv")
    subprocess.run(
        [uv, "build", "--wheel", "--offline", "--no-sources", "--out-dir", folder, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    found = folder / "venv/bin/python"
    subprocess.run(
        [uv, "pip", "install", "--offline", "--no-deps", "--python", found, wheel], check=True, capture_output=True
    )
    return found


def saved(command, tmp_path, **environ):
    spool = tmp_path / "spool/r"
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/r.json").write_text(json.dumps({**RUN_FILE, "spool": str(spool)}))
    clean = {"PATH": os.environ["PATH"], "LAKEMARK_HOME": str(tmp_path)} | environ
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (announced,) = spool.glob("*.json")
    assert json.loads(announced.read_text())["step"] == 7
    return json.loads(done.stdout)


def test_from_the_wheel_without_anything_else(python, tmp_path):
    modules, uri, resume = saved([python, "-I", "-W", "error", "-c", CODE], tmp_path)
    assert modules == [
        "lakemark",
        "lakemark.trainer",
        "lakemark.trainer.code",
        "lakemark.trainer.identity",
        "lakemark.trainer.run",
        "lakemark.trainer.together",
    ]
    assert (uri, resume) == (RUN_FILE["data"][0]["uri"], None)


def test_without_site_packages(python, tmp_path):
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    modules, *_ = saved([python, "-S", "-c", CODE], tmp_path, PYTHONPATH=str(packages))
    assert [name for name in modules if not name.startswith("lakemark")] == []


def test_imports_are_the_standard_librarys(tmp_path):
    code = (
        "import sys; from lakemark import trainer; "
        "print([n for n in sys.modules if n.startswith('lakemark.') and not n.startswith('lakemark.trainer')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
