import pytest

from lakemark.errors import NoRecordAsOf, NotFound, Usage
from lakemark.model.selectors import (
    AtStep,
    AtTime,
    BeforeData,
    BeforeQuarantine,
    BestOf,
    Latest,
    Prefix,
    parse_record,
    parse_target,
    parse_when,
    resolve,
    resolve_target,
    run_of,
)
from lakemark.model.values.names import run_for
from tests.model.building import HOUR, Running, at, data

NOW = at(100)
HEX = "8b77ee87"

RECORDS = {
    f"id:{HEX}": Prefix(HEX),
    "ID:8B77EE87": Prefix(HEX),
    "id:1234": Prefix("1234"),
    "8B77EE87": Prefix(HEX),
    "8b77ee87" * 8: Prefix(HEX * 8),
    "1234567a": Prefix("1234567a"),
    "r@300": AtStep("r", None, 300),
    "r@0": AtStep("r", None, 0),
    "r@000300": AtStep("r", None, 300),
    "R@300": AtStep("R", None, 300),
    "r~2@300": AtStep("r", 2, 300),
    "r@latest": Latest("r"),
    "r@LATEST": Latest("r"),
    "r~1@latest": Latest("r", 1),
    "r@3d": AtTime("r", None, at(28)),
    "r~1@90m": AtTime("r", 1, at(98.5)),
    "r@2026-11-02T00:00:00Z": AtTime("r", None, at(24)),
    "r@2026-11-02t01:00+01:00": AtTime("r", None, at(24)),
    " r@300 ": AtStep("r", None, 300),
    "r@best:val_loss": BestOf("r", "val_loss"),
    "r@BEST:Val_Loss": BestOf("r", "Val_Loss"),
}


@pytest.mark.parametrize(("text", "expected"), RECORDS.items(), ids=RECORDS)
def test_records(text, expected):
    assert parse_record(text, now=NOW) == expected


WRONG = [
    "", " ", "300", "12345678", "abc", "abcdefg1", "llama", "r@", "@300", "r~@300", "r~0@300", "r~x@300", "r@-1", "r@3.5",
    "r@\uff12", "\uff122345678a", "id:", "id:xyz", "id:" + "a" * 65, "r@2026-11-02", "r@2026-11-02T00:00:00", "r@yesterday",
    "r@3 d",
    "r@best:", "r@1@2", "r@\x1b[2J", "a\nb", "r@99999999999999999w", "r@9999999w", "r@0001-01-01T00:00:00+02:00",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_wrong_records(text):
    with pytest.raises(Usage) as raised:
        parse_record(text, now=NOW)
    assert str(raised.value).isprintable()
    assert raised.value.exit_code == 2


TARGETS = {
    "3d": AtTime("r", None, at(28)),
    "300": AtStep("r", None, 300),
    "12345678": AtStep("r", None, 12345678),
    "latest": Latest("r"),
    HEX: Prefix(HEX),
    f"id:{HEX}": Prefix(HEX),
    "r@300": AtStep("r", None, 300),
    "r~1@400": AtStep("r", 1, 400),
    "best:loss": BestOf("r", "loss"),
    "Before-Data:" + "AB" * 4: BeforeData("r", "ab" * 4),
    f"before-quarantine:id:{HEX}": BeforeQuarantine("r", HEX),
    "2026-11-02T00:00:00Z": AtTime("r", None, at(24)),
}


@pytest.mark.parametrize(("text", "expected"), TARGETS.items(), ids=TARGETS)
def test_targets(text, expected):
    assert parse_target(text, "r", now=NOW) == expected


@pytest.mark.parametrize(
    "text", ["", "before-data:", "before-data:abc", "before-data:main", "before-quarantine:300", "x"]
)
def test_wrong_targets(text):
    with pytest.raises(Usage):
        parse_target(text, "r", now=NOW)


def test_when():
    assert parse_when("72h", now=NOW) == parse_when("3d", now=NOW) == at(28)
    with pytest.raises(Usage, match="offset"):
        parse_when("2026-11-02T00:00:00", now=NOW)


@pytest.fixture
def running():
    running = Running("r").open()
    for step, loss in ((100, 3.0), (200, 1.0), (300, 2.0)):
        running.commit(step, when=at(step / 10), metrics={"loss": loss}, refs=[data("a" if step < 300 else "b")])
    running.roll_back(running.state.records[running.state.by_step[1][1][2]])
    running.commit(250, when=at(60), metrics={"loss": 5.0}, refs=[data("c")])
    return running


def step(running, text):
    found = resolve(parse_record(text, now=NOW), {"r": running.state}, modes={"acc": "max"})
    return (found.record.timeline, found.record.step)


def target(running, text):
    return resolve_target(parse_target(text, "r", now=NOW), running.state).record.step


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r@100", (1, 100)), ("r@250", (2, 250)), ("r~1@300", (1, 300)), ("r@latest", (2, 250)), ("r~1@latest", (1, 300)),
        ("R@latest", (2, 250)), ("r@2026-11-02T02:00:00Z", (1, 200)), ("r~1@40h", (1, 300)), ("r@best:loss", (1, 200)),
        ("r@best:LOSS", (1, 200)), ("r~1@best:loss", (1, 200)),
    ],
)  # fmt: skip
def test_resolves(running, text, expected):
    assert step(running, text) == expected


def test_resolves_by_id(running):
    for name, found in running.state.records.items():
        assert resolve(Prefix(name[:8]), {"r": running.state}) is found


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("x@100", NotFound, "there are r"),
        ("r~9@100", NotFound, "it has 1, 2"),
        ("r@300", NotFound, "r~1@300"),
        ("r@120", NotFound, "nearest are 100, 200, 250"),
        ("r@100d", NoRecordAsOf, "the oldest is step 100"),
        ("id:00000000", NotFound, "no record matches"),
        ("r@best:nothing", NotFound, "it has loss"),
    ],
)
def test_says_what_there_is(running, text, kind, says):
    with pytest.raises(kind, match=says):
        step(running, text)


def test_ambiguity_lists_candidates(running):
    with pytest.raises(Usage, match="ambiguous") as raised:
        resolve(Prefix(""), {"r": running.state})
    assert "step 100" in str(raised.value)


def test_before_data(running):
    assert target(running, "before-data:" + "c" * 8) == 200
    with pytest.raises(NoRecordAsOf):
        target(running, "before-data:" + "a" * 8)
    with pytest.raises(NotFound):
        target(running, "before-data:" + "b" * 8)


def test_before_quarantine(running):
    bad = running.state.records[running.state.by_step[2][0][2]]
    with pytest.raises(Usage, match="not quarantined"):
        target(running, f"before-quarantine:{bad.record.id}")
    running.add("quarantined", record=bad.record.id, reason="x")
    assert target(running, f"before-quarantine:{bad.record.id[:12]}") == 200
    assert target(running, "latest") == 200


def test_best_by_mode_and_what_may_not_be_best(running):
    found = resolve(BestOf("r", "loss"), {"r": running.state}, modes={"loss": "max"})
    assert found.record.step == 250
    running.add("quarantined", record=found.record.id, reason="x")
    assert resolve(BestOf("r", "loss"), {"r": running.state}, modes={"loss": "max"}).record.step == 100
    running.commit(260, metrics={"Loss": 1.0})
    with pytest.raises(Usage, match="names 2 metrics"):
        resolve(BestOf("r", "LOSS"), {"r": running.state})


def test_pruned_ones_can_be_named(running):
    first = running.state.records[running.state.by_step[1][0][2]]
    running.add("pruned", items=[{"record": first.record.id, "reasons": ["old"]}])
    assert step(running, "r@100") == (1, 100)
    with pytest.raises(NoRecordAsOf):
        resolve(AtTime("r", None, first.instant + HOUR), {"r": running.state})


def test_another_runs_record_is_no_target(running):
    with pytest.raises(Usage, match="is not r"):
        resolve_target(parse_target("other@300", "r", now=NOW), running.state)
    with pytest.raises(NotFound):
        resolve_target(Prefix("0" * 12), running.state)


def test_names_of_runs():
    mapped = Running(run_for("Llama 7B")).open()
    plain = Running("llama-7b").open()
    states = {one.state.run: one.state for one in (mapped, plain)}
    assert run_of("Llama 7B", states) is mapped.state
    assert run_of("LLAMA-7b", states) is plain.state
    with pytest.raises(NotFound, match="there are llama-7b, x-"):
        run_of("other", states)
    with pytest.raises(NotFound, match="none yet"):
        run_of("other", {})
