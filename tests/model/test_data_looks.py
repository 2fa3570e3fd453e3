from datetime import timedelta
from itertools import pairwise

import pytest

from lakemark.model.runs.data_looks import EVERY, LONGEST, nodes_of, pause

NODES = tuple(f"node-{number}" for number in range(20))


def looks(node, nodes, *, hours):
    """When it looks, all started at once."""
    at, found = timedelta(0), []
    while at < timedelta(hours=hours):
        found.append(at)
        at += pause(node, nodes=nodes, wrong=False, turn=len(found)).span
    return found


@pytest.mark.parametrize("count", [1, 2, 5, 10, 12])
def test_a_site_asks_as_often_as_one_node_would(count):
    hours = 24
    asked = sum(len(looks(node, NODES[:count], hours=hours)) for node in NODES[:count])
    assert asked == pytest.approx(hours * 12 + count, rel=0.1)


def test_a_node_looks_every_hour_or_so_however_many_there_are():
    nodes = [f"node-{number}" for number in range(1000)]
    for node in NODES:
        times = looks(node, nodes, hours=24)
        assert max(b - a for a, b in pairwise(times)) <= LONGEST * 1.25


def test_nodes_that_were_started_together_come_apart():
    later = {looks(node, NODES, hours=3)[1] for node in NODES}
    assert len(later) == len(NODES)


@pytest.mark.parametrize("nodes", [NODES[:1], NODES])
def test_what_is_wrong_is_looked_at_soon(nodes):
    found = pause("node-0", nodes=nodes, wrong=True, turn=3)
    assert (found.span, found.why) == (EVERY, "the last look found something to do, or could not")


def test_a_node_of_its_own_waits_for_nobody():
    assert pause("node-0", nodes=(), wrong=False, turn=1).span == EVERY
    assert pause("node-0", nodes=NODES, wrong=False, turn=1).why.startswith("20 nodes share the looks")


def test_nodes_are_those_that_have_a_tier_now():
    tiers = {"hot@a": False, "hot@b": True, "warm": False, "nvme@c": False, "hot@d": False}
    assert nodes_of(tiers, retired_nodes={"d"}) == {"a", "c"}
