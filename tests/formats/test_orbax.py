import gzip
import shutil

import pytest

from lakemark.formats import recogniser
from tests.formats.builders import as_json, save
from tests.formats.jax_builders import TMP, leaf, msgpack, ocdbt_file, orbax, orbax_state, orbax_zarr, tree, zarr

RECOGNISER = recogniser()


def found(root):
    return [(one.path.name, one.framework, one.step, one.verdict.value) for one in RECOGNISER.find(root)]


def only(root):
    (one,) = RECOGNISER.find(root)
    return one


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("100", 100),
        ("step_100", 100),
        ("step_00000100", 100),
        ("0000100", 100),
        ("checkpoint_900", 900),
        ("checkpoint_10.0", 10),
        ("checkpoint_0.5", None),
        ("checkpoint_1e-05", None),
        ("run.7", 7),
        ("model=a,b:c_7", 7),
        ("line\nbreak_7", 7),
    ],
)
def test_names_of_steps(tmp_path, name, step):
    orbax(tmp_path / name)
    assert found(tmp_path) == [(name, "orbax", step, "complete")]


def test_roles_come_from_items_and_from_the_keys_of_the_state(tmp_path):
    orbax(tmp_path / "5", items=("state", "rng", "data_iter", "metrics"))
    one = only(tmp_path)
    assert one.present == ("weights", "optimizer", "rng", "dataloader", "config")
    assert (one.possible, one.resumable) == (("scheduler",), None)
    assert one.roles["data_iter/process_0-of-1.json"] == "dataloader"
    assert one.roles["state/d/2df68153e9129c727120cec1d77ad758"] == "weights"
    assert "commit_success.txt names the place" in one.notes[0]


def test_arrays_in_folders_of_their_own_have_their_own_roles(tmp_path):
    orbax_zarr(tmp_path / "7/state")
    one = only(tmp_path)
    assert one.roles["state/opt_state.0.mu.w/.zarray"] == "optimizer"
    assert one.roles["state/params.w/0.0"] == "weights"


def test_a_state_of_weights_alone_is_said_to_be_that(tmp_path):
    orbax_state(tmp_path / "7/params", leaves=(leaf("params", "w"), leaf("step", kind="scalar")), old=True)
    one = only(tmp_path)
    assert (one.present, one.possible, one.resumable) == (("weights",), (), False)
    assert "weights only: not resumable" in one.why


def test_the_name_is_looked_at_before_the_marker(tmp_path):
    orbax(tmp_path / f"200{TMP}")
    orbax(tmp_path / f"step_300{TMP}-1795966639")
    assert found(tmp_path) == [
        (f"200{TMP}", "orbax", 200, "temporary"),
        (f"step_300{TMP}-1795966639", "orbax", 300, "temporary"),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"state/x{TMP}/_METADATA", "temporary items inside"),
        (f"rng{TMP}/_METADATA", "temporary items inside"),
        ("state/d/2df68153e9129c727120cec1d77ad758.__lock", "unfinished files inside"),
        ("state/d/0df68153e9129c727120cec1d77ad758", "it is empty"),
        ("extra/commit_success.txt", "nothing but commit_success.txt"),
    ],
)
def test_what_must_not_lie_in_a_whole_step(tmp_path, name, text):
    orbax(tmp_path / "5")
    save(tmp_path / "5" / name, b"")
    one = only(tmp_path)
    assert (one.verdict.value, text in one.why) == ("incomplete", True), one.why


@pytest.mark.parametrize(("handlers", "verdict"), [(None, "complete"), ({}, "incomplete")])
def test_a_folder_beside_the_items_is_the_user_s_where_these_are_named(tmp_path, handlers, verdict):
    orbax(tmp_path / "5", handlers=handlers)
    save(tmp_path / "5/evaluation/results.csv")
    assert found(tmp_path) == [("5", "orbax", 5, verdict)]


def test_a_state_that_only_a_process_has_begun(tmp_path):
    orbax(tmp_path / "4")
    save(tmp_path / "5/state/ocdbt.process_0/d/2df68153e9129c727120cec1d77ad758", b"z" * 50)
    assert found(tmp_path)[1] == ("5", "orbax", 5, "incomplete")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_METADATA", "no state/_METADATA"),
        ("manifest.ocdbt", "was not put together"),
        ("ocdbt.process_1/manifest.ocdbt", "no state/ocdbt.process_1/manifest.ocdbt"),
        ("commit_success.txt", "state: no commit_success.txt"),
        ("../commit_success.txt", "no commit_success.txt"),
        ("../data_iter/process_1-of-2.json", "1 of 2 missing"),
    ],
)
def test_a_file_that_is_missing(tmp_path, name, text):
    orbax(tmp_path / "5", items=("state", "data_iter"), processes=2)
    (tmp_path / "5/state" / name).unlink()
    one = only(tmp_path)
    assert (one.verdict.value, text in one.why) == ("incomplete", True), one.why


NODES = "d/2df68153e9129c727120cec1d77ad758"


@pytest.mark.parametrize(
    ("name", "left"),
    [
        *((name, left) for name in ("_METADATA", "_sharding", "manifest.ocdbt") for left in (0, 11, -1)),
        # Below 12 bytes nothing tells a node from a value.
        *((NODES, left) for left in (0, 12, -1)),
    ],
)
def test_a_file_that_is_cut(tmp_path, name, left):
    orbax(tmp_path / "5")
    path = tmp_path / "5/state" / name
    path.write_bytes(path.read_bytes()[:left])
    one = only(tmp_path)
    assert (one.verdict.value, name in one.why) == ("incomplete", True), one.why


def test_an_item_that_was_saved_and_is_gone(tmp_path):
    orbax(tmp_path / "5", items=("state", "metrics"))
    shutil.rmtree(tmp_path / "5/metrics")
    assert "the item metrics is missing" in only(tmp_path).why


def test_a_step_that_was_not_committed(tmp_path):
    orbax(tmp_path / "5", committed=None, marked=False)
    assert "no commit_timestamp_nsecs" in only(tmp_path).why


def test_a_step_that_has_only_begun(tmp_path):
    as_json(tmp_path / "5/_CHECKPOINT_METADATA", {"item_handlers": None, "commit_timestamp_nsecs": None})
    assert found(tmp_path) == [("5", "orbax", 5, "incomplete")]


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b'"x"', b"{", b'{"item_handlers": 5}', b"[" * 100_000, b'{"item_handlers": {"../../x": null}}'],
)
def test_metadata_that_are_not_what_orbax_writes(tmp_path, value):
    orbax(tmp_path / "5")
    save(tmp_path / "5/_CHECKPOINT_METADATA", value)
    assert only(tmp_path).framework == "orbax"
    assert found(tmp_path)[0][3] == ("complete" if value == b'{"item_handlers": 5}' else "incomplete")


def test_older_steps_without_metadata_of_the_step(tmp_path):
    """0.4: items alone, renamed; copied from a disk to a bucket they have no marker, and are whole."""
    orbax_state(tmp_path / "100/default", old=True)
    orbax_state(tmp_path / "100/items", old=True)
    assert found(tmp_path) == [("100", "orbax", 100, "complete")]


def test_a_run_whose_name_ends_in_a_number_is_no_step(tmp_path):
    for step in (100, 200):
        orbax_state(tmp_path / "exp_1" / str(step), old=True)
    assert found(tmp_path) == [("100", "orbax", 100, "complete"), ("200", "orbax", 200, "complete")]
    assert RECOGNISER.judge(tmp_path / "exp_1").framework == "generic"


def test_a_folder_of_any_name_that_orbax_marked(tmp_path):
    orbax(tmp_path / "my_model")
    assert found(tmp_path) == [("my_model", "orbax", None, "complete")]


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_are_counted_where_all_are_stored(tmp_path, version):
    folder = tmp_path / "9/state"
    as_json(folder / "_METADATA", tree((leaf("params", "w"), leaf("params", "x/y")), ocdbt=False))
    zarr(folder / "params.w", shape=(9, 4), chunks=(4, 4), version=version)
    zarr(folder / "params.x/y", version=version)
    assert only(tmp_path).verdict.value == "complete"
    one = folder / "params.w" / ("2.0" if version == 2 else "c/2/0")
    one.unlink()
    assert "state/params.w: 2 of 3 chunks" in only(tmp_path).why
    as_json(folder / "_METADATA", tree((leaf("params", "w"),), ocdbt=False, full=False))
    assert only(tmp_path).verdict.value == "complete"


def test_an_array_that_is_gone(tmp_path):
    orbax_zarr(tmp_path / "9/state")
    shutil.rmtree(tmp_path / "9/state/params.w")
    assert "1 of 3 arrays missing: state/params.w" in only(tmp_path).why


def test_fewer_processes_than_the_step_before(tmp_path):
    for step, processes in ((1, 4), (2, 4), (3, 4)):
        orbax(tmp_path / str(step), processes=processes)
    (tmp_path / "3/state/array_metadatas/process_3").unlink()
    assert [one[3] for one in found(tmp_path)] == ["complete", "complete", "incomplete"]
    shutil.rmtree(tmp_path / "3")
    orbax(tmp_path / "3", processes=2)
    assert [one[3] for one in found(tmp_path)] == ["complete", "complete", "complete"]
    assert {one.ranks["process"] for one in RECOGNISER.find(tmp_path)} == {2, 4}


def test_one_nodes_part_of_an_emergency_checkpoint(tmp_path):
    orbax(tmp_path / "5", items=("state", "process_metadata"))
    assert "one node's part of an emergency checkpoint" in only(tmp_path).notes


def test_values_without_a_node_are_taken_at_their_word(tmp_path):
    orbax(tmp_path / "5")
    save(tmp_path / "5/state/d/ffffffffffffffffffffffffffffffff", b"raw values" * 5)
    save(tmp_path / "5/state/d/eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee", ocdbt_file() + ocdbt_file(0x0CDB1CDE) + b"raw")
    assert only(tmp_path).verdict.value == "complete"
    save(tmp_path / "5/state/d/dddddddddddddddddddddddddddddddd", ocdbt_file() + ocdbt_file()[:-1])
    assert "bytes, it needs" in only(tmp_path).why


def standalone(folder):
    """What a Checkpointer leaves that is given a path of the user's."""
    as_json(
        folder / "_CHECKPOINT_METADATA",
        {"item_handlers": "orbax.StandardCheckpointHandler", "commit_timestamp_nsecs": 9},
    )
    orbax_state(folder)
    save(folder / "commit_success.txt", f"Checkpoint commit was successful to {folder}")


def test_a_folder_of_the_user_s_with_a_checkpoint_per_item(tmp_path):
    standalone(tmp_path / "step_5/params")
    standalone(tmp_path / "step_5/opt_state")
    assert found(tmp_path) == [("step_5", "orbax", 5, "complete")]
    assert "optimizer" in only(tmp_path).present
    save(tmp_path / f"step_5/ema{TMP}/_METADATA")
    assert "temporary items inside" in only(tmp_path).why
    shutil.rmtree(tmp_path / f"step_5/ema{TMP}")
    (tmp_path / "step_5/opt_state/commit_success.txt").unlink()
    assert "opt_state: no commit_success.txt" in only(tmp_path).why


def test_items_that_do_not_say_what_they_are_to_a_bucket_s_step(tmp_path):
    """There the step is marked last, and items have no metadata of their own."""
    orbax(tmp_path / "5")
    for name in ("_CHECKPOINT_METADATA", "commit_success.txt"):
        (tmp_path / "5" / name).unlink()
    assert "no commit_success.txt" in only(tmp_path).why


@pytest.mark.parametrize(("run", "name"), [("seed_1", "params"), ("3", "best"), ("trial-7", "step_40")])
def test_a_run_whose_checkpoints_are_named_by_the_user(tmp_path, run, name):
    standalone(tmp_path / run / name)
    assert [str(one.path.relative_to(tmp_path)) for one in RECOGNISER.find(tmp_path)] == [f"{run}/{name}"]


def test_arrays_before_the_tree_that_names_them(tmp_path):
    """Without a marker and without metadata of the step, as in a copy or before 0.5."""
    orbax_zarr(tmp_path / "9/state")
    orbax_state(tmp_path / "9/params", old=True)
    for name in ("_METADATA", "_sharding"):
        (tmp_path / "9/state" / name).unlink()
    assert only(tmp_path).why == "no state/_METADATA"
    for name in ("params.w", "opt_state.0.mu.w", "step"):
        shutil.rmtree(tmp_path / "9/state" / name)
    as_json(tmp_path / "9/state/array_metadatas/process_0", {"array_metadatas": []})
    assert only(tmp_path).why == "no _CHECKPOINT_METADATA; no state/_METADATA"


def test_arrays_of_a_handler_of_the_user_s(tmp_path):
    orbax(tmp_path / "9", items=("state", "mine"), handlers={"state": "PyTreeCheckpointHandler", "mine": "my.Handler"})
    shutil.rmtree(tmp_path / "9/mine")
    save(tmp_path / "9/mine/commit_success.txt", "done")
    zarr(tmp_path / "9/mine/table")
    save(tmp_path / "9/mine/table/commit_success.txt", "done")
    assert only(tmp_path).verdict.value == "complete", only(tmp_path).why


@pytest.mark.parametrize(
    "gone",
    [
        ("_CHECKPOINT_METADATA", "commit_success.txt", "metrics", "state/commit_success.txt", "params/commit_success.txt"),
        ("_CHECKPOINT_METADATA", "state", "params"),
        ("_CHECKPOINT_METADATA", "commit_success.txt", "metrics", "params", "state/manifest.ocdbt", "state/_METADATA",
         "state/_sharding", "state/array_metadatas", "state/ocdbt.process_0", "state/commit_success.txt"),
        ("state/manifest.ocdbt", "state/_METADATA", "state/_sharding", "state/array_metadatas", "state/ocdbt.process_0",
         "state/d"),
    ],
)  # fmt: skip
def test_a_step_that_was_not_removed_to_the_end(tmp_path, gone):
    orbax(tmp_path / "step_9", items=("state", "params", "metrics"))
    save(tmp_path / "step_9/state/opt_state.0/c/0", b"chunk")
    for name in gone:
        path = tmp_path / "step_9" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    assert found(tmp_path) == [("step_9", "orbax", 9, "incomplete")]


def test_a_step_of_before_of_which_no_weights_are_left(tmp_path):
    orbax_zarr(tmp_path / "step_9/rng/jax_random_key", arrays=("checkpoint",), leaves=(leaf("checkpoint"),))
    assert only(tmp_path).why == "no _CHECKPOINT_METADATA"
    as_json(tmp_path / "step_9/model_config/_METADATA", tree((leaf("config", kind="string"),)))
    as_json(tmp_path / "step_9/model_config/_strings.json", {"config": "{}"})
    save(tmp_path / "step_9/commit_success.txt", "done")
    assert "no _CHECKPOINT_METADATA" in only(tmp_path).why


def test_data_of_a_step_without_items_of_which_all_else_was_removed(tmp_path):
    save(tmp_path / "step_9/d/2df68153e9129c727120cec1d77ad758", ocdbt_file())
    assert found(tmp_path) == [("step_9", "orbax", 9, "incomplete")]


def test_a_step_of_which_nothing_was_copied_but_its_own_files(tmp_path):
    orbax(tmp_path / "9", items=("state", "params"))
    shutil.rmtree(tmp_path / "9/params")
    (tmp_path / "9/params").mkdir()
    assert "the item params is missing" in only(tmp_path).why
    shutil.rmtree(tmp_path / "9/params")
    shutil.rmtree(tmp_path / "9/state")
    as_json(tmp_path / "9/_CHECKPOINT_METADATA", {"item_handlers": "orbax.X", "commit_timestamp_nsecs": 9})
    assert only(tmp_path).why == "there is nothing in it"


@pytest.mark.parametrize("name", ["ocdbt.process_0/d/827f8eb7c65ec015c7fad2d58889c196", "_sharding"])
def test_a_step_without_items_that_has_only_begun(tmp_path, name):
    save(tmp_path / "step_40" / name, ocdbt_file())
    assert found(tmp_path) == [("step_40", "orbax", 40, "incomplete")]


def test_an_item_of_strings_alone_has_no_store(tmp_path):
    orbax(tmp_path / "5", items=("pytree", "model_config"))
    item = tmp_path / "5/model_config"
    shutil.rmtree(item)
    as_json(item / "_METADATA", tree((leaf("config", kind="string"),)))
    as_json(item / "_strings.json", {"config": "{}"})
    save(item / "commit_success.txt", "done")
    assert (only(tmp_path).verdict.value, "config" in only(tmp_path).present) == ("complete", True), only(tmp_path).why
    (item / "_strings.json").unlink()
    assert only(tmp_path).why == "no model_config/_strings.json"


def test_an_item_of_one_array_had_no_tree(tmp_path):
    """0.5: its handler wrote a sharding and the array."""
    orbax(tmp_path / "5", marked=False)
    as_json(tmp_path / "5/rng/jax_random_key/_sharding", {})
    zarr(tmp_path / "5/rng/jax_random_key/checkpoint")
    assert only(tmp_path).verdict.value == "complete", only(tmp_path).why
    (tmp_path / "5/rng/jax_random_key/checkpoint/.zarray").unlink()
    assert "no rng/jax_random_key/_METADATA" in only(tmp_path).why


def test_an_optimizer_s_item(tmp_path):
    orbax(tmp_path / "5", items=("model", "optimizer"))
    for name in ("model", "optimizer"):
        as_json(tmp_path / "5" / name / "_METADATA", tree((leaf("0", "count"), leaf("0", "mu", "w"))))
    one = only(tmp_path)
    assert (one.present, one.possible) == (("weights", "optimizer"), ("scheduler", "rng"))
    assert one.roles["optimizer/manifest.ocdbt"] == "optimizer"
    shutil.rmtree(tmp_path / "5/model")
    as_json(tmp_path / "5/_CHECKPOINT_METADATA", {"item_handlers": {"optimizer": "x"}, "commit_timestamp_nsecs": 9})
    assert only(tmp_path).present == ("optimizer",)
    as_json(tmp_path / "5/optimizer/_METADATA", tree((leaf("target", "w"), leaf("state", "0", "mu"))))
    assert only(tmp_path).present == ("weights", "optimizer")


def test_arrays_that_an_old_aggregate_file_names(tmp_path):
    """Up to 0.6 small values lie in a msgpack file, and in the place of an array its name."""
    folder = tmp_path / "5/default"
    orbax_zarr(folder, leaves=(leaf("params", "w"), leaf("step")), arrays=("params.w", "step"))
    names = {"params": {"w": "PLACEHOLDER://params.w"}, "step": "PLACEHOLDER://step", "epoch": 3}
    save(folder / "checkpoint", msgpack(names))
    assert only(tmp_path).verdict.value == "complete", only(tmp_path).why
    (folder / "params.w/.zarray").unlink()
    assert "1 of 2 arrays missing: default/params.w" in only(tmp_path).why
    zarr(folder / "params.w")
    save(folder / "checkpoint", msgpack(names)[:-3])
    assert "default/checkpoint: cut" in only(tmp_path).why


FRAME = b"\x28\xb5\x2f\xfd\x00\x58" + (1 | 5 << 3).to_bytes(3, "little") + b"hello"
SHARD = b"chunk" + (0).to_bytes(8, "little") + (5).to_bytes(8, "little") + bytes(4)
CODECS = {"bytes": {"name": "bytes"}, "zstd": {"name": "zstd"}, "gzip": {"name": "gzip"}}
SHARDED = {
    "name": "sharding_indexed",
    "configuration": {"chunk_shape": [4, 4], "codecs": [], "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}]},
}


@pytest.mark.parametrize(
    ("meta", "chunk"),
    [
        ({"compressor": None}, bytes(64)),
        ({"compressor": {"id": "zstd"}}, FRAME),
        ({"compressor": {"id": "gzip"}}, gzip.compress(bytes(64), mtime=0)),
        ({"compressor": {"id": "blosc"}}, bytes(12) + (20).to_bytes(4, "little") + b"1234"),
        ({"codecs": [CODECS["bytes"]]}, bytes(64)),
        ({"codecs": [CODECS["bytes"], CODECS["zstd"]]}, FRAME),
        ({"codecs": [CODECS["bytes"], CODECS["gzip"]]}, gzip.compress(bytes(64), mtime=0)),
        ({"codecs": [SHARDED]}, SHARD),
    ],
)
def test_chunks_say_how_long_they_are(tmp_path, meta, chunk):
    folder = tmp_path / "5/state"
    as_json(folder / "_METADATA", tree((leaf("w"),), ocdbt=False))
    old = "compressor" in meta
    grid = {"name": "regular", "configuration": {"chunk_shape": [4, 4]}}
    new = {"zarr_format": 3, "data_type": "float32", "chunk_grid": grid}
    of_old = {"zarr_format": 2, "dtype": "<f4", "chunks": [4, 4]}
    as_json(folder / ("w/.zarray" if old else "w/zarr.json"), {"shape": [4, 4], **(of_old if old else new), **meta})
    name = "w/0.0" if old else "w/c/0/0"
    save(folder / name, chunk)
    assert only(tmp_path).verdict.value == "complete", only(tmp_path).why
    for length in (0, 1, len(chunk) // 2, len(chunk) - 1):
        save(folder / name, chunk[:length])
        assert f"state/{name}" in only(tmp_path).why, length


def test_judged_alone_as_found(tmp_path):
    orbax(tmp_path / "5", items=("state", "rng"))
    assert RECOGNISER.judge(tmp_path / "5") == only(tmp_path)
