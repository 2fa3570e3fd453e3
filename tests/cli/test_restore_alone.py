"""`restore --tier-path`: from a tier's disk alone, with neither site nor ledger."""

import json
import shutil

import pytest


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def disks(trained, tmp_path):
    """Copies of a site's tiers, on a machine that has nothing else; an id; and what the trainer had saved."""
    identity = trained.ok("show", "r1@200")["record"]
    alone = tmp_path / "alone"
    for tier in ("hot", "cold"):
        place = trained.parts().settings.tiers[tier].path
        shutil.copytree(place, alone / tier, symlinks=True)
    right = contents(trained.home / "out" / "step-200")
    for name in ("ledger.git", "lakemark.yaml"):
        path = trained.home / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    trained.monkeypatch.chdir(alone)
    return alone, identity, right


@pytest.mark.parametrize("tier", ["hot", "cold"])
@pytest.mark.parametrize("form", ["id:{}", "ID:{}", "{}"])
def test_the_whole_checkpoint_comes_back_and_the_disk_stays_as_it_is(trained, disks, tier, form):
    alone, identity, right = disks
    before = names(alone / tier)
    to = alone / "back"
    done = trained.ok("restore", form.format(identity[:14]), "--tier-path", alone / tier, "--to", to)
    assert contents(to) == right
    assert (done["record"], done["verified"]) == (identity, True)
    assert done["sources"] == [{"tier": str(alone / tier), "node": None, "files": len(right)}]
    assert names(alone / tier) == before


@pytest.mark.parametrize("tier", ["hot", "cold"])
def test_a_flipped_byte_shows_nothing(trained, disks, tier):
    alone, identity, right = disks
    victim = next(
        path for path in (alone / tier).rglob("*") if path.is_file() and path.read_bytes() == right["weights.bin"]
    )
    victim.chmod(0o644)
    victim.write_bytes(b"W" + right["weights.bin"][1:])
    error = trained.fails("restore", f"id:{identity}", "--tier-path", alone / tier, "--to", alone / "back")
    assert error["exit_code"] == 4
    assert not (alone / "back").exists()


@pytest.mark.parametrize("tier", ["hot", "cold"])
@pytest.mark.parametrize("what", ["digest", "no files", "another's", "garbage"])
def test_a_manifest_that_is_not_the_id_s_is_not_believed(trained, disks, tier, what):
    alone, identity, _ = disks
    folder = alone / tier / (".lakemark/sealed" if tier == "hot" else "lakemark/records")
    claim = folder / f"{identity}.json"
    value = json.loads(claim.read_bytes())
    if what == "digest":
        value["manifest"]["files"][-1]["digest"] = value["manifest"]["files"][0]["digest"]
    elif what == "no files":
        value["manifest"]["files"] = []
    elif what == "another's":
        other = next(path for path in folder.iterdir() if path != claim)
        value = json.loads(other.read_bytes())
    claim.chmod(0o644)
    claim.write_bytes(b"\x00" if what == "garbage" else json.dumps(value).encode())
    error = trained.fails("restore", f"id:{identity}", "--tier-path", alone / tier, "--to", alone / "back")
    assert error["exit_code"] == 4
    assert not (alone / "back").exists()


@pytest.mark.parametrize("tier", ["hot", "cold"])
def test_a_whole_id_needs_no_identity_file(trained, disks, tier):
    alone, identity, right = disks
    (alone / tier / "lakemark-tier.json").unlink()
    trained.ok("restore", f"id:{identity}", "--tier-path", alone / tier, "--to", alone / "back")
    assert contents(alone / "back") == right


def test_what_is_there_is_named_where_the_id_is_not(trained, disks):
    alone, identity, _ = disks
    where = ("--tier-path", alone / "cold", "--to", alone / "back")
    unknown = trained.fails("restore", "id:0123456789abcdef", *where)
    assert unknown["exit_code"] == 3
    assert "r1@200" in unknown["message"]
    assert identity[:12] in unknown["message"]
    assert trained.fails("restore", "r1@200", *where)["exit_code"] == 2
    assert trained.fails("restore", "id:" + identity[:10], "--tier-path", alone, "--to", alone / "b")["exit_code"] == 3
    for more in (("--role", "weights"), ("--from", "cold")):
        assert trained.fails("restore", f"id:{identity}", *where, *more)["exit_code"] == 2
    assert trained.ok("restore", f"id:{identity}", *where, "--dry-run")["would"]
    assert not (alone / "back").exists()
