import shutil

import pytest

from lakemark.formats import recogniser
from tests.formats.builders import save
from tests.formats.jax_builders import STATE, msgpack, orbax_state, t5x, zarr

RECOGNISER = recogniser()


def found(root):
    return [(one.path.name, one.framework, one.step, one.verdict.value) for one in RECOGNISER.find(root)]


def only(root):
    (one,) = RECOGNISER.find(root)
    return one


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint_900", 900),
        ("checkpoint_10.0", 10),
        ("checkpoint_0.5", None),
        ("checkpoint_2.5e-05", None),
        ("checkpoint_1e-05", None),
        ("checkpoint_1e3", 1000),
        ("mine_7", 7),
        ("a b,c=d:_7", 7),
    ],
)
def test_steps_of_flax(tmp_path, name, step):
    save(tmp_path / name, msgpack(STATE))
    assert found(tmp_path) == [(name, "flax-legacy", step, "complete")]


def test_steps_are_in_order_of_their_numbers(tmp_path):
    for step in (900, 1000, 9000, 10000):
        save(tmp_path / f"checkpoint_{step}", msgpack(STATE))
    assert [one.step for one in RECOGNISER.find(tmp_path)] == [900, 1000, 9000, 10000]


def test_roles_of_flax_come_from_its_keys(tmp_path):
    save(tmp_path / "checkpoint_5", msgpack(STATE))
    one = only(tmp_path)
    assert (one.present, one.possible) == (("weights", "optimizer"), ("scheduler", "rng"))
    save(tmp_path / "checkpoint_5", msgpack({"params": {"w": b"w"}, "step": 5}))
    assert (only(tmp_path).present, only(tmp_path).resumable) == (("weights",), False)
    save(tmp_path / "checkpoint_5", msgpack({"mine": {"w": b"w"}}))
    assert (only(tmp_path).present, only(tmp_path).resumable) == (("weights",), None)


def test_flax_cut_anywhere(tmp_path):
    whole = msgpack(STATE)
    path = tmp_path / "checkpoint_5"
    for length in range(len(whole)):
        save(path, whole[:length])
        assert only(tmp_path).verdict.value == "incomplete", length
    save(path, whole + b"\0")
    assert "its structure ends at" in only(tmp_path).why


@pytest.mark.parametrize(
    "content",
    [
        b"\x81" * 1000,
        b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0",
        b"\xdf\xff\xff\xff\xff" + b"\xa1a\xc0" * 10,
        b"\x81\xa1a\xc6\xff\xff\xff\xff",
        b"\x81\xa1a\xc1",
        b"\x81\xdb\xff\xff\xff\xffa",
        b"\xde\xff\xff" + b"\xc0" * (2 * 65535 - 1),
    ],
)
def test_hostile_msgpack(tmp_path, content):
    save(tmp_path / "checkpoint_5", content)
    assert found(tmp_path) == [("checkpoint_5", "flax-legacy", 5, "incomplete")]


def test_more_values_than_any_checkpoint_has(tmp_path):
    save(tmp_path / "checkpoint_5", b"\x81\xa1a\xdd\x00\x20\x00\x00" + b"\xc0" * 0x200000)
    assert "no checkpoint has as many" in only(tmp_path).why


def test_long_strings_are_not_read(tmp_path):
    with (tmp_path / "checkpoint_5").open("wb") as stream:
        stream.write(b"\x81\xa6params\xdb" + (10**9).to_bytes(4, "big"))
        stream.truncate(stream.tell() + 10**9)
    assert only(tmp_path).verdict.value == "complete"


@pytest.mark.parametrize("content", [b"PK\3\4", b"text\n", b"\x80\x02}q\0.", b"\x93NUMPY"])
def test_files_of_that_name_that_flax_did_not_write(tmp_path, content):
    save(tmp_path / "checkpoint_5", content)
    assert "flax-legacy" not in str(found(tmp_path))


@pytest.mark.parametrize("name", ["notes_5", "IMG_2026", "log_1"])
def test_unusual_names_need_a_state(tmp_path, name):
    save(tmp_path / name, b"\x81\xa5hello\x01")
    assert found(tmp_path) == []


def test_arrays_of_several_processes_belong_to_their_file(tmp_path):
    state = STATE | {"params": {"w": "//GDAPlaceholder:params/w"}}
    save(tmp_path / "checkpoint_900", msgpack(state))
    assert "1 arrays of several processes, but no checkpoint_900_gda/" in only(tmp_path).why
    zarr(tmp_path / "checkpoint_900_gda/params/w")
    one = only(tmp_path)
    assert (one.verdict.value, [path.name for path in one.members]) == (
        "complete",
        ["checkpoint_900", "checkpoint_900_gda"],
    )
    assert one.roles["checkpoint_900_gda/params/w/0.0"] == "weights"
    (tmp_path / "checkpoint_900").unlink()
    assert found(tmp_path) == [("checkpoint_900", "flax-legacy", 900, "incomplete")]
    assert RECOGNISER.judge(tmp_path / "checkpoint_900").verdict.value == "incomplete"


def test_arrays_of_several_processes_that_are_gone_or_cut(tmp_path):
    state = STATE | {"params": {"w": "//GDAPlaceholder:params/w", "b": "//GDAPlaceholder:params/b"}}
    save(tmp_path / "checkpoint_900", msgpack(state))
    for name in ("w", "b"):
        zarr(tmp_path / "checkpoint_900_gda/params" / name)
    assert only(tmp_path).verdict.value == "complete"
    save(tmp_path / "checkpoint_900_gda/params/w/0.0", b"")
    assert only(tmp_path).why == "checkpoint_900_gda/params/w/0.0 is empty"
    zarr(tmp_path / "checkpoint_900_gda/params/w")
    (tmp_path / "checkpoint_900_gda/params/b/.zarray").unlink()
    assert only(tmp_path).why == "1 arrays missing: checkpoint_900_gda/params/b"


def test_what_flax_is_writing(tmp_path):
    save(tmp_path / "checkpoint_tmp", b"\x83")
    (tmp_path / "checkpoint_tmp_gda").mkdir()
    assert found(tmp_path) == [("checkpoint_tmp", "flax-legacy", None, "temporary")]


def test_t5x(tmp_path):
    t5x(tmp_path / "checkpoint_1000", hosts=2)
    save(tmp_path / "checkpoint_1000/PINNED", b"1")
    t5x(tmp_path / "checkpoint_2000.tmp-1795967330")
    assert found(tmp_path) == [
        ("checkpoint_1000", "t5x", 1000, "complete"),
        ("checkpoint_2000.tmp-1795967330", "t5x", 2000, "temporary"),
    ]
    one = RECOGNISER.judge(tmp_path / "checkpoint_1000")
    assert (one.present, one.notes) == (("weights", "optimizer", "dataloader"), ("PINNED",))
    assert one.roles["state.param_states.encoder.kernel.v/0.0"] == "optimizer"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("checkpoint", "no checkpoint, which comes last"),
        ("target.encoder.kernel/.zarray", "no target.encoder.kernel/.zarray"),
        ("train_ds-001-of-002.index", "no index"),
        ("train_ds-001-of-002.data-00000-of-00001", "no data"),
    ],
)
def test_t5x_with_a_file_missing(tmp_path, name, text):
    t5x(tmp_path / "checkpoint_1000", hosts=2)
    (tmp_path / "checkpoint_1000" / name).unlink()
    one = only(tmp_path)
    assert (one.verdict.value, text in one.why) == ("incomplete", True), one.why


def test_t5x_with_an_array_or_a_host_missing(tmp_path):
    t5x(tmp_path / "checkpoint_5", hosts=2)
    (tmp_path / "checkpoint_5/target.encoder.kernel").rename(tmp_path / "elsewhere")
    assert "1 arrays missing: target.encoder.kernel" in only(tmp_path).why
    (tmp_path / "elsewhere").rename(tmp_path / "checkpoint_5/target.encoder.kernel")
    for path in (tmp_path / "checkpoint_5").glob("train_ds-000-*"):
        path.unlink()
    assert "1 of 2 missing" in only(tmp_path).why


def test_t5x_cut(tmp_path):
    t5x(tmp_path / "checkpoint_5")
    path = tmp_path / "checkpoint_5/checkpoint"
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert only(tmp_path).verdict.value == "incomplete", length


def test_t5x_by_orbax_is_orbax(tmp_path):
    orbax_state(tmp_path / "checkpoint_5/state")
    (tmp_path / "checkpoint_5/target.x").mkdir()
    save(tmp_path / "checkpoint_5/commit_success.txt", b"x")
    assert only(tmp_path).framework == "orbax"


def test_t5x_of_which_only_the_folder_was_made(tmp_path):
    (tmp_path / "checkpoint_2000.tmp-1795967330").mkdir()
    assert found(tmp_path) == [("checkpoint_2000.tmp-1795967330", "t5x", 2000, "temporary")]


def test_t5x_with_an_empty_chunk(tmp_path):
    t5x(tmp_path / "checkpoint_5")
    save(tmp_path / "checkpoint_5/target.encoder.kernel/0.0", b"")
    assert only(tmp_path).why == "target.encoder.kernel/0.0 is empty"


def test_t5x_that_a_copy_has_begun(tmp_path):
    """In order of names: the state comes before the arrays that it names."""
    t5x(tmp_path / "whole/checkpoint_9")
    for name in ("checkpoint", "train_ds-000-of-001.index", "train_ds-000-of-001.data-00000-of-00001"):
        save(tmp_path / "checkpoint_9" / name, (tmp_path / "whole/checkpoint_9" / name).read_bytes())
    shutil.rmtree(tmp_path / "whole")
    assert found(tmp_path) == [("checkpoint_9", "t5x", 9, "incomplete")]
    t5x(tmp_path / "checkpoint_9")
    assert found(tmp_path) == [("checkpoint_9", "t5x", 9, "complete")]
    save(tmp_path / "checkpoint_9/target.encoder.kernel/.0.0.x7Yz12", b"chunk")
    assert "unfinished files inside" in only(tmp_path).why
    (tmp_path / "checkpoint_9/target.encoder.kernel/.0.0.x7Yz12").unlink()
    save(tmp_path / "checkpoint_9/train_ds-000-of-001.index", b"")
    assert only(tmp_path).why == "train_ds-000-of-001.index is empty"


def test_t5x_that_was_not_removed_to_the_end(tmp_path):
    save(tmp_path / "checkpoint_9/train_ds-000-of-001.index", b"\0" * 60)
    assert found(tmp_path) == [("checkpoint_9", "t5x", 9, "incomplete")]


def test_a_state_in_what_flax_s_guide_calls_a_model(tmp_path):
    save(tmp_path / "checkpoint_5", msgpack({"model": STATE, "config": {"width": 8}}))
    one = only(tmp_path)
    assert {"weights", "optimizer"} <= set(one.present)
    assert one.gaps == ()


def test_t5x_without_a_model(tmp_path):
    t5x(tmp_path / "checkpoint_5")
    save(tmp_path / "checkpoint_5/checkpoint", msgpack({"version": 3, "optimizer": {}}))
    assert only(tmp_path).verdict.value == "complete"
    (tmp_path / "checkpoint_5/target.encoder.kernel").rename(tmp_path / "elsewhere")
    assert (only(tmp_path).verdict.value, only(tmp_path).why) == ("incomplete", "no target, which is the model")
