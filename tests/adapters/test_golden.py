"""What lies in tiers will be read for years: each format as it is written now, byte for byte, and read back."""

import os
from datetime import UTC, datetime
from pathlib import Path

from lakemark.adapters import tier_file
from lakemark.adapters.dvc_layout import Claim, Mark, dir_bytes
from lakemark.adapters.tree_identity import FileIdentity, Sealed
from lakemark.model.checkpoint import File, FileType, Manifest
from lakemark.model.record import DataRef, record_for
from lakemark.ports import Identity

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
OBJECTS = {"1" * 64: "3" * 32, "2" * 64: "4" * 32, "dir": "5" * 32 + ".dir"}


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
    mark = Mark(condemned_at=AT).started()
    assert Mark.from_bytes(check("condemned.json", mark.to_bytes()), key="here") == mark


def test_a_directory_object():
    check("directory.dir", dir_bytes(MANIFEST, OBJECTS))


def test_a_sealed_tree():
    linked = {"model.pt": FileIdentity(12, 5, 1795694400000000001, 1795694400000000002)}
    sealed = Sealed(record=BOUND, manifest=MANIFEST, tree=f"llama-7b/300-{BOUND.id[:12]}", linked=linked)
    assert Sealed.from_bytes(check("sealed.json", sealed.to_bytes())) == sealed
