"""What many records say alike is kept once: a node's service has tens of thousands of them in memory."""

from dataclasses import replace

from lakemark.model.checkpoints.record import Code, DataRef, Record, record_for
from lakemark.model.values.canonical import canonical, parse
from tests.model.histories import RUN, START, manifest


def read(step):
    ref = DataRef(repository="data", branch="main", commit="a" * 64)
    made = record_for(manifest(step), run=RUN, timeline=1, step=step, saved_at=START, node="node-a")
    made = replace(made, data=(ref,), code=Code(repository="git", commit="b" * 40), attempt="attempt", gaps=("no rng",))
    return made, Record.from_json(parse(canonical(made.as_json())))


def test_records_of_one_run_share_what_they_have_in_common():
    (_, first), (made, second) = read(1), read(2)
    assert second == made
    for name in ("run", "node", "framework", "roles", "gaps", "data", "code", "attempt"):
        assert getattr(first, name) is getattr(second, name), name


def test_what_only_compares_equal_is_not_shared():
    made, _ = read(1)
    other = replace(made, data=(replace(made.data[0], extra={"x": 1}),))
    found = Record.from_json(parse(canonical(other.as_json())))
    assert found.data[0].extra == {"x": 1}
    assert read(1)[1].data[0].extra == {}
