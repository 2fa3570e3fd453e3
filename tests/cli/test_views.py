"""model.views: what the views work out by themselves."""

from datetime import UTC, datetime, timedelta

from lakemark.model.checkpoints.record import Record
from lakemark.model.ledger.run import Place, RecordState, Replica
from lakemark.model.tiers.retention import Kept
from lakemark.model.views import Context, record_view, safe_at
from tests.cli.keys import RECORD, has

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
DOMAINS = {"warm": "array", "near": "array", "cold": "hdd"}


def found(**hours):
    """A record with replicas made so many hours after NOW, by tier; `hot` is node-a's own."""
    record = Record(run="r1", timeline=1, step=3, content="c" * 64, saved_at=NOW, node="node-a", size_bytes=10, files=1)
    replicas = {}
    for tier, after in hours.items():
        place = Place(tier=tier, node="node-a" if tier == "hot" else None)
        at = NOW + timedelta(hours=after)
        replicas[place] = Replica(place=place, verified_at=at, replicated_at=at)
    return RecordState(record=record, sequence=2, recorded_at=NOW, clock="ok", replicas=replicas)


def test_safe_counts_failure_domains_beyond_the_node():
    assert safe_at(found(hot=0), DOMAINS, copies=1) is None
    assert safe_at(found(hot=0, warm=1), DOMAINS, copies=1) == NOW + timedelta(hours=1)
    assert safe_at(found(hot=0, warm=1, near=2), DOMAINS, copies=2) is None
    assert safe_at(found(hot=0, warm=1, near=2, cold=5), DOMAINS, copies=2) == NOW + timedelta(hours=5)
    assert safe_at(found(hot=0, elsewhere=1), DOMAINS, copies=1) is None
    assert safe_at(found(hot=0), DOMAINS | {"hot": "node-a"}, copies=1) is None


def test_an_unsound_replica_makes_nothing_safe():
    state = found(warm=1)
    (place,) = state.replicas
    state.replicas[place] = Replica(place=place, verified_at=NOW, replicated_at=NOW, damaged=True)
    assert safe_at(state, DOMAINS, copies=1) is None


def test_expiry_follows_retention():
    state = found(hot=0)
    identity = state.record.id

    def view(kept=None):
        return record_view(state, Context(now=NOW, kept={} if kept is None else {identity: kept}))

    has(view(), RECORD)
    assert (view()["kept_by"], view()["expires_at"]) == ([], None)
    lasting = view(Kept(record=identity, reasons=("the newest",)))
    assert (lasting["kept_by"], lasting["expires_at"]) == (["the newest"], None)
    ending = view(Kept(record=identity, reasons=("younger than 14d",), until=NOW + timedelta(days=1)))
    assert ending["expires_at"] == "2026-11-27T12:00:00.000000Z"
    assert view(Kept(record=identity, reasons=()))["expires_at"] == "2026-11-26T12:00:00.000000Z"
