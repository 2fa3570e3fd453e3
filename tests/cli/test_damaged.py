"""What damaged bytes look like from the command line: exit 4 where only they are there, another replica else, and repair."""

import pytest


def weights_in_cold(trained):
    """The object of step 200's weights in cold, and its bytes."""
    right = (trained.home / "out" / "step-200" / "weights.bin").read_bytes()
    place = trained.parts().settings.tiers["cold"].path / "files"
    return next(path for path in place.rglob("*") if path.is_file() and path.read_bytes() == right), right


@pytest.fixture
def spoiled(trained):
    """Step 200 with one byte of its weights changed in cold."""
    victim, right = weights_in_cold(trained)
    victim.chmod(0o644)
    victim.write_bytes(b"W" + right[1:])
    return right


SORTS = {
    "flipped": lambda right: right[:-1] + bytes([right[-1] ^ 1]),
    "short": lambda right: right[:-1],
    "long": lambda right: right + b"x",
    "empty": lambda _: b"",
    "zeros": lambda right: bytes(len(right)),
}


@pytest.mark.parametrize("sort", SORTS)
def test_whatever_is_wrong_with_the_bytes_is_4(trained, sort):
    victim, right = weights_in_cold(trained)
    victim.chmod(0o644)
    victim.write_bytes(SORTS[sort](right))
    error = trained.fails("restore", "r1@200", "--from", "cold", "--to", trained.home / "back")
    assert (error["kind"], error["exit_code"]) == ("SourceDamaged", 4)


def test_bytes_that_are_not_there_are_3(trained):
    """Nothing damaged is there to be read: no replica has them."""
    victim, _ = weights_in_cold(trained)
    victim.unlink()
    error = trained.fails("restore", "r1@200", "--from", "cold", "--to", trained.home / "back")
    assert (error["kind"], error["exit_code"]) == ("NoReplica", 3)


def test_only_damaged_bytes_are_4_and_not_3(trained, spoiled):
    for _ in range(2):
        error = trained.fails("restore", "r1@200", "--from", "cold", "--to", trained.home / "back")
        assert (error["kind"], error["exit_code"]) == ("SourceDamaged", 4)
    assert "weights.bin" in error["message"]
    assert not (trained.home / "back").exists()
    sources = trained.ok("restore", "r1@200", "--to", trained.home / "back")["sources"]
    assert {one["tier"] for one in sources} == {"hot", "kept"}  # what was right of the first try is not read again
    assert (trained.home / "back" / "weights.bin").read_bytes() == spoiled


def test_verify_names_it_repairs_it_and_is_right_then(trained, spoiled):
    seen = trained("verify", "r1", "--json")
    assert seen.code == 4
    assert [(one["step"], one["tier"]) for one in seen.json["damaged"]] == [(200, "cold")]
    assert (seen.json["unsteady"], seen.json["unrecorded"]) == ([], [])
    assert any("step" not in one and "r1@200" in one["what"] for one in trained("status", "--json").json["problems"])
    mended = trained("verify", "r1", "--repair", "--json").json
    assert [one["tier"] for one in mended["repaired"]] == ["cold"]
    assert trained.ok("verify", "r1")["damaged"] == []
    trained.ok("restore", "r1@200", "--from", "cold", "--to", trained.home / "back")
    assert (trained.home / "back" / "weights.bin").read_bytes() == spoiled
