"""Parts of one checkpoint on several nodes: the union is whole exactly where every needed file lies on some node."""

import json
import os
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from lakemark.errors import Corrupt, Refused
from lakemark.formats.find.parts import facts
from lakemark.model.checkpoints.parts import Facts, unite
from tests.formats.builders import Chunk, as_json, dcp, dcp_metadata, save, torch_zip

WORLD = {"dp_world_size": 2, "mp_world_size": 2}


def fsdp(folder):
    dcp(folder, ranks=4)


def without_collectives(folder):
    for rank in range(3):
        file = f"__{rank}_0.distcp"
        save(folder / file, os.urandom(100))
        save(folder / f"__{rank}.metadata", dcp_metadata([Chunk("model.w", file), Chunk("optim.w", file, 50, 50)]))


def olmo(folder):
    dcp(folder / "model_and_optim", ranks=2, fqns=("model.w", "optim.state.w.step"))
    for rank in range(2):
        save(folder / f"train/rank{rank}.pt", torch_zip(values={"global_step": 5, "world_size": 2, "rng": {}}))
    as_json(folder / ".metadata.json", {"version": "3.0.0"})


def zero_2(folder):
    for mp in range(2):
        save(folder / f"mp_rank_{mp:02d}_model_states.pt", torch_zip(values={"module": {}, **WORLD}))
        for dp in range(2):
            save(folder / f"zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt", torch_zip(("optimizer_state_dict",)))


def zero_3(folder):
    for dp in range(3):
        values = {"module": {}, "dp_world_size": 3, "mp_world_size": 1}
        save(folder / f"zero_pp_rank_{dp}_mp_rank_00_model_states.pt", torch_zip(values=values))
        save(folder / f"bf16_zero_pp_rank_{dp}_mp_rank_00_optim_states.pt", torch_zip(("optimizer_state_dict",)))


def experts(folder):
    zero_2(folder)
    for layer in range(2):
        for expert in range(3):
            save(folder / f"layer_{layer}_expert_{expert}_mp_rank_00_model_states.pt", torch_zip())


def megatron_dist(folder):
    dcp(folder, ranks=2, fqns=("model.w", "optimizer.state.exp_avg.w"))
    as_json(folder / "metadata.json", {"sharded_backend": "torch_dist", "sharded_backend_version": 1})
    save(folder / "common.pt", torch_zip(("opt_param_scheduler", "iteration")))


def megatron_legacy(folder):
    split = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
    for tp in range(2):
        for pp in range(2):
            values = {"model": {}, "args": split, **split}
            save(folder / f"mp_rank_{tp:02d}_{pp:03d}/model_optim_rng.pt", torch_zip(values=values))
            save(folder / f"mp_rank_{tp:02d}_{pp:03d}/distrib_optim.pt", torch_zip(("exp_avg",)))


def orbax(folder):
    as_json(folder / "_CHECKPOINT_METADATA", {"item_handlers": {}, "commit_timestamp_nsecs": 1})
    as_json(folder / "state/_METADATA", {"tree_metadata": {}, "use_ocdbt": True})
    save(folder / "state/manifest.ocdbt", manifest())
    for process in range(3):
        save(folder / f"state/ocdbt.process_{process}/manifest.ocdbt", manifest())
        as_json(folder / f"state/array_metadatas/process_{process}", {"array_metadatas": []})
        as_json(folder / f"data_iter/process_{process}-of-3.json", {})


def orbax_zarr(folder):
    as_json(folder / "_CHECKPOINT_METADATA", {"item_handlers": {}, "commit_timestamp_nsecs": 1})
    leaf = {"value_metadata": {"value_type": "jax.Array", "skip_deserialize": False}}
    tree = {name: {"key_metadata": [{"key": "params"}, {"key": name}], **leaf} for name in ("a", "b")}
    as_json(folder / "state/_METADATA", {"tree_metadata": tree, "use_ocdbt": False})
    for name in tree:
        as_json(folder / f"state/params.{name}/.zarray", {"zarr_format": 2, "shape": [2], "chunks": [2]})


def manifest():
    body = b"x" * 20
    return b"\x0c\xdb\x3a\x2a" + (12 + len(body)).to_bytes(8, "little") + body


CASES = {
    "dcp": [fsdp, without_collectives],
    "olmo-core": [olmo],
    "deepspeed": [zero_2, zero_3, experts],
    "megatron-dist": [megatron_dist],
    "megatron-legacy": [megatron_legacy],
    "orbax": [orbax, orbax_zarr],
}
ALL = [(framework, build) for framework, builds in CASES.items() for build in builds]


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """One folder per case, built once; its files' names."""
    made = {}
    for _, build in ALL:
        folder = tmp_path_factory.mktemp(build.__name__) / "step-100"
        build(folder)
        made[build.__name__] = (
            folder,
            sorted(
                os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names
            ),
        )
    return made


def judged(framework, folder, nodes, into):
    """nodes: for each node the names of the files on it."""
    parts = []
    for number, names in enumerate(nodes):
        node = into / f"node-{number}"
        shutil.rmtree(node, ignore_errors=True)
        node.mkdir(parents=True)
        for name in names:
            (node / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(folder / name, node / name)
        part = facts(node, framework=framework, attempt="a1", step=100, node=f"node-{number}")
        assert Facts.from_json(json.loads(json.dumps(part.as_json()))) == part
        parts.append(part)
    return unite(parts)


@pytest.mark.parametrize(("framework", "build"), ALL, ids=lambda value: getattr(value, "__name__", None))
@settings(max_examples=10)
@given(data=st.data())
def test_any_split_is_whole_and_any_loss_is_not(framework, build, data, whole, tmp_path_factory):
    folder, names = whole[build.__name__]
    count = data.draw(st.integers(1, 4), label="nodes")
    places = [data.draw(st.sets(st.integers(0, count - 1), min_size=1), label=name) for name in names]
    nodes = [[name for name, on in zip(names, places, strict=True) if node in on] for node in range(count)]
    into = tmp_path_factory.mktemp("nodes")
    found = judged(framework, folder, nodes, into)
    assert found.complete, found.why
    lost = data.draw(st.sampled_from(names), label="lost")
    found = judged(framework, folder, [[name for name in one if name != lost] for one in nodes], into)
    assert not found.complete, lost


@pytest.mark.parametrize(("framework", "build"), ALL, ids=lambda value: getattr(value, "__name__", None))
def test_every_loss_is_seen(framework, build, whole, tmp_path):
    folder, names = whole[build.__name__]
    losses = {lost: [name for name in names if name != lost] for lost in names}
    assert [
        lost for lost, kept in losses.items() if judged(framework, folder, [kept[::2], kept[1::2]], tmp_path).complete
    ] == []


def part(**changes):
    made = Facts(framework="deepspeed", attempt="a1", step=5, node="n0", files={}, counts={"optim_states": 4})
    return replace(made, **changes)


@pytest.mark.parametrize("changes", [{"attempt": "a2"}, {"step": 6}, {"framework": "orbax"}])
def test_parts_of_another_save_are_refused(changes):
    with pytest.raises(Refused, match="make no checkpoint"):
        unite([part(), part(node="n1", **changes)])


def test_no_parts_are_refused():
    with pytest.raises(Refused, match="no parts"):
        unite([])


def test_different_world_sizes():
    why = unite([part(), part(node="n1", counts={"optim_states": 8})]).why
    assert "different world sizes: optim_states 4 on n0, 8 on n1" in why


def test_the_same_path_with_other_content(tmp_path):
    for node, content in (("a", b"x"), ("b", b"y")):
        save(tmp_path / node / "config.yaml", content)
    dcp(tmp_path / "b")
    parts = [
        facts(tmp_path / node, framework="dcp", attempt="a1", step=1, node=node, digests={"config.yaml": digest})
        for node, digest in (("a", "1"), ("b", "2"))
    ]
    assert unite(parts).why == ("config.yaml is another file on b than on a",)


def test_two_writers_of_the_metadata(tmp_path):
    dcp(tmp_path / "a", ranks=2)
    dcp(tmp_path / "b", ranks=2, fqns=("model.w", "optim.w"))
    parts = [facts(tmp_path / node, framework="dcp", attempt="a1", step=1, node=node) for node in ("a", "b")]
    assert any(why.startswith("two writers of .metadata: a and b") for why in unite(parts).why)


def test_a_data_file_that_is_too_short(tmp_path):
    dcp(tmp_path, ranks=2)
    os.truncate(tmp_path / "__1_0.distcp", 499)
    found = unite([facts(tmp_path, framework="dcp", attempt="a1", step=1, node="n")])
    assert found.why == ("__1_0.distcp 499 < 500 needed",)


def test_a_data_file_of_another_save_is_noted(tmp_path):
    dcp(tmp_path, ranks=2)
    save(tmp_path / "__2_0.distcp")
    found = unite([facts(tmp_path, framework="dcp", attempt="a1", step=1, node="n")])
    assert (found.complete, found.notes) == (True, ("no index names __2_0.distcp",))


def test_a_broken_file_is_said_with_its_node(tmp_path):
    zero_2(tmp_path)
    os.truncate(tmp_path / "mp_rank_01_model_states.pt", 100)
    found = unite([facts(tmp_path, framework="deepspeed", attempt="a1", step=1, node="n7")])
    assert found.why == ("n7: mp_rank_01_model_states.pt: truncated zip (no end of central directory)",)


def test_a_name_may_say_any_number():
    found = unite([part(counts={}, members={"optim_states": ((9_999_999, 9_999_999), (0, 0))})])
    assert found.why[0].startswith("optim_states: 99999999999998 of 100000000000000 ranks missing (0,1; 0,2;")


@pytest.mark.parametrize(
    "change",
    [{"format": "lakemark.facts/2"}, {"members": {"a": [["x"]]}}, {"counts": {"a": -1}}, {"together": [["a"]]},
     {"files": {"a": 1}}, {"wanted": ["a"]}, {"step": "x"}, {"metadata": {"a": 1}}],
)  # fmt: skip
def test_facts_that_are_none(change):
    with pytest.raises(Corrupt, match="facts can't be read"):
        Facts.from_json(part().as_json() | change)
