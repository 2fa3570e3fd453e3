"""Saves as trainers lay them out, on a real disk: in folders of their own, in several, and by people's own names."""

from lakemark.services.back.resume import resume
from tests.formats.builders import save
from tests.formats.library_builders import deepspeed, hf_trainer
from tests.services.on_disk import RUN

WITHOUT = ("optimizer", "scheduler", "rng")


def test_what_a_job_left_in_its_staging_folder_is_no_save_and_goes_aside(yard):
    yard.open()
    deepspeed(yard.out / "global_step50")
    staged = deepspeed(yard.out / "tmp-checkpoint-x7/global_step75").parent
    yard.sweep()
    assert yard.steps() == [50]
    done = resume(yard.site(), RUN, to=yard.out, job="7", without=WITHOUT)
    assert done.found.record.step == 50
    assert not staged.exists()
    assert (yard.out / ".lakemark-aside/7/tmp-checkpoint-x7/global_step75").is_dir()


def test_a_save_that_comes_out_of_its_staging_folder_opens_no_timeline(yard):
    yard.open()
    for step in (50, 75):
        staged = deepspeed(yard.out / f"tmp-checkpoint-x7/global_step{step}").parent
        yard.sweep()
        save(staged / "latest", f"global_step{step}")
        hf_trainer(staged, step=step, ranks=2)
        staged.rename(yard.out / f"checkpoint-{step}")
        yard.sweep()
    assert yard.steps() == [50, 75]
    assert [found.record.framework for found in yard.state().records.values()] == ["hf-trainer"] * 2
    assert list(yard.state().timelines) == [1]
