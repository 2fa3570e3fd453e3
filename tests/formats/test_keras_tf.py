import os

import pytest

from lakemark.formats import recogniser
from tests.formats.builders import as_json, save
from tests.formats.jax_builders import KEYS, hdf5, keras, tensorflow, tf_index, tf_pointer

RECOGNISER = recogniser()


def found(root):
    return [(one.path.name, one.framework, one.step, one.verdict.value) for one in RECOGNISER.find(root)]


def only(root):
    (one,) = RECOGNISER.find(root)
    return one


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("model-01-0.72.keras", 1),
        ("model_epoch12_val_loss-0.4.keras", 12),
        ("weights.07-0.70.weights.h5", 7),
        ("12.keras", 12),
        ("model_0.85.keras", None),
        ("best.keras", None),
        ("cp-0004.weights.h5", 4),
        ("a b=1.5_03.keras", 3),
        ("e7.keras", 7),
        ("ckpt12.weights.h5", 12),
        ("model-03-1.20e-05.keras", 3),
        ("model-03-nan.keras", 3),
        ("model-03-val_loss=inf.keras", 3),
        ("weights-improvement-03-0.95.hdf5", 3),
        ("weights-ep003-loss0.512-val_loss-0.40.h5", 3),
        ("cp-003-2.keras", 2),
    ],
)
def test_epochs_are_counted(tmp_path, name, step):
    save(tmp_path / name, keras() if name.endswith(".keras") else hdf5())
    framework = "keras" if name.endswith(".keras") else "keras-weights"
    assert found(tmp_path) == [(name, framework, step, "complete")]


def test_a_batch_of_an_epoch(tmp_path):
    for name in ("cp-001-5", "cp-002-1", "cp-002-5"):
        save(tmp_path / f"{name}.keras", keras())
    save(tmp_path / "mnist-28-03.weights.h5", hdf5())
    assert [(name, step) for name, _, step, _ in found(tmp_path)] == [
        ("cp-001-5.keras", 1),
        ("cp-002-1.keras", 2),
        ("cp-002-5.keras", 2),
        ("mnist-28-03.weights.h5", 3),
    ]


@pytest.mark.parametrize(
    "name",
    ["mnist.keras", "model-2026-11-29.keras", "features.h5", "samples_1.h5", "my_net_v2.keras", "vgg16.weights.h5"],
)
def test_models_that_no_trainer_saved_on_the_way(tmp_path, name):
    save(tmp_path / name, keras() if name.endswith(".keras") else hdf5())
    assert found(tmp_path) == []


def test_the_optimizer_is_in_a_file_whose_root_names_it(tmp_path):
    save(tmp_path / "a-1.keras", keras())
    save(tmp_path / "b-2.keras", keras(weights=hdf5(("layers", "vars"))))
    save(tmp_path / "c-3.weights.h5", hdf5())
    save(tmp_path / "d-4.weights.h5", hdf5(("layers", "vars")))
    present = [one.present for one in RECOGNISER.find(tmp_path)]
    assert present == [("weights", "optimizer"), ("weights",), ("weights", "optimizer"), ("weights",)]


@pytest.mark.parametrize("name", ["model-1.keras", "weights-1.weights.h5"])
def test_cut_anywhere(tmp_path, name):
    whole = keras() if name.endswith(".keras") else hdf5()
    for length in range(0, len(whole), 5):
        save(tmp_path / name, whole[:length])
        assert only(tmp_path).verdict.value == "incomplete", length


def test_a_file_that_its_writer_did_not_close(tmp_path):
    """HDF5 raises a flag while it is open, and leaves its old length in it; what is there may be of any length."""
    whole = hdf5()
    for content in (whole[:20] + b"\1" + whole[21:], whole + b"more", whole[:20] + b"\1" + whole[21:] + bytes(4096)):
        save(tmp_path / "weights.01.weights.h5", content)
        assert only(tmp_path).why == "its writer did not close it"


def test_a_whole_model_of_before_keras_3_is_known_by_what_is_in_it(tmp_path):
    for number in (1, 2):
        save(tmp_path / f"cp-{number:04d}.h5", hdf5(("model_weights", "optimizer_weights")))
        save(tmp_path / f"cell-{number:04d}.h5", hdf5(("counts", "genes")))
    save(tmp_path / "cp-0003.h5", hdf5(("model_weights", "optimizer_weights"))[:-9])
    assert [(name, step, verdict) for name, _, step, verdict in found(tmp_path)] == [
        ("cp-0001.h5", 1, "complete"),
        ("cp-0002.h5", 2, "complete"),
        ("cp-0003.h5", 3, "incomplete"),
    ]
    assert next(iter(RECOGNISER.find(tmp_path))).present == ("weights", "optimizer")


@pytest.mark.parametrize("member", ["metadata.json", "config.json", "model.weights.h5"])
def test_a_keras_file_without_what_keras_writes(tmp_path, member):
    save(tmp_path / "model-1.keras", keras(leave_out=(member,)))
    assert f"no {member} in it" in only(tmp_path).why


def test_shards_are_one_checkpoint(tmp_path):
    weights = {"/layers/dense/vars": ["big-4_00000.weights.h5"], "/optimizer/vars": ["big-4_00001.weights.h5"]}
    as_json(tmp_path / "big-4.weights.json", {"metadata": {"total_size": 1}, "weight_map": weights})
    for number in (0, 1):
        save(tmp_path / f"big-4_0000{number}.weights.h5", hdf5())
    one = only(tmp_path)
    assert (one.path.name, one.framework, one.step, one.verdict.value) == (
        "big-4.weights.json",
        "keras-weights",
        4,
        "complete",
    )
    assert one.present == ("weights", "optimizer", "config")
    assert [path.name for path in one.members] == [
        "big-4.weights.json",
        "big-4_00000.weights.h5",
        "big-4_00001.weights.h5",
    ]
    (tmp_path / "big-4_00001.weights.h5").unlink()
    assert "big-4_00001.weights.h5 is missing" in only(tmp_path).why


@pytest.mark.parametrize("total", [10**6, 10**400, 1e308])
def test_shards_of_which_more_are_to_come(tmp_path, total):
    """The index is written after each of them."""
    weights = {"/layers/dense/vars": ["big-4_00000.weights.h5"]}
    as_json(tmp_path / "big-4.weights.json", {"metadata": {"total_size": 1}, "weight_map": weights})
    save(tmp_path / "big-4_00000.weights.h5", hdf5())
    assert only(tmp_path).verdict.value == "complete"
    save(tmp_path / "big-4_00001.weights.h5", hdf5())
    assert only(tmp_path).why == "big-4.weights.json does not name big-4_00001.weights.h5 yet"
    (tmp_path / "big-4_00001.weights.h5").unlink()
    as_json(tmp_path / "big-4.weights.json", {"metadata": {"total_size": total}, "weight_map": weights})
    assert only(tmp_path).why.startswith("the shards have ")


def test_shards_without_their_index_are_unfinished(tmp_path):
    save(tmp_path / "big-4_00000.weights.h5", hdf5())
    assert found(tmp_path) == [("big-4.weights.json", "keras-weights", 4, "incomplete")]
    assert RECOGNISER.judge(tmp_path / "big-4.weights.json").verdict.value == "incomplete"


@pytest.mark.parametrize(
    ("text", "step", "verdict"),
    [
        ('{"epoch": 2, "batch": 0}', 2, "complete"),
        ('{"epoch": 2, "batch": 40}', None, "complete"),
        ('{"epoch"', None, "incomplete"),
        ("", None, "incomplete"),
        ("[]", None, "incomplete"),
        ('{"epoch": null}', None, "incomplete"),
    ],
)
def test_the_backup_says_how_many_epochs_are_done(tmp_path, text, step, verdict):
    save(tmp_path / "latest.weights.h5", hdf5())
    save(tmp_path / "latest.weights.h5.bkp", hdf5())
    save(tmp_path / "training_metadata.json", text)
    assert found(tmp_path) == [("latest.weights.h5", "keras-weights", step, verdict)]
    one = only(tmp_path)
    assert [path.name for path in one.members] == ["latest.weights.h5", "training_metadata.json"]
    assert one.notes == ("latest.weights.h5.bkp is of the backup before it",)


def test_a_backup_that_was_broken_off_before_it_said_the_epoch(tmp_path):
    """It is written over: what lies beside the new weights says what the old ones were."""
    weights = save(tmp_path / "latest.weights.h5", hdf5())
    said = save(tmp_path / "training_metadata.json", '{"epoch": 2, "batch": 0}')
    os.utime(said, (1000, 1000))
    os.utime(weights, (1001, 1001))
    assert only(tmp_path).verdict.value == "complete"
    os.utime(weights, (1030, 1030))
    assert only(tmp_path).why == "training_metadata.json is of the backup before, latest.weights.h5 is newer"


def test_tensorflow_is_a_prefix(tmp_path):
    tensorflow(tmp_path, "ckpt-50")
    tf_pointer(tmp_path, "ckpt-50")
    save(tmp_path / "checkpoint.tmpb75c4b13", b"mod")
    assert found(tmp_path) == [("ckpt-50", "tf", 50, "complete"), ("checkpoint", "pointer-file", None, "pointer")]
    one = RECOGNISER.judge(tmp_path / "ckpt-50")
    assert one.present == ("weights", "optimizer", "dataloader")
    assert [path.name for path in one.members] == ["ckpt-50.data-00000-of-00001", "ckpt-50.index"]
    assert RECOGNISER.judge(tmp_path / "checkpoint").target == "ckpt-50"


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("model.ckpt-100", 100),
        ("cp-0004.ckpt", 4),
        ("ckpt=a,b:1-7", 7),
        ("line\nbreak-7", 7),
        ("weights.03-0.72", 3),
        ("cp-03-1.20e-05.ckpt", 3),
        ("weights.03-nan.ckpt", 3),
    ],
)
def test_prefixes(tmp_path, name, step):
    tensorflow(tmp_path, name)
    assert found(tmp_path) == [(name, "tf", step, "complete")]


@pytest.mark.parametrize("key", ["dense/kernel/Adam", "dense/kernel/Adam_1", "beta1_power", "w/Momentum"])
def test_slots_of_tensorflow_1(tmp_path, key):
    tensorflow(tmp_path, "model.ckpt-7", keys={"dense/kernel": (0, 0, 40), key: (0, 40, 40)})
    tf_pointer(tmp_path, "model.ckpt-7")
    assert "optimizer" in RECOGNISER.judge(tmp_path / "model.ckpt-7").present


def test_graphs_of_tensorflow_1_belong_to_it(tmp_path):
    tensorflow(tmp_path, "model.ckpt-5")
    save(tmp_path / "model.ckpt-5.meta", b"graph")
    assert only(tmp_path).roles["model.ckpt-5.meta"] == "config"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ckpt-50.index", "no ckpt-50.index, which is written after the data"),
        ("ckpt-50.data-00001-of-00002", "1 of 2 missing"),
    ],
)
def test_a_file_of_tensorflow_that_is_missing(tmp_path, name, text):
    tensorflow(tmp_path, "ckpt-50", files=2)
    (tmp_path / name).unlink()
    assert (only(tmp_path).verdict.value, text in only(tmp_path).why) == ("incomplete", True), only(tmp_path).why


def test_tensorflow_cut_anywhere(tmp_path):
    tensorflow(tmp_path, "ckpt-50")
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for length in range(0, len(whole), 9):
            path.write_bytes(whole[:length])
            assert only(tmp_path).verdict.value == "incomplete", (path, length)
        path.write_bytes(whole)


@pytest.mark.parametrize("at", [0, 5, 11, 40])
def test_an_index_with_nonsense_in_it(tmp_path, at):
    tensorflow(tmp_path, "ckpt-50")
    text = bytearray(tf_index(KEYS))
    text[at] = 255
    save(tmp_path / "ckpt-50.index", bytes(text))
    assert only(tmp_path).framework == "tf"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", [("checkpoint", "pointer-file", None, "pointer")]),
        ("model_checkpoint_path: ", [("checkpoint", "pointer-file", None, "pointer")]),
        ("shopping list", []),
    ],
)
def test_what_a_pointer_file_may_be(tmp_path, text, seen):
    tensorflow(tmp_path, "ckpt-50")
    save(tmp_path / "checkpoint", text)
    assert [one for one in found(tmp_path) if one[1] != "tf"] == seen


def test_an_empty_pointer_says_so(tmp_path):
    tensorflow(tmp_path, "ckpt-50")
    save(tmp_path / "checkpoint", b"")
    assert "empty" in RECOGNISER.judge(tmp_path / "checkpoint").why


def test_a_saved_model_is_an_export(tmp_path):
    tensorflow(tmp_path / "export/variables", "variables")
    save(tmp_path / "export/saved_model.pb", b"pb")
    tensorflow(tmp_path / "bert", "bert_model.ckpt")
    save(tmp_path / "list-7.index", b"an index of something else")
    assert found(tmp_path) == []


def test_what_tensorflow_is_writing(tmp_path):
    save(tmp_path / "ckpt-100_temp/part-00000-of-00001.data-00000-of-00001.tempstate12", b"x")
    save(tmp_path / f"model.ckpt-200_temp_{'0a' * 16}/part-00000-of-00001.index.tempstate3", b"x")
    save(tmp_path / "other_temp/notes.txt", b"x")
    assert found(tmp_path) == [
        ("ckpt-100_temp", "tf", 100, "temporary"),
        (f"model.ckpt-200_temp_{'0a' * 16}", "tf", 200, "temporary"),
    ]
