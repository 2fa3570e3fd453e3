"""What the site says of itself: entries only when something turns, and a heartbeat that is replaced."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import StoreUnavailable
from lakemark.model.ledger.entry import LEVEL, SITE
from lakemark.model.tiers.retention import Best, RetentionPolicy
from lakemark.model.values.canonical import parse
from lakemark.services.recovery.recover import recover
from lakemark.services.site_facts import beat, found_site, policy_text
from tests.services.world import RUN, World


@pytest.fixture
def world():
    world = World()
    world.open()
    return world


def told(world, kind):
    return [entry for entry, _ in world.ledger.entries(SITE) if entry.kind == kind]


def test_the_first_sweep_says_what_the_site_is_and_the_next_says_nothing(world):
    identity = world.ledger.id
    world.sweep(version="0.1.0", address="10.0.0.7")
    assert [entry.body for entry in told(world, "founded")] == [{"id": identity, "site": "test"}]
    assert [entry.body for entry in told(world, "node_seen")] == [
        {"node": "node-a", "version": "0.1.0", "level": LEVEL, "address": "10.0.0.7"}
    ]
    assert world.ledger.site().id == world.ledger.id == identity
    once = world.ledger.site().sequence
    for _ in range(3):
        world.clock.wait(days=1)
        world.sweep(version="0.1.0", address="10.0.0.7")
    assert world.ledger.site().sequence == once


def test_a_node_is_seen_again_when_something_of_it_turned(world):
    for address in ("10.0.0.7", "10.0.0.8", "10.0.0.8", "10.0.0.7"):
        world.sweep(address=address)
    assert [entry.body["address"] for entry in told(world, "node_seen")] == ["10.0.0.7", "10.0.0.8", "10.0.0.7"]
    assert world.ledger.site().nodes["node-a"].address == "10.0.0.7"


def test_a_policy_is_said_when_it_is_another(world):
    def policy(last):
        return replace(world.policies, retention={"default": RetentionPolicy(keep_last=last)})

    world.sweep(policies=policy(5))
    world.sweep(policies=policy(5))
    swept = world.sweep(policies=policy(3))
    assert "another retention policy is in force" in swept.said
    world.sweep(policies=policy(5))
    texts = [parse(entry.body["text"]) for entry in told(world, "policy_set")]
    assert [text["retention"]["default"]["keep_last"] for text in texts] == [5, 3, 5]
    assert world.ledger.site().policies[-1].text == policy_text(policy(5))


def test_the_same_policy_is_the_same_text_however_it_is_written(world):
    best = (Best(metric="val_loss", mode="min", keep=3),)
    first = RetentionPolicy(keep_last=5, keep_for=timedelta(days=3), best=best)
    one = replace(world.policies, retention={"default": first, "x*": first})
    other = replace(world.policies, retention={"x*": replace(first), "default": first}, grace=timedelta(hours=1))
    assert policy_text(one) == policy_text(other)
    assert policy_text(one) != policy_text(replace(one, min_keep=3))
    assert parse(policy_text(one))["retention"]["default"]["best"] == [{"metric": "val_loss", "mode": "min", "keep": 3}]


def test_what_a_ledger_was_founded_as_is_said_once_and_by_the_first(world):
    identity = world.ledger.id
    assert found_site(world.site())
    assert not found_site(world.site())
    draft = replace(told(world, "founded")[0], body={"id": "another-ledger", "site": "x"})
    world.ledger.append_site(lambda _: _founded(draft.body), world.site().stamp("second"))
    assert world.ledger.id == identity


def _founded(body):
    from lakemark.model.ledger.entry import Draft

    return Draft(kind="founded", body=body)


def test_a_heartbeat_says_which_passes_ended_and_when(world):
    world.saves(100)
    at = world.clock()
    found = world.ledger.heartbeats()["node-a"]
    assert (found.at, found.passes["find"], found.passes["copies"]) == (at, at, at)
    assert found.looked == {"data/main": at}
    assert found.free_bytes.keys() <= {"hot", "warm", "cold"}
    world.clock.wait(hours=1)
    beat(world.site(), passes=["verify"])
    later = world.ledger.heartbeats()["node-a"]
    assert (later.passes["find"], later.passes["verify"], later.at) == (at, world.clock(), world.clock())


def test_a_pass_that_could_not_end_grows_old(world):
    world.saves(100)
    before = world.ledger.heartbeats()["node-a"].passes
    world.data.reachable = False

    world.clock.wait(hours=1)
    swept = world.sweep()
    after = world.ledger.heartbeats()["node-a"].passes
    ended = {name for name in after if after[name] > before.get(name, before["find"])}
    assert "find" in ended
    assert ("data" in ended) == ("data versions" in swept.ended)


def test_a_heartbeat_is_never_in_the_way(world):
    class Full(type(world.ledger)):
        def beat(self, *_):
            raise StoreUnavailable("held", advice="Wait.")

    full = Full()
    beat(replace(world.site(), ledger=full), passes=["sweep"])
    beat(world.site(reads_only=True), passes=["sweep"])
    assert world.ledger.heartbeats() == {}


def test_a_recovery_brings_what_the_ledger_was_founded_as(world):
    world.saves(100)
    identity = world.ledger.id
    world.ledger = type(world.ledger)(identity=identity)
    world.sweep()
    recover(world.site())
    assert world.ledger.site().id == world.ledger.id == identity
    assert RUN in world.ledger.runs()
