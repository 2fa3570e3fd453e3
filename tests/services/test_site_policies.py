"""Settings as the rules services go by: each as what it is."""

from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from lakemark.errors import Misconfigured
from lakemark.ports import Drills, Objectives, ReadBack, WaterMarks
from lakemark.settings import loads, render
from lakemark.settings.rules import policies


def configured(*changes):
    text = render("solo", site="s", node="n", ports={}, ledger_url=None)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return policies(loads(text, file=Path("/site/lakemark.yaml"), environ={}, hostname="n").settings)


@pytest.mark.parametrize("apply", [True, False])
def test_apply_travels_as_what_it_is(apply):
    """What a full hot does is another question: a site may drop nothing by policy and still say `thin`."""
    told = configured(("retention:\n", f"retention:\n  apply: {str(apply).lower()}\n"))
    assert (told.apply, told.when_full) == (apply, "thin")


def test_objectives_budgets_and_drills_travel_whole():
    drill = "drill: {every: 1d, command: python load.py, timeout: 1h, scratch_max: 1GiB}"
    more = f"watch: []\nverify: {{every: 9d, budget: 5%}}\n{drill}"
    told = configured(("  rpo: 30m", "  rto: 5m\n  rpo: 20m"), ("watch: []", more))
    assert told.objectives == Objectives(
        rpo=timedelta(minutes=20), rto=timedelta(minutes=5), idle_after=timedelta(days=2)
    )
    assert told.read_back == ReadBack(every=timedelta(days=9), budget=Fraction(1, 20))
    assert told.drills == Drills(
        every=timedelta(days=1), command="python load.py", timeout=timedelta(hours=1), scratch_max_bytes=2**30
    )


def test_what_is_left_out_is_what_the_interface_says():
    told = configured()
    assert (told.read_back, told.drills, told.water) == (ReadBack(), Drills(), {})
    assert told.objectives.rto == timedelta(minutes=10)


def test_water_marks_are_the_tier_s():
    told = configured(("    removable: true", "    high_water: 90%\n    low_water: 1TiB\n    removable: true"))
    assert told.water == {"cold": WaterMarks(high=Fraction(9, 10), low=2**40)}


@pytest.mark.parametrize(
    "more", ["verify: {budget: 0%}", "verify: {every: 0s}", "drill: {every: 0s}", "verify: {x: 1}"]
)
def test_what_would_read_nothing_is_refused(more):
    with pytest.raises(Misconfigured, match=more.partition(":")[0]):
        configured(("watch: []", f"watch: []\n{more}"))
