"""What lies in tiers will be read for years: each format as it is written now, byte for byte, and read back."""

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from lakemark.adapters.disk import tier_file
from lakemark.adapters.dvc.layout import Claim, Mark, dir_bytes, dir_name, drop_bytes, used_names
from lakemark.adapters.git import pointer as git_pointer
from lakemark.adapters.hot.marker import FileIdentity, Sealed
from lakemark.adapters.node.run_files import read_run_file, spooled, write_run_file
from lakemark.model.checkpoints.manifest import File, FileType, Manifest
from lakemark.model.checkpoints.record import DataRef, record_for
from lakemark.ports import Identity, RunFile
from lakemark.trainer import Run

GOLDEN = Path(__file__).parent / "golden"
AT = datetime(2026, 11, 26, 12, tzinfo=UTC)
MANIFEST = Manifest(
    files=(
        File(path="bin/run", size_bytes=2, executable=True, digest="1" * 64),
        File(path="best", type=FileType.SYMLINK, target="model.pt"),
        File(path="model.pt", size_bytes=5, digest="2" * 64, role="weights"),
        File(path="void", type=FileType.DIRECTORY),
    ),
    roles=("weights",),
)
RECORD = record_for(MANIFEST, run="llama-7b", timeline=1, step=300, saved_at=AT, node="node-a")
BOUND = RECORD.with_data((DataRef(repository="data", branch="main", commit="a" * 64, evidence="opened"),))
NAMES = {"1" * 64: "3" * 32, "2" * 64: "4" * 32}
OBJECTS = {**NAMES, "dir": dir_name(dir_bytes(MANIFEST, NAMES))}


def check(name, data):
    """UPDATE_GOLDEN=1 writes it anew."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_bytes(data)
    assert path.read_bytes() == data
    return path.read_bytes()


def test_a_tier_s_identity():
    identity = Identity(id="6" * 32, tier_class="warm", ledger="7f0c-ledger", created_at=AT)
    data = check("lakemark-tier.json", tier_file.to_bytes(identity))
    assert tier_file.from_bytes(data, where="here") == identity


def test_a_tier_s_record_of_a_checkpoint():
    claim = Claim(record=BOUND, manifest=MANIFEST, objects=OBJECTS, claimed_at=AT)
    assert Claim.from_bytes(check("tier-record.json", claim.to_bytes()), key="here") == claim


def test_a_condemned_object():
    mark = Mark(condemned_at=AT, going=True)
    assert Mark.from_bytes(check("condemned.json", mark.to_bytes()), key="here") == mark
    by_an_earlier_version = (GOLDEN / "going.json").read_bytes()
    assert Mark.from_bytes(by_an_earlier_version, key="here") == mark


def test_a_drop():
    assert used_names(check("dropped.json", drop_bytes(BOUND.id, OBJECTS, AT)), key="here") == {*OBJECTS.values()}


def test_a_directory_object():
    check("directory.dir", dir_bytes(MANIFEST, OBJECTS))


def test_a_sealed_tree():
    linked = {"model.pt": FileIdentity(12, 5, 1795694400000000001, 1795694400000000002)}
    sealed = Sealed(record=BOUND, manifest=MANIFEST, tree=f"llama-7b/300-{BOUND.id[:12]}", linked=linked)
    assert Sealed.from_bytes(check("sealed.json", sealed.to_bytes())) == sealed
    entry = {"source": "/train/out/step-300", "directory": "/train/out", "linked": True, "conflicts_with": None}
    told = replace(sealed, entry={**entry, "notes": ["weights only: not resumable"]})
    assert Sealed.from_bytes(check("sealed-entry.json", told.to_bytes())) == told


RUN_FILE = RunFile(
    run="llama-7b",
    timeline=2,
    attempt="6f" * 8,
    spool=Path("/srv/lakemark/spool/llama-7b"),
    data=(DataRef(repository="data", branch="main", commit="a" * 64, evidence="opened", extra={"added_later": 1}),),
    resume={"path": "/srv/lakemark/restores/llama-7b/300", "step": 300, "record": RECORD.id, "timeline": 2},
    simulated=True,
)


def test_a_run_file(tmp_path):
    write_run_file(tmp_path / "run.json", RUN_FILE)
    check("run-file.json", (tmp_path / "run.json").read_bytes())
    assert read_run_file(GOLDEN / "run-file.json") == RUN_FILE
    run = Run.open("llama-7b", environ={"LAKEMARK_RUN_FILE": str(GOLDEN / "run-file.json")})
    assert (run.name, run.timeline, run.resume) == ("llama-7b", 2, dict(RUN_FILE.resume))
    assert run.data_uri() == f"lakefs://data/{'a' * 64}/"


def test_a_spool_file(tmp_path):
    (ref,) = RUN_FILE.data
    run = Run(
        name="llama-7b",
        timeline=2,
        attempt=RUN_FILE.attempt,
        data=({**ref.as_json(), "uri": ref.uri},),
        _spool=str(tmp_path),
        _resume=dict(RUN_FILE.resume),
        _code={"repository": "https://example.org/x.git", "commit": "c" * 40, "dirty": None},
        _clock="2026-11-26T12:00:00.5Z",
    )
    assert run.resume
    run.saved("/out/step-400", step=400, metrics={"val_loss": 1.5}, roles={"w.pt": "weights"})
    (written,) = tmp_path.glob("*.json")
    check("spool.json", written.read_bytes())
    spool = tmp_path / "spool"
    spool.mkdir()
    shutil.copy(GOLDEN / "spool.json", spool)
    (one,) = spooled(spool)
    assert (one.run, one.step, one.timeline, one.attempt) == ("llama-7b", 400, 2, RUN_FILE.attempt)
    assert (one.path, one.saved_at) == (Path("/out/step-400"), AT.replace(microsecond=500_000))
    assert (one.data, one.metrics, one.roles) == (RUN_FILE.data, {"val_loss": 1.5}, {"w.pt": "weights"})
    assert one.identity == {}
    assert one.code == {"repository": "https://example.org/x.git", "commit": "c" * 40, "dirty": None}


def test_what_a_clone_of_the_ledger_gives_dvc():
    remotes = {
        "warm": git_pointer.Remote(
            name="warm", url="s3://lakemark/warm", endpoint="http://127.0.0.1:8333", region="us-east-1"
        ),
        "cold": git_pointer.Remote(name="cold", url="/disks/co,ld", directory=True),
    }
    files = git_pointer.files(MANIFEST, OBJECTS, tiers=("warm", "cold"), remotes=remotes)
    assert sorted(files) == [".dvc/.gitignore", ".dvc/config", ".gitignore", "checkpoint.dvc"]
    for path, data in files.items():
        check(f"clone-{path.replace('/', '-').lstrip('.')}", data)
