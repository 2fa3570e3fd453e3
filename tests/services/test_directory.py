"""The machine of `directory.py`, a little of it each time; more under HYPOTHESIS_PROFILE=ci."""

from hypothesis import HealthCheck, settings

from lakemark.model.checkpoints.record import Evidence
from tests.services.directory import DirectoryMachine
from tests.services.world import OUT, World

TestDirectory = DirectoryMachine.TestCase
TestDirectory.settings = settings(
    max_examples=max(20, settings().max_examples // 4),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_a_copy_found_at_another_step_vouches_for_no_data():
    world = World()
    world.open()
    world.save(100)
    world.sweep()
    before = world.at(100).record
    world.change_data(2)
    world.repin()
    world.clock.wait(minutes=1)
    world.open()
    world.disk.remove(OUT / "step-100")
    world.save(200)
    world.save(300, "step 100")
    world.sweep()
    copy, own = world.at(300).record, world.at(200).record
    assert copy.content == before.content
    assert {ref.evidence for ref in copy.data} == {Evidence.AMBIGUOUS}
    assert {ref.commit for ref in copy.data} == {ref.commit for one in (before, own) for ref in one.data}
