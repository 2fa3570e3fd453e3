"""Every example: its trainer is killed in the middle of a save, rolled back with its data, resumed, and compared."""

import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from examples.checks import same_weights
from examples.drive import story, table
from examples.scripts import EXAMPLES, Example
from examples.stage import Site, digests, rows
from tests.conftest import missing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site.started(tmp_path_factory.mktemp("examples")) as site:
        yield site


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_trainer_killed_in_a_save_comes_back_with_its_data(name, site, record_property):
    example = EXAMPLES[name]
    if not example.installed:
        missing(f"the package {example.needs}")
    began = time.monotonic()
    checks = story(site, example)
    record_property("table", table(name, checks, time.monotonic() - began))
    assert len(checks) == 8
    assert [check for check in checks if not check.ok] == []


def test_every_script_is_told_of_and_every_framework_is_in_the_group():
    assert sorted(EXAMPLES) == sorted(path.parent.name for path in ROOT.glob("examples/*/train.py"))
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["frameworks"]
    names = " ".join(one for one in group if isinstance(one, str))
    assert [example.name for example in EXAMPLES.values() if example.needs not in names] == []


def test_one_bit_of_one_weight_is_seen(tmp_path):
    example = Example(name="x", needs="x", saves="x", framework="x")
    final, wanted = tmp_path / "final.npz", tmp_path / "wanted.npz"
    weights = np.ones(5, np.float32)
    np.savez(final, w=weights)
    np.savez(wanted, w=weights)
    assert same_weights(example, final, wanted).ok
    np.savez(wanted, w=np.nextafter(weights, 2, dtype=np.float32))
    assert not same_weights(example, final, wanted).ok
    np.savez(wanted, other=weights)
    assert not same_weights(example, final, wanted).ok


def test_editions_of_the_data_differ_and_stay_what_they_are():
    assert rows(1) == rows(1) != rows(2)


def test_digests_are_of_names_and_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    first = digests(tmp_path)
    assert digests(tmp_path / "a") == first
    (tmp_path / "a").write_bytes(b"2")
    assert digests(tmp_path) != first
