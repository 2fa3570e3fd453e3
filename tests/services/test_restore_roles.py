"""Restoring only some roles: files where they are separate, bytes where DCP mixes them, a refusal where one file has all."""

import os

import pytest

from lakemark.errors import Corrupt, NotFound, Refused, Usage
from lakemark.model.checkpoints.manifest import PART_SIZE_BYTES
from lakemark.services.back.restore import restore
from tests.services.framework_bench import RUN, Bench, tree


@pytest.fixture
def brought(tmp_path):
    """(bench, restore): of the case's first record, into a new directory."""

    def of(case, prepare=None):
        bench = Bench(tmp_path / "site", case, prepare=prepare)
        records = sorted(bench.site().ledger.run(RUN).records.values(), key=lambda found: found.record.step)

        def bring(*roles, to="back"):
            return restore(bench.site(), RUN, records[0].record.id, to=tmp_path / to, roles=roles)

        return bench, bring

    return of


def test_separate_files_come_with_configuration_alone(brought):
    bench, bring = brought("hf_trainer/plain")
    done = bring("weights")
    names = {"model.safetensors", "config.json", "generation_config.json", "training_args.bin"}
    assert set(tree(done.restored.path)) == names
    for name in names:
        assert (done.restored.path / name).read_bytes() == (bench.place / "checkpoint-5" / name).read_bytes()
    assert (done.along, done.mixed, done.partial) == (("config",), (), None)
    assert "rng" in done.roles.present
    both = bring("optimizer", "rng", to="both")
    assert {"optimizer.pt", "rng_state.pth"} == set(tree(both.restored.path)) - names


def test_a_file_of_one_role_that_may_hold_more_says_so(brought):
    _, bring = brought("deepspeed/zero1")
    done = bring("weights")
    assert set(tree(done.restored.path)) == {"mp_rank_00_model_states.pt"}
    assert "scheduler" in done.mixed


@pytest.mark.parametrize("case", ["lightning/keep_all", "keras_tf/tfckpt", "fairseq/plain", "flax/legacy_msgpack"])
def test_one_file_with_all_is_refused_with_its_size_and_nothing_is_made(brought, tmp_path, case):
    _, bring = brought(case)
    with pytest.raises(Refused, match=r"weights can't be had alone: .* bytes\)") as raised:
        bring("weights")
    assert "without --role" in raised.value.advice
    assert not (tmp_path / "back").exists()
    bring()


def test_unknown_and_absent_roles(brought, tmp_path):
    _, bring = brought("hf_trainer/only_model")
    with pytest.raises(Usage, match="wheel") as raised:
        bring("wheel")
    assert "weights" in raised.value.advice
    with pytest.raises(NotFound, match="no file has the role optimizer; its roles are"):
        bring("optimizer")
    assert not (tmp_path / "back").exists()


def longer(place):
    """The data of DCP as of a large model: its first bytes are named, the rest is in further parts."""
    for path in place.rglob("*.distcp"):
        before = path.stat()
        os.truncate(path, PART_SIZE_BYTES + 2**20)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_of_dcp_s_files_only_the_parts_with_bytes_of_the_role_come(brought):
    bench, bring = brought("dcp/single", prepare=longer)
    done = bring("weights")
    data = done.restored.path / "__0_0.distcp"
    assert data.stat().st_size == PART_SIZE_BYTES + 2**20
    assert done.partial.files == ("__0_0.distcp",)
    assert (done.partial.bytes_fetched, done.partial.bytes_sparse) == (PART_SIZE_BYTES, 2**20)
    source = bench.place / "step-100"
    with data.open("rb") as mine, (source / data.name).open("rb") as theirs:
        assert mine.read(PART_SIZE_BYTES) == theirs.read(PART_SIZE_BYTES)
    assert (done.restored.path / ".metadata").read_bytes() == (source / ".metadata").read_bytes()
    assert done.restored.size_bytes == PART_SIZE_BYTES + (source / ".metadata").stat().st_size


def test_a_role_in_a_file_of_its_own_brings_no_data_of_dcp(brought):
    _, bring = brought("megatron/torch_dist")
    done = bring("scheduler")
    names = set(tree(done.restored.path))
    assert "common.pt" in names
    assert not any(name.endswith(".distcp") for name in names)
    assert done.partial is None


def test_a_part_that_is_wrong_everywhere_is_an_error_and_shows_nothing(brought, tmp_path):
    bench, bring = brought("dcp/single")
    for path in (bench.home / "hot").rglob("__0_0.distcp"):
        path.unlink()
        path.write_bytes(b"x" * 87170)
    for tier in ("warm", "cold"):
        for path in (bench.home / tier / "files").rglob("*"):
            if path.is_file() and path.stat().st_size > 80_000:
                path.chmod(0o644)
                path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises((Corrupt, NotFound)):
        bring("weights")
    assert not (tmp_path / "back").exists()
