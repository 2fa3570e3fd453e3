"""Orbax's store: what its tree names must be there, each file as long as the tree needs it."""

import pytest

from lakemark.formats import recogniser
from lakemark.formats.readers import ocdbt_tree
from lakemark.formats.readers.folder import Folder
from tests.formats.builders import as_json, save
from tests.formats.jax_builders import (
    LEAVES,
    leaf,
    ocdbt_inner,
    ocdbt_leaf,
    ocdbt_manifest,
    ocdbt_store,
    orbax,
    tree,
)

RECOGNISER = recogniser()
NODE, VALUE = "ocdbt.process_1/d/node", "ocdbt.process_1/d/value"


@pytest.fixture
def state(tmp_path):
    orbax(tmp_path / "5", items=())
    folder = tmp_path / "5/default"
    ocdbt_store(folder)
    as_json(folder / "_METADATA", tree())
    save(folder / "commit_success.txt", "done")
    return folder


def only(state):
    (one,) = RECOGNISER.find(state.parent.parent)
    return one


def test_a_whole_store(state):
    assert only(state).verdict.value == "complete", only(state).why
    told = ocdbt_tree.read(Folder.of(state), "")
    assert told.arrays == {"params.w", "opt_state.0.mu.w", "step"}
    assert told.needed_bytes == {
        "d/root": (state / "d/root").stat().st_size,
        "ocdbt.process_0/d/node": (state / "ocdbt.process_0/d/node").stat().st_size,
        "ocdbt.process_0/d/value": 200,
        NODE: (state / NODE).stat().st_size,
        VALUE: 100,
    }


@pytest.mark.parametrize("name", ["d/root", NODE, VALUE])
def test_a_file_of_data_that_is_gone_or_cut(state, name):
    content = (state / name).read_bytes()
    (state / name).unlink()
    assert f"files of data missing: default/{name}" in only(state).why
    for length in (1, len(content) // 2, len(content) - 1):
        save(state / name, content[:length])
        assert name in only(state).why, length


def test_files_that_nothing_names_any_more_may_go(state):
    save(state / "ocdbt.process_1/d/older", b"v" * 30)
    (state / "ocdbt.process_1/d/older").unlink()
    assert only(state).verdict.value == "complete"


def test_an_array_that_the_store_does_not_have(state):
    as_json(state / "_METADATA", tree((*LEAVES, leaf("params", "b"))))
    assert only(state).why == "1 of 4 arrays missing: default/params.b"


def test_zeros_where_a_node_was(state):
    save(state / NODE, bytes((state / NODE).stat().st_size))
    assert f"default/{NODE}: cut or damaged" in only(state).why


@pytest.mark.parametrize(("version", "kind"), [(1, 0), (0, 1)])
def test_a_later_version_or_numbered_manifests_are_not_judged(state, version, kind):
    (state / VALUE).unlink()
    size = (state / "d/root").stat().st_size
    save(state / "manifest.ocdbt", ocdbt_manifest("d/root", size, height=1, version=version, kind=kind))
    assert only(state).verdict.value == "complete"


@pytest.mark.parametrize("path", ["/etc/d/passwd", "../../d/passwd"])
def test_paths_out_of_the_store(state, path):
    root = ocdbt_inner({"a": (path, 0, 50)})
    save(state / "d/root", root)
    save(state / "manifest.ocdbt", ocdbt_manifest("d/root", len(root), height=1))
    assert "which lies outside of it" in only(state).why


@pytest.mark.parametrize("at", range(12, 80, 3))
def test_nonsense_in_a_node_or_a_manifest(state, at):
    for name in ("manifest.ocdbt", "d/root", NODE):
        content = (state / name).read_bytes()
        save(state / name, content[:at] + b"\xff" + content[at + 1 :])
        assert only(state).framework == "orbax"
        save(state / name, content)


def test_a_node_that_names_itself(state):
    """Its height is as one below it must have: less each time."""
    root = ocdbt_inner({"a": ("d/root", 0, 38)})
    assert len(root) == 38
    save(state / "d/root", root)
    save(state / "manifest.ocdbt", ocdbt_manifest("d/root", len(root), height=1))
    assert "a damaged node" in only(state).why


def test_keys_below_what_their_nodes_share(tmp_path):
    leaf_node = ocdbt_leaf({"w/.zarray": b"{}", "w/0": (0, 7)}, "d/value")
    save(tmp_path / "d/leaf", leaf_node)
    save(tmp_path / "d/value", b"1234567")
    root = ocdbt_inner({"params.": ("d/leaf", 0, len(leaf_node))}, prefix=len("params."))
    save(tmp_path / "d/root", root)
    save(tmp_path / "manifest.ocdbt", ocdbt_manifest("d/root", len(root), height=1))
    assert ocdbt_tree.read(Folder.of(tmp_path), "").arrays == {"params.w"}
