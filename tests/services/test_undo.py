"""Whatever breaks a commit off, no tree stays that nobody recorded, and what happened is what is said."""

from dataclasses import replace

import pytest

from lakemark.errors import StoreUnavailable
from lakemark.ports import Quiet
from lakemark.services.commit import Commit, commit
from tests.services.world import OUT, RUN, World

BROKEN = [TypeError("ours"), KeyError("ours"), OSError(5, "EIO"), StoreUnavailable("away", advice="Wait.")]


class Breaks(Quiet):
    """Raises at a step, as a mistake of ours or the system would."""

    def __init__(self, name, error):
        self.name = name
        self.error = error

    def step(self, name):
        if name == self.name:
            raise self.error


class LandsWrong:
    """A hot tier whose landings can't be judged: what is asked of them raises TypeError in our own lines."""

    def __init__(self, hot):
        self._hot = hot

    def __getattr__(self, name):
        return getattr(self._hot, name)

    def land(self, *given, **named):
        return replace(self._hot.land(*given, **named), taken=None)


@pytest.fixture
def world():
    made = World()
    made.open()
    made.trainer().save(100)
    return made


def left(world):
    """Landings and trees that no entry claims."""
    recorded = {found.record.id for found in world.state().records.values()}
    return [*world.hot._tier.landings, *(set(world.hot.records().records) - recorded)]


ASKED = Commit(path=OUT / "step-100", run=RUN, step=100)


@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
def test_a_commit_that_breaks_off_after_it_named_its_tree(world, error):
    with pytest.raises(type(error)) as raised:
        commit(world.site(progress=Breaks("commit.adopted", error)), ASKED)
    assert raised.value is error
    assert left(world) == []
    assert commit(world.site(), ASKED).new


def test_one_that_breaks_off_once_the_entry_is_there_keeps_its_tree(world):
    with pytest.raises(TypeError):
        commit(world.site(progress=Breaks("commit.recorded", TypeError("ours"))), ASKED)
    (found,) = world.state().records.values()
    assert world.hot.records().records == (found.record.id,)


def test_a_take_that_breaks_off_leaves_no_landing(world):
    with pytest.raises(TypeError):
        commit(world.site(hot=LandsWrong(world.hot)), ASKED)
    assert left(world) == []
