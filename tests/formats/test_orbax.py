import shutil

import pytest

from lakemark.formats import recogniser
from tests.formats.builders import as_json, save
from tests.formats.jax_builders import TMP, leaf, ocdbt_file, orbax, orbax_state, orbax_zarr, tree, zarr

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
    orbax_state(tmp_path / "7/params", leaves=(leaf("params", "w"), leaf("step", kind="scalar")))
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
    orbax_state(tmp_path / "100/default")
    orbax_state(tmp_path / "100/items")
    assert found(tmp_path) == [("100", "orbax", 100, "complete")]


def test_a_run_whose_name_ends_in_a_number_is_no_step(tmp_path):
    for step in (100, 200):
        orbax_state(tmp_path / "exp_1" / str(step))
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


def test_judged_alone_as_found(tmp_path):
    orbax(tmp_path / "5", items=("state", "rng"))
    assert RECOGNISER.judge(tmp_path / "5") == only(tmp_path)
