"""Real checkpoints of 18 frameworks, many of them killed half-way, each with the verdict a careful person gives.

EXPECTED.tsv: path, framework, step, verdict, roles, why. A role with `?` may be inside, names do not tell. A step that is
no number is a counter, or nothing.
"""

import csv
import tarfile
from pathlib import Path

import pytest

from lakemark.formats import recogniser

CASES = Path(__file__).parent / "cases"
COLUMNS = ("path", "framework", "step", "verdict", "roles", "why")


def rows():
    with (CASES / "EXPECTED.tsv").open(newline="") as stream:
        read = [
            dict(zip(COLUMNS, row, strict=True))
            for row in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            if row
        ]
    return list({row["path"]: row for row in read}.values())


def root_of(path):
    """What a watcher is pointed at: the run's own folder."""
    parts = path.split("/")
    return "/".join(parts[: 3 if parts[1] == "interrupted" else 2])


ROWS = rows()
ROOTS = sorted({root_of(row["path"]) for row in ROWS})


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    into = tmp_path_factory.mktemp("cases")
    with tarfile.open(CASES / "checkpoints.tar.gz") as archive:
        archive.extractall(into, filter="tar")
    return into


@pytest.fixture(scope="session")
def recognise():
    return recogniser()


@pytest.fixture(scope="session")
def found(unpacked, recognise):
    """Root -> path -> finding, each root searched once."""
    searched = {}

    def of(root):
        if root not in searched:
            searched[root] = {str(one.path.relative_to(unpacked)): one for one in recognise.find(unpacked / root)}
        return searched[root]

    return of


def check(one, row):
    empty = row["verdict"] == "empty pointer"
    assert (one.framework, one.verdict.value) == (row["framework"], "pointer" if empty else row["verdict"]), one.why
    if empty:
        assert "empty" in one.why
    if row["step"].isdigit():
        assert one.step == int(row["step"])
    roles = [role for role in row["roles"].split(",") if role.rstrip("?").isalpha()]
    assert {role for role in roles if not role.endswith("?")} <= set(one.present), one.why
    assert {role.rstrip("?") for role in roles if role.endswith("?")} <= {*one.possible, *one.present}, one.why
    if "weights only" in row["why"]:
        assert "weights only: not resumable" in one.why
        assert one.resumable is False
    # Keras 3 writes the optimizer's variables into `.weights.h5` too, as the names in its root say.
    if row["roles"] == "weights" and row["framework"] != "keras-weights":
        assert "optimizer" not in one.present


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["path"])
def test_found(row, found):
    here = found(root_of(row["path"]))
    assert row["path"] in here, sorted(here)
    check(here[row["path"]], row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["path"])
def test_judged_alone(row, unpacked, recognise):
    check(recognise.judge(unpacked / row["path"]), row)


@pytest.mark.parametrize("root", ROOTS)
def test_nothing_else_is_found(root, found):
    expected = {row["path"] for row in ROWS if root_of(row["path"]) == root}
    assert sorted(set(found(root)) - expected) == []


def test_folders_that_hold_no_checkpoint(unpacked, recognise):
    """Every folder of a case is expected to hold something."""
    folders = {
        str(inner.relative_to(unpacked))
        for inner in (*unpacked.glob("*/*"), *unpacked.glob("*/interrupted/*"))
        if inner.is_dir() and inner.name != "interrupted"
    }
    for folder in sorted(folders - set(ROOTS)):
        assert [str(one.path) for one in recognise.find(unpacked / folder)] == [], folder
