"""Whatever breaks a commit off, no tree stays that nobody recorded, and what happened is what is said."""

from dataclasses import replace

import pytest

from lakemark.errors import NoRoom, StoreUnavailable
from lakemark.ports import Quiet
from lakemark.services.saves.commit import Commit, commit
from tests.services.crashing import At
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


@pytest.mark.parametrize("distressed", [False, True])
def test_one_that_breaks_off_before_its_tree_has_a_name_leaves_no_landing(world, distressed):
    world.sweep()
    backup = world.ledger.backup()
    world.trainer().save(200)
    world.sweep()
    path = world.save(300)
    if distressed:
        world.ledger = backup
    with pytest.raises(StoreUnavailable):
        commit(
            world.site(progress=Breaks("commit.landed", StoreUnavailable("away", advice="Wait."))),
            Commit(path=path, run=RUN, step=300),
        )
    assert list(world.hot._tier.landings) == []


# What was there before is not a failing commit's to take away


class Refusing:
    """A ledger that takes no entry, as on a full disk: one that only fails lets a save wait."""

    def __init__(self, ledger):
        self._ledger = ledger

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    def append(self, *_, **__):
        raise NoRoom("full", advice="Make room.")


def test_a_save_that_waits_for_the_ledger_outlives_a_commit_that_fails(world):
    """It was acknowledged without an entry: that there is none says nothing."""
    world.sweep()
    backup = world.ledger.backup()
    world.trainer().save(200)
    world.sweep()
    right, world.ledger = world.ledger, backup
    asked = Commit(path=world.save(300), run=RUN, step=300)
    waits = commit(world.site(), asked)
    assert waits.pending is not None
    world.ledger = right
    site = world.site()
    with pytest.raises(NoRoom):
        commit(replace(site, ledger=Refusing(site.ledger)), asked)
    assert waits.record.id in world.hot.records().records
    world.sweep()
    assert waits.record.id in world.state().records


def test_a_commit_that_fails_takes_no_tree_from_one_under_way(world):
    """Two commits of one save: the second names nothing new, fails, and must leave the first one's tree."""

    def fails():
        site = world.site()
        with pytest.raises(NoRoom):
            commit(replace(site, ledger=Refusing(site.ledger)), ASKED)

    done = commit(world.site(progress=At("commit.adopted", fails)), ASKED)
    assert done.new
    assert done.record.id in world.hot.records().records


def test_nor_where_the_other_named_nothing_new(world):
    """The first one's tree: it fails while the second counts on it."""
    site = world.site()
    other = []
    at = At("commit.adopted", lambda: other.append(world))
    failing = replace(site, ledger=Meanwhile(site.ledger, lambda: world.hot._tier.__setattr__("naming", 2)))
    with pytest.raises(NoRoom):
        commit(replace(failing, progress=at), ASKED)
    assert other
    assert len(world.hot.records().records) == 1, "left to the next pass, as somebody else names trees now"
    world.hot._tier.naming = 0
    world.sweep()
    assert world.hot.records().records == tuple(world.state().records)


class Meanwhile(Refusing):
    """Somebody else begins to name a tree while this one asks."""

    def __init__(self, ledger, call):
        super().__init__(ledger)
        self._call = call

    def append(self, *given, **named):
        self._call()
        super().append(*given, **named)
