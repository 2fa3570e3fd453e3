"""Names of nodes and tiers: a place known under another one is refused, renamed on purpose its replicas follow."""

from dataclasses import replace

import pytest

from lakemark.errors import Misconfigured, NotFound, Refused
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place
from lakemark.ports import Quiet
from lakemark.services.back.restore import restore
from lakemark.services.ledger import checkpoint
from lakemark.services.node.sweep import sweep
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.register import register_all, register_tier
from lakemark.services.tiers.release import drop_unclaimed
from lakemark.services.tiers.rename import rename_node, rename_tier
from lakemark.services.tiers.replicate import replicate
from tests.services.crashing import At, Fuse, KillAt, Killed, fused
from tests.services.world import OUT, RUN, World, files
from tests.support.memory import MemoryHot, MemoryStore


@pytest.fixture
def world():
    found = World()
    found.open()
    found.saves(100, 200, 300, minutes=1)
    return found


def called(world, *, tier="hot", node="node-a", **changes):
    """The site as a configuration with these names of hot and node sees it."""
    hot = MemoryHot(world.disk, name=tier, node=node)
    hot._tier = world.hot._tier
    hot.free_share, hot.min_free_share = world.hot.free_share, world.hot.min_free_share
    before = world.site()
    tiers = {tier: hot, **{name: store for name, store in before.tiers.items() if name != "hot"}}
    return replace(before, hot=hot, node=node, tiers=tiers, **changes)


def restored(world, site, step):
    done = restore(
        site, RUN, world.at(step).record.id, to=world.site().restore_root / f"{step}-{site.node}-{site.hot.name}"
    )
    return files(world.disk, done.restored.path)


NAMES = [{"node": "node-b"}, {"node": "node-a.example.org"}, {"tier": "nvme"}]


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_under_another_name_nothing_is_dropped_committed_or_registered(world, names):
    world.hot.min_free_share = 0.5
    kept, sequence = world.hot.records(), world.ledger.site().sequence
    site = called(world, **names)
    path = world.save(400)
    world.clock.wait(hours=3)
    for attempt in (
        lambda: sweep(site),
        lambda: commit(site, Commit(path=path, run=RUN, step=400)),
        lambda: register_tier(site, site.hot),
    ):
        with pytest.raises(Refused, match=r"is known as hot of node node-a") as refused:
            attempt()
        assert "rename" in refused.value.advice
    assert drop_unclaimed(site) == []
    assert world.hot.records() == kept
    assert world.ledger.site().sequence == sequence


def test_a_tree_goes_only_where_the_ledger_lists_this_replica_as_released(world):
    """Not for a replica that is listed elsewhere, nor for one that is listed nowhere."""
    elsewhere, nowhere, released = (world.at(step).record for step in (100, 200, 300))
    for record, kind in ((nowhere, "released"), (released, "released")):
        item = {"record": record.id, "tier": "hot", "node": "node-b" if record is nowhere else "node-a"}
        draft = Draft(kind=kind, timeline=1, body={"items": [item]})
        world.ledger.append(RUN, lambda _, draft=draft: draft, world.site().stamp(f"by hand {record.step}"))
    state = world.state()
    state.records[nowhere.id] = replace(state.records[nowhere.id], replicas={})
    assert drop_unclaimed(world.site()) == [released.id]
    assert set(world.hot.records().records) == {elsewhere.id, nowhere.id}


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_renamed_on_purpose_replicas_follow_and_work_goes_on(world, names):
    site = called(world, **names)
    rename = (
        (lambda: rename_node(site, "node-a", site.node))
        if "node" in names
        else (lambda: rename_tier(site, "hot", site.hot.name))
    )
    assert rename() == [RUN]
    assert rename() == [], "the second time nothing is left to do"
    assert {place for found in world.state().records.values() for place in found.replicas if place.node} == {
        site.hot.place
    }
    assert restored(world, site, 100) == restored(world, world.site(), 100)
    world.save(400)
    world.clock.wait(seconds=10)
    assert [done.record.step for done in sweep(site).committed] == [400]
    with pytest.raises(Refused, match="is known as"):
        sweep(world.site())


def test_a_node_s_watched_directory_follows_its_name(world):
    site = called(world, node="node-b")
    rename_node(site, "node-a", "node-b")
    assert world.state().watch == {"node-b": str(OUT)}


def test_what_was_released_under_the_old_name_is_known_under_the_new_one(world):
    found = world.at(100)
    draft = Draft(
        kind="released", timeline=1, body={"items": [{"record": found.record.id, "tier": "hot", "node": "node-a"}]}
    )
    world.ledger.append(RUN, lambda _: draft, world.site().stamp("a release that died before it dropped"))
    site = called(world, node="node-b")
    rename_node(site, "node-a", "node-b")
    assert drop_unclaimed(site) == [found.record.id]


def test_a_shared_tier_is_renamed_with_its_objects(world):
    site = world.site()
    old = site.tiers["warm"]
    new = MemoryStore(world.shelves["warm"], name="array", tier_class="warm", domain="array", kind="s3")
    renamed = replace(site, tiers={"hot": site.hot, "array": new, "cold": site.tiers["cold"]})
    world.clock.wait(seconds=10)
    assert any("known as warm" in one.why for one in sweep(renamed).pending)
    assert rename_tier(renamed, "warm", "array") == [RUN]
    found = world.at(100)
    assert Place(tier="array") in found.replicas
    assert Place(tier="warm") not in found.replicas
    held = checkpoint(renamed, found, tier="array")
    assert held.objects == {} or held.objects == checkpoint(site, found, tier="warm").objects
    assert not renamed.tiers["array"].verify(held, progress=Quiet())
    assert old.place != new.place


def test_a_new_tier_of_the_old_name_gets_no_replica_of_the_renamed_one(world):
    """Also where the rename died before any run followed."""
    site = called(world, tier="nvme")
    with pytest.raises(Killed):
        rename_tier(replace(site, progress=KillAt(1)), "hot", "nvme")
    other = MemoryHot(world.disk, name="hot", node="node-a", root=OUT.parent / "other")
    both = replace(site, hot=other, tiers={**site.tiers, "hot": other})
    register_tier(both, other)
    assert {place.tier for found in world.state().records.values() for place in found.replicas if place.node} == {
        "nvme"
    }
    assert rename_tier(site, "hot", "nvme") == []


@pytest.mark.parametrize(
    ("what", "error", "why"),
    [
        (lambda site: rename_tier(site, "nothing", "hot"), NotFound, "knows no tier 'nothing'"),
        (lambda site: rename_tier(site, "hot", "nothing"), Misconfigured, "there is no tier 'nothing'"),
        (lambda site: rename_tier(site, "warm", "cold"), Refused, "knows warm as"),
        (lambda site: rename_node(site, "node-a", "node-z"), Refused, "this node is node-a"),
        (lambda site: rename_node(site, "node-z", "node-a"), NotFound, "knows no node 'node-z'"),
    ],
)
def test_what_is_no_rename(world, what, error, why):
    before = world.ledger.site().sequence
    with pytest.raises(error, match=why):
        what(world.site())
    assert world.ledger.site().sequence == before


def test_a_name_of_another_tier_is_not_taken(world):
    site = called(world, node="node-b")
    draft = Draft(
        kind="tier_registered", body={"tier": "hot@node-b", "id": "e" * 32, "class": "hot", "tier_kind": "tree"}
    )
    world.ledger.append_site(lambda _: draft, site.stamp("another node's"))
    with pytest.raises(Refused, match="hot@node-b is the tier eeeeeeee already"):
        rename_node(site, "node-a", "node-b")


@pytest.mark.parametrize("names", [{"node": "node-b"}, {"tier": "nvme"}], ids=str)
def test_a_rename_killed_anywhere_is_finished_by_a_sweep_and_loses_nothing(names):
    for left in range(1, 50):
        world = World()
        world.open()
        world.saves(100, 200, minutes=1)
        kept = world.hot.records()
        fuse = Fuse()
        fuse.left = left
        site = called(world, **names)
        try:
            if "node" in names:
                rename_node(fused(site, fuse), "node-a", "node-b")
            else:
                rename_tier(fused(site, fuse), "hot", "nvme")
        except Killed:
            sweep(site)
            assert world.hot.records() == kept
            assert {place for found in world.state().records.values() for place in found.replicas if place.node} == {
                site.hot.place
            }
            continue
        assert left > 1
        return
    pytest.fail("it never ended")


# Places that nobody claimed, and that are empty by design


def test_a_sweep_claims_no_place(world):
    """An empty place may be a disk that is not mounted: only `init` and `tier init` claim."""
    empty = MemoryHot(world.disk, name="hot", node="node-b", root=OUT.parent / "empty")
    site = replace(world.site(), node="node-b", hot=empty, tiers={**world.site().tiers, "hot": empty})
    swept = sweep(site)
    assert any("tier init hot" in str(one.why) or "not registered" in one.why for one in swept.pending)
    path = world.save(400)
    with pytest.raises(Refused, match="not registered") as refused:
        commit(site, Commit(path=path, run=RUN, step=400))
    assert "lakemark tier init hot" in refused.value.advice
    assert empty.identity() is None
    register_all(site)
    assert commit(site, Commit(path=path, run=RUN, step=400)).new


def wiped(world):
    """Hot's disk as it comes back empty."""
    hot = MemoryHot(world.disk, name="hot", node="node-a", root=OUT.parent / "fresh")
    return replace(world.site(), hot=hot, tiers={**world.site().tiers, "hot": hot})


def ephemeral(site):
    return replace(site, policies=replace(site.policies, ephemeral_hot=True))


def test_an_empty_place_of_a_known_tier_is_refused_by_everybody(world):
    site = wiped(world)
    for attempt in (
        lambda: register_tier(site, site.hot),
        lambda: commit(site, Commit(path=world.save(400), run=RUN, step=400)),
    ):
        with pytest.raises(Refused, match="has no identity file"):
            attempt()
    assert site.hot.identity() is None


@pytest.mark.parametrize("how", ["sweep", "commit", "register"])
def test_an_ephemeral_hot_begins_anew(world, how):
    for shelf in world.shelves.values():
        shelf.reachable = False
    world.trainer().save(400)
    world.sweep()
    for shelf in world.shelves.values():
        shelf.reachable = True
    world.forget(400)
    old = world.ledger.site().tiers["hot@node-a"].id
    site = ephemeral(wiped(world))
    path = world.save(500)
    world.clock.wait(seconds=10)
    if how == "sweep":
        assert any("began anew" in line for line in sweep(site).said)
    elif how == "commit":
        commit(site, Commit(path=path, run=RUN, step=500))
    else:
        register_tier(site, site.hot)
    now = world.ledger.site().tiers["hot@node-a"].id
    assert now == site.hot.identity().id != old
    lost, safe = world.at(400), world.at(100)
    assert (dict(lost.replicas), bool(lost.lost)) == ({}, True)
    assert {place.tier for place in safe.replicas} >= {"warm"}
    assert site.hot.place not in safe.replicas
    assert safe.lost is None
    assert {"data_lost", "released"} <= set(world.kinds())


def test_an_ephemeral_hot_with_somebody_s_trees_is_not_claimed(world):
    site = ephemeral(wiped(world))
    site.hot.claim(site.ledger.id, now=world.clock())
    site.hot._tier.sealed = dict(world.hot._tier.sealed)
    with pytest.raises(Refused, match="the ledger knows it as"):
        register_tier(site, site.hot)
    assert all(found.replicas for found in world.state().records.values())


def test_what_somebody_committed_to_the_new_place_meanwhile_is_not_called_gone(world):
    """Two processes begin anew at once; the first is done, and commits, while the other forgets."""
    site = ephemeral(wiped(world))
    path = world.save(500)

    def first():
        commit(site, Commit(path=path, run=RUN, step=500))

    register_tier(replace(site, progress=At("anew.claimed", first)), site.hot)
    assert world.at(500).replicas[site.hot.place].sound
    assert world.at(500).lost is None


def test_beginning_anew_killed_anywhere_is_done_by_the_next(world):
    for left in range(1, 50):
        world = World()
        world.open()
        world.saves(100, 200, minutes=1)
        site = ephemeral(wiped(world))
        fuse = Fuse()
        fuse.left = left
        try:
            register_tier(fused(site, fuse), site.hot)
        except Killed:
            register_tier(site, site.hot)
            assert world.ledger.site().tiers["hot@node-a"].id == site.hot.identity().id
            assert all(site.hot.place not in found.replicas for found in world.state().records.values())
            assert all(found.replicas for found in world.state().records.values()), "what warm holds stays"
            continue
        assert left > 1
        return
    pytest.fail("it never ended")


def test_a_tree_on_its_way_into_hot_is_not_taken_for_a_released_one(world):
    """`replicate --to hot` beside a sweep: the tree has its name before its entry."""
    world.clock.wait(hours=3)
    world.sweep()
    found = world.at(100)
    assert world.hot.place in found.released
    swept = []
    progress = At("replicate.stored", lambda: swept.extend(world.sweep().said))
    replicate(world.site(progress=progress), RUN, found.record.id, to="hot")
    assert not [line for line in swept if "dropped" in line]
    assert not world.hot.verify(checkpoint(world.site(), world.at(100)), progress=Quiet())
