"""A rehearsal decides as the ledger would, one decision after the other, and writes nothing."""

import pytest

from lakemark.errors import NotFound, Refused
from lakemark.services.rehearsal import rehearse
from lakemark.services.runs.close_run import close_run, reopen_run
from lakemark.services.saves.complete import add_metrics
from tests.services.world import RUN


def test_later_decisions_are_made_after_the_earlier_ones(world):
    world.open()
    world.save(100)
    world.sweep()
    record = world.latest().record.id

    def several(site):
        add_metrics(site, RUN, record, {"f1": 1.0}, reason="because")
        add_metrics(site, RUN, record, {"f1": 1.0}, reason="because")
        close_run(site, RUN, reason="because")
        close_run(site, RUN, reason="because")
        reopen_run(site, RUN, reason="because")
        assert site.ledger.run(RUN).records[record].record.metrics["f1"] == 1.0
        assert not site.ledger.outline(RUN).closed

    tips = world.site().ledger.tips()
    made = rehearse(world.site(), several)
    assert [entry.kind for entry in made] == ["metric_added", "attempt_ended", "closed", "reopened"]
    first = world.site().ledger.run(RUN).sequence + 1
    assert [entry.sequence for entry in made] == [first, first + 1, first + 2, first + 3]
    assert world.site().ledger.tips() == tips


def test_it_raises_what_would_be_raised(world):
    with pytest.raises(NotFound):
        rehearse(world.site(), lambda site: reopen_run(site, "nobody-s", reason="because"))
    with pytest.raises(Refused, match="rehearsal"):
        rehearse(world.site(), lambda site: site.ledger.beat(site.node, lambda before: before))
