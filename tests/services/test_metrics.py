"""Metrics that frameworks wrote of a step themselves, read without unpickling."""

import pytest

from lakemark.formats import recogniser
from lakemark.formats.rules.metrics import of_history, of_name
from lakemark.model.ledger.run import RunState
from lakemark.services.health.saves import problems_of_best
from tests.formats.builders import as_json, save, torch_zip
from tests.formats.jax_builders import hdf5, keras, orbax
from tests.services.on_disk import RUN
from tests.services.world import RUN as WORLD_RUN

HISTORY = [
    {"loss": 2.5, "grad_norm": 1.0, "epoch": 0.5, "step": 5},
    {
        "eval_loss": 1.9,
        "eval_accuracy": 0.5,
        "eval_runtime": 3.2,
        "eval_samples_per_second": 9.0,
        "epoch": 1,
        "step": 10,
    },
    {"loss": float("nan"), "eval_f1": True, "eval_name": "x", "step": 10},
]


@pytest.mark.parametrize(
    ("step", "metrics"),
    [(5, {"loss": 2.5}), (10, {"eval_loss": 1.9, "eval_accuracy": 0.5}), (15, {}), (None, {})],
)
def test_hugging_face_s_history_of_that_very_step(step, metrics):
    assert of_history(HISTORY, step) == metrics


@pytest.mark.parametrize("history", [None, {}, "x", [1, None, {"step": 5}], [{"step": 5, "loss": [1]}]])
def test_other_histories_say_nothing(history):
    assert of_history(history, 5) == {}


@pytest.mark.parametrize(
    ("stem", "metrics"),
    [
        ("epoch=0-step=8-val_loss=1.41", {"val_loss": 1.41}),
        ("epoch=3-val/acc=0.97-val_loss=-2.5e-3", {"val/acc": 0.97, "val_loss": -0.0025}),
        ("model_name=0--val_loss=2.35-step=500-consumed_samples=4000.0", {"model_name": 0.0, "val_loss": 2.35}),
        ("last", {}),
        ("epoch=1-step=2-val_loss=nan", {}),
    ],
)
def test_lightning_s_names(stem, metrics):
    found = of_name(stem)
    assert {name: found[name] for name in metrics} == metrics
    assert not {"epoch", "step", "consumed_samples"} & found.keys()


@pytest.mark.parametrize(
    ("stem", "metrics"),
    [
        ("model_03-val_loss=0.72", {"val_loss": 0.72}),
        ("epoch=07_val_loss=-2.5e-3", {"val_loss": -0.0025}),
        ("epoch=07-val_loss=0.5-val_acc=0.9", {"val_loss": 0.5, "val_acc": 0.9}),
        ("weights.05-0.42", {}),
        ("model-03-val_loss=inf", {}),
        ("best", {}),
    ],
)
@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_keras_s_names(tmp_path, stem, metrics, suffix):
    save(tmp_path / f"{stem}{suffix}", keras() if suffix == ".keras" else hdf5())
    (one,) = recogniser().find(tmp_path)
    assert one.metrics == metrics


def test_what_orbax_chooses_the_best_step_by(tmp_path):
    orbax(tmp_path / "7", items=("state", "metrics"))
    as_json(tmp_path / "7" / "metrics" / "metrics", {"val_loss": 0.5, "note": "x", "acc": float("nan")})
    (one,) = recogniser().find(tmp_path)
    assert (one.step, one.metrics) == (7, {"val_loss": 0.5})


def test_they_come_into_the_record_and_what_the_trainer_says_comes_first(yard):
    yard.open()
    name = "epoch=0-step=8-val_loss=1.41.ckpt"
    save(yard.out / name, torch_zip(("state_dict", "optimizer_states", "lr_schedulers", "pytorch-lightning_version")))
    (one,) = recogniser().find(yard.out)
    assert one.metrics == {"val_loss": 1.41}
    yard.commit(yard.out / name, 8, metrics={"val_loss": 1.4142})
    (found,) = yard.state().records.values()
    assert found.record.metrics == {"val_loss": 1.4142}


def test_found_ones_too(yard):
    yard.open()
    save(yard.out / "epoch=0-step=8-val_loss=1.41.ckpt", torch_zip(("state_dict", "optimizer_states", "lr_schedulers")))
    yard.sweep()
    assert [found.record.metrics for found in yard.state(RUN).records.values()] == [{"val_loss": 1.41}]


def test_best_by_a_metric_that_no_record_has_is_amber(world):
    world.open()
    world.trainer().save(100, metrics={"eval_loss": 1.5})
    world.sweep()
    state = world.state(WORLD_RUN)
    (problem,) = problems_of_best(state, {"val_loss": "min"})
    assert (problem.colour, "val_loss" in problem.what, "eval_loss" in problem.next) == ("amber", True, True)
    assert list(problems_of_best(state, {"eval_loss": "min"})) == []
    assert list(problems_of_best(RunState(run="r"), {"val_loss": "min"})) == []
