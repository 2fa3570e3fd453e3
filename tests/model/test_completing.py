"""What an announcement adds to a record that was there before it, and what of it is said instead of taken."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lakemark.model.checkpoints.completing import Word, completed
from lakemark.model.checkpoints.record import Code, DataKind, DataRef, Evidence, Record

ONE, TWO = "1" * 64, "2" * 64
FOUND = Record(
    run="r", timeline=1, step=100, content="c" * 64, saved_at=datetime(2026, 11, 26, tzinfo=UTC), node="n",
    size_bytes=1, files=1, attempt="a",
)  # fmt: skip
CODE = Code(repository="/src", commit="f" * 40)


def ref(commit=ONE, evidence=Evidence.DECLARED, **more):
    return DataRef(repository="data", commit=commit, branch="main", evidence=evidence, **more)


def evidence(done):
    return [(one.commit[:1], one.evidence) for one in done.record.data]


@pytest.mark.parametrize(
    ("before", "said", "after"),
    [
        ([ref()], [ref(ONE, Evidence.OPENED)], [("1", "opened")]),
        ([ref()], [ref(ONE, Evidence.READ)], [("1", "read")]),
        # What the attempt noted that it read says more than that it was open.
        ([ref(ONE, Evidence.READ)], [ref(ONE, Evidence.OPENED)], [("1", "read")]),
        ([ref(ONE, Evidence.AMBIGUOUS), ref(TWO, Evidence.AMBIGUOUS)], [ref(TWO, Evidence.OPENED)], [("2", "opened")]),
        ([ref()], [], [("1", "declared")]),
        ([], [ref(ONE, Evidence.OPENED)], [("1", "opened")]),
    ],
)
def test_the_data_of_a_find(before, said, after):
    done = completed(replace(FOUND, data=tuple(before)), Word(attempt="a", data=tuple(said)), in_files={})
    assert evidence(done) == after
    assert done.notes == ()
    assert done.record.announced is done.bound is (evidence(done) != [(one.commit[:1], one.evidence) for one in before])


def test_data_of_other_kinds_that_somebody_bound_stays():
    other = DataRef(kind=DataKind.DVC, repository="/data", commit="d" * 40)
    done = completed(replace(FOUND, data=(other,)), Word(attempt="a", data=(ref(ONE, Evidence.OPENED),)), in_files={})
    assert [one.kind for one in done.record.data] == ["dvc", "lakefs"]


def test_a_wrong_guess_is_mended_and_that_is_said():
    word = Word(attempt="b", data=(ref(TWO, Evidence.OPENED),), code=CODE)
    done = completed(replace(FOUND, data=(ref(),)), word, in_files={})
    assert (done.record.attempt, done.record.code, evidence(done)) == ("b", CODE, [("2", "opened")])
    assert done.notes == ("its process had data@222222222222 open; until now data@111111111111 was declared",)


def test_what_its_process_said_first_stays():
    told = replace(FOUND, data=(ref(ONE, Evidence.OPENED),), metrics={"loss": 2.0}, announced=True)
    done = completed(told, Word(attempt="a", data=(ref(TWO, Evidence.OPENED),), metrics={"loss": 1.0}), in_files={})
    assert (done.record, done.bound, done.metrics) == (told, False, {})
    assert ["stays" in note for note in done.notes] == [True, True]


@pytest.mark.parametrize("told", [{"announced": True}, {"data": (ref(ONE, Evidence.OPENED),)}])
def test_another_process_adds_nothing_to_what_its_own_said(told):
    record = replace(FOUND, **told)
    done = completed(record, Word(attempt="b", metrics={"loss": 1.0}, code=CODE), in_files={})
    assert (done.record, done.bound, done.metrics) == (record, False, {})
    assert done.notes == (
        "attempt b announced it, too; what that says of data and metrics is not taken, as attempt a saved it",
    )
    assert completed(record, Word(attempt="b"), in_files={}).notes == (), "nothing to say of it"


@pytest.mark.parametrize(
    ("in_files", "value", "added"),
    [({"loss": 1.41}, 1.4142, {"loss": 1.4142}), ({}, 1.4142, {}), ({"loss": 2.0}, 1.0, {})],
)
def test_a_rounded_metric_of_its_files_gives_way_and_another_does_not(in_files, value, added):
    done = completed(
        replace(FOUND, metrics={"loss": 1.41}), Word(attempt="a", metrics={"loss": value}), in_files=in_files
    )
    assert done.metrics == added
    (note,) = done.notes
    assert "1.41" in note
    assert f"{value:g}" in note
    assert done.record.metrics == {"loss": 1.41} | added
