"""A site of profile solo, and the command line run on it in this process."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakemark.cli import run
from lakemark.site import Parts, configuration, ledger_tips
from tests.conftest import new_in_memory


@dataclass
class Done:
    """What one command line left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The one JSON line on stderr; stdout must be empty."""
        assert self.out == ""
        (line,) = self.err.splitlines()
        return json.loads(line)["error"]


@dataclass
class Cli:
    """Runs `lakemark` with an environment of its own. `ok` wants exit code 0 and answers the JSON document."""

    home: Path
    capsys: Any
    monkeypatch: pytest.MonkeyPatch
    environ: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: object, environ: Mapping[str, str] | None = None) -> Done:
        self.capsys.readouterr()
        whole = self.environ | dict(environ or {})
        self.monkeypatch.setenv("LOGNAME", whole["LOGNAME"])  # whose account this is, the system says
        code = run([str(word) for word in words], environ=whole)
        out, err = self.capsys.readouterr()
        return Done(code, out, err)

    def ok(self, *words: object, environ: Mapping[str, str] | None = None) -> Any:
        done = self(*words, "--json", environ=environ)
        assert done.code == 0, done.err
        return done.json

    def fails(self, *words: object, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        done = self(*words, "--json", environ=environ)
        assert done.code == done.error["exit_code"]
        assert done.error["advice"]
        return done.error

    def save(self, step: int, content: bytes = b"", *, under: str = "out") -> Path:
        return save(self.home / under, step, content)

    def parts(self) -> Parts:
        return Parts(configuration(self.home / "lakemark.yaml", environ=self.environ), self.environ)

    def tips(self) -> dict[str, str]:
        return dict(ledger_tips(self.parts().settings))

    def settings(self, old: str, new: str) -> None:
        """Edits lakemark.yaml."""
        file = self.home / "lakemark.yaml"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def tier(self, line: str) -> None:
        """Adds one to lakemark.yaml, behind the others: `usb: {class: cold, …}`."""
        self.settings("\n# Verified replicas", f"  {line}\n\n# Verified replicas")


def environment(home: Path) -> dict[str, str]:
    """Nothing of this machine's own site; node-a, and the account ana."""
    foreign = ("LAKEMARK_", "PREFECT_", "LAKEFS_", "AWS_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return environ | {"LAKEMARK_NODE": "node-a", "LOGNAME": "ana", "HOME": str(home / "home")}


def train(home: Path) -> None:
    """A solo site with a run `r1`: the steps 100, 200 and 300, each also in cold."""
    environ = environment(home) | {"LAKEMARK_CONFIG": str(home / "lakemark.yaml")}

    def lakemark(*words: object) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOGNAME", environ["LOGNAME"])
            assert run([*map(str, words), "--quiet"], environ=environ) == 0

    lakemark("init", home, "--profile", "solo")
    lakemark("run", "open", "r1", "--watch", home / "out")
    for step in (100, 200, 300):
        path = save(home / "out", step)
        lakemark("commit", path, "--run", "r1", "--step", step, "--metric", f"loss={400 - step}", "--wait", "cold")


def save(folder: Path, step: int, content: bytes = b"") -> Path:
    """A checkpoint as a trainer leaves it."""
    path = folder / f"step-{step}"
    path.mkdir(parents=True)
    (path / "weights.bin").write_bytes(content or f"weights {step}".encode() * 100)
    (path / "optimizer.bin").write_bytes(b"optimizer")
    return path


@pytest.fixture
def tmp_path(memory_path) -> Path:
    """What the command line says is no matter of the disk below it."""
    return memory_path


@pytest.fixture
def empty(tmp_path, monkeypatch, capsys) -> Cli:
    """The command line in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys, monkeypatch, environment(tmp_path))


@pytest.fixture
def cli(empty) -> Cli:
    """The command line on an empty solo site."""
    empty.ok("init", ".", "--profile", "solo")
    return empty


@pytest.fixture
def trained(empty) -> Cli:
    """The command line on a site of the test's own with the steps 100, 200 and 300 of `r1`."""
    train(empty.home)
    return empty


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory) -> Iterator[Path]:
    """One such site for all tests that change nothing."""
    with new_in_memory(tmp_path_factory) as home:
        train(home)
        save(home / "unseen", 400)
        yield home


@pytest.fixture
def shared(shared_home, monkeypatch, capsys) -> Iterator[Cli]:
    """The command line on the site that is shared: the test must leave its ledger as it was."""
    monkeypatch.chdir(shared_home)
    cli = Cli(shared_home, capsys, monkeypatch, environment(shared_home))
    before = cli.tips()
    yield cli
    assert cli.tips() == before


@pytest.fixture
def someone() -> Callable[[str], dict[str, str]]:
    """The environment of another account."""
    return lambda name: {"LOGNAME": name}
