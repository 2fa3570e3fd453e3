"""What names a step beside the checkpoints names the one that was resumed from, in place and in a directory that was empty."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakemark.ports import Approval, Policies
from lakemark.services.back.resume import resume
from lakemark.services.node.sweep import sweep
from tests.formats.builders import dcp, save
from tests.services.framework_bench import NESTED, Bench
from tests.services.on_disk import RUN, hf, plain

WITHOUT = ("weights", "optimizer", "scheduler", "rng")


@dataclass(frozen=True)
class Case:
    """pointer: its name; says: its text, `-> target`, or `= name` of what it is a copy of."""

    folder: str
    step: int
    pointer: str
    says: str

    def said(self, place):
        path = place / self.pointer
        if path.is_symlink():
            return f"-> {path.readlink()}"
        if self.says.startswith("= "):
            other = place / self.says.removeprefix("= ")
            return self.says if path.read_bytes() == other.read_bytes() else "another's bytes"
        return path.read_text()


LIT = "epoch=0-step=8-val_loss=1.41.ckpt"
CASES = (
    Case("deepspeed/zero1", 5, "latest", "global_step5"),
    Case("megatron/torch_dist", 500, "latest_checkpointed_iteration.txt", "500"),
    Case("bytecheckpoint/run", 100, "latest_checkpointed_iteration.txt", "100"),
    Case("composer/unsharded", 100, "latest-rank0.pt", "-> ep0-ba100-rank0.pt"),
    Case("composer/fsdp_sharded", 100, "latest-rank0.pt", "-> ep0-ba100"),
    Case("fairseq/plain", 500, "checkpoint_last.pt", "= checkpoint_2_500.pt"),
    Case("lightning/last_link", 8, "last.ckpt", f"-> {LIT}"),
)  # fmt: skip


def latest_at(place, step):
    """A tracker that still names a later step, as a trainer leaves it."""
    save(place / "latest_checkpointed_iteration.txt", str(step))


@pytest.fixture
def bench(tmp_path, request):
    case = request.param
    prepare = (lambda place: latest_at(place, 200)) if case.folder.startswith("byte") else None
    return case, Bench(tmp_path / "site", case.folder, prepare=prepare)


@pytest.mark.parametrize("bench", CASES, indirect=True, ids=lambda case: case.folder)
def test_a_framework_s_own_in_place_and_in_an_empty_directory(bench, tmp_path):
    case, here = bench
    to = tmp_path / "other"
    for into, place in ((here.out, here.place), (to, to / NESTED)):
        done = here.resume(case.step, to=into)
        assert case.said(place) == case.says
        assert [one for one in done.notes if one.startswith(f"{place / case.pointer} names step {case.step} now: ")]
        again = here.resume(case.step, to=into)
        assert (again.changed, again.pointers) == (False, ())
    sweep(here.site())


def test_tensorflow_s_in_an_empty_directory(tmp_path):
    here = Bench(tmp_path / "site", "keras_tf/tfckpt")
    here.resume(50, to=tmp_path / "other")
    text = (tmp_path / "other" / NESTED / "checkpoint").read_text()
    assert text == 'model_checkpoint_path: "ckpt-50"\nall_model_checkpoint_paths: "ckpt-50"\n'


def test_ray_s_snapshot_names_no_later_result(tmp_path):
    here = Bench(tmp_path / "site", "ray_train/run_keep_all")
    names = sorted(path.name for path in here.place.glob("checkpoint_2*"))
    here.resume(1)
    state = json.loads((here.place / "checkpoint_manager_snapshot.json").read_text())
    assert [one["checkpoint_dir_name"] for one in state["checkpoint_results"]] == names[:2]
    assert state["latest_checkpoint_result"]["checkpoint_dir_name"] == names[1]
    assert state["checkpoint_report_indices"] == [0, 1]
    assert here.resume(1).changed is False
    for path in here.place.glob("checkpoint_2*"):
        assert path.name in names[:2]


def test_ray_s_snapshot_can_t_be_made_and_that_is_said(tmp_path):
    here = Bench(tmp_path / "site", "ray_train/run_keep_all")
    done = here.resume(1, to=tmp_path / "other")
    assert any("checkpoint_manager_snapshot.json" in note and "starts anew" in note for note in done.notes)


# Links and lines that anybody keeps

FORMS = {
    "latest": ("link", "step-{}"),
    "latest.txt": ("text", "step-{}\n"),
    "LAST_CHECKPOINT": ("text", "step-{}"),
    "latest_step.txt": ("text", "{}"),
    "last_checkpoint_path": ("text", "{out}/step-{}"),
    "current": ("text", "./step-{}\n"),
}


def point(out, name, step):
    kind, said = FORMS[name]
    said = said.format(step, out=out)
    (out / name).unlink(missing_ok=True)
    if kind == "link":
        os.symlink(said, out / name)
    else:
        save(out / name, said)


def says(out, name):
    path = out / name
    return os.readlink(path) if path.is_symlink() else path.read_text()


def trained(yard, saving, steps=(10, 20, 30), pointing=()):
    yard.open()
    for step in steps:
        saving(yard.out, step)
        for name in pointing:
            point(yard.out, name, step)
        yard.sweep()
    return yard.state()


def titan(out, step):
    dcp(out / f"step-{step}")


def go_back(yard, step, to):
    record = yard.at(step).record.id
    policies = Policies(quiet_seconds=0.0, approval=Approval(required=False))
    return resume(yard.site(policies=policies), RUN, to=to, record=record, job="7", without=WITHOUT)


@pytest.mark.parametrize("saving", [plain, titan], ids=["generic", "dcp"])
@pytest.mark.parametrize("name", FORMS)
def test_a_link_or_line_is_set_in_place_and_made_as_the_run_kept_it(yard, tmp_path, saving, name):
    trained(yard, saving, pointing=[name])
    elsewhere = tmp_path / "node" / "out"
    for to in (yard.out, elsewhere):
        done = go_back(yard, 20, to)
        expected = FORMS[name][1].format(20, out=to)
        # A path is written for where the checkpoint lies; what was relative stays so.
        assert says(to, name).removeprefix("./") == expected.removeprefix("./")
        assert f"{to / name} names step 20 now: it names the newest step" in done.notes
        again = go_back(yard, 20, to)
        assert (again.changed, again.pointers) == (False, ())


def test_what_names_an_earlier_step_than_the_one_resumed_from_is_set_too(yard):
    """A job that died between the save and its pointer."""
    trained(yard, plain, pointing=["latest.txt"])
    point(yard.out, "latest.txt", 10)
    go_back(yard, 30, yard.out)
    assert says(yard.out, "latest.txt") == "step-30\n"


def test_others_are_left_alone(yard):
    trained(yard, plain)
    kept = {
        "last_epoch.txt": "20", "last_loss": "0.31", "latest.log": "step-30", "notes.txt": "step-30",
        "latest_best.txt": "step-10", "last_words": "step-30 was good\nstep-20 was not\n",
    }  # fmt: skip
    for name, text in kept.items():
        save(yard.out / name, text)
    os.symlink("/models/llama/step-30", yard.out / "latest_base")
    os.symlink("step-10", yard.out / "best")
    done = go_back(yard, 20, yard.out)
    assert {name: (yard.out / name).read_text() for name in kept} == kept
    assert os.readlink(yard.out / "latest_base") == "/models/llama/step-30"
    assert os.readlink(yard.out / "best") == "step-10"
    assert done.pointers == ()
    assert [note for note in done.notes if "last_words says step-30" in note]


def test_what_has_a_form_of_its_own_is_named(yard):
    trained(yard, plain)
    text = json.dumps({"path": "ckpt/step-30", "step": 30})
    save(yard.out / "latest.json", text)
    done = go_back(yard, 20, yard.out)
    assert (yard.out / "latest.json").read_text() == text
    assert f"{yard.out / 'latest.json'} says step-30, which is {yard.out / 'step-20'} now" in done.notes


def test_a_dry_run_foresees_it(yard):
    from lakemark.services.back.prepare_directory import foreseen

    state = trained(yard, plain, pointing=["latest"])
    said = foreseen(yard.site(), state, yard.at(20), to=yard.out, aside=yard.out / ".lakemark-aside" / "7")
    assert any("make a symlink of 'step-20'" in one for one in said)


def test_hugging_face_s_trainer_goes_by_the_folders_and_gets_nothing_it_has_not_got(yard, tmp_path):
    yard.open()
    for step in (5, 10):
        hf(yard.out, step)
    yard.sweep()
    for to in (yard.out, tmp_path / "node"):
        go_back(yard, 5, to)
        assert sorted(path.name for path in to.iterdir() if not path.name.startswith(".")) == ["checkpoint-5"]


def test_what_a_save_s_entry_says_of_pointers_is_of_names_alone(yard):
    trained(yard, plain, pointing=["latest", "latest_step.txt"])
    (entry,) = [
        entry for entry, _ in yard.site().ledger.entries(RUN) if entry.kind == "committed" and "pointers" in entry.body
    ][-1:]
    assert entry.body["pointers"] == {"latest": "link", "latest_step.txt": "number"}
    assert Path(entry.body["source"]).name == "step-30"
