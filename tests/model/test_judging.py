"""What roles say of a save: resumable, lost, of one save."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakemark.model.checkpoints.judging import Dated, foreign, lost, resumes, weights_only, whole_state

ALL = ("weights", "optimizer", "scheduler", "rng")
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("present", "possible", "expected"),
    [
        (ALL, (), (True, ())),
        ((*ALL, "dataloader"), (), (True, ())),
        (ALL[:3], (), (False, ("no rng",))),
        (ALL[:3], ("rng",), (None, ())),
        (("weights",), (), (False, ("no optimizer", "no scheduler", "no rng"))),
        (("weights",), ("optimizer",), (False, ("no scheduler", "no rng"))),
        ((), ALL, (None, ())),
        ((), (), (None, ())),
    ],
)
def test_resumable_only_with_all_that_is_needed(present, possible, expected):
    assert resumes(present, possible) == expected


def test_weights_only_is_what_cannot_be_more():
    assert weights_only(("weights", "config", "trainer"), ())
    assert not weights_only(("weights",), ("optimizer",))
    assert not weights_only(("weights", "rng"), ())
    assert not weights_only(("config",), ())
    assert whole_state(("weights", "rng"))
    assert not whole_state(("weights", "dataloader"))


@pytest.mark.parametrize(
    ("present", "possible", "earlier", "expected"),
    [
        (ALL, (), [(*ALL, "dataloader")], ("dataloader",)),
        (ALL[1:], (), [ALL, ALL], ("weights",)),
        (("weights", "scheduler", "rng"), (), [ALL], ("optimizer",)),
        (ALL, (), [(*ALL, "dataloader"), ALL], ()),  # not every earlier one had it
        (ALL, (), [(*ALL, "dataloader"), ("weights",)], ("dataloader",)),  # weights alone say nothing
        (ALL, ("dataloader",), [(*ALL, "dataloader")], ()),  # it may be in it
        (("weights", "trainer"), (), [ALL], ()),  # another kind of save
        (ALL, (), [(*ALL, "config", "other")], ()),  # not of the state
        (ALL, (), [], ()),
        ((*ALL, "dataloader"), (), [ALL], ()),
    ],
)
def test_a_role_that_every_earlier_state_had_is_lost(present, possible, earlier, expected):
    assert lost(present, possible, earlier) == expected


def dated(path, minutes, *, role="", size_bytes=1000, names=1):
    written = NOW + timedelta(minutes=minutes)
    return Dated(path=path, role=role, size_bytes=size_bytes, written_at=written, names=names)


def odd(*files, before=None):
    found = foreign(files, before=None if before is None else NOW + timedelta(minutes=before))
    return None if found is None else found.paths


def test_two_names_that_differ_in_a_metric():
    old, new = dated("ckpt-loss=0.123.pt", 0), dated("ckpt-loss=0.119.pt", 0.1)
    assert odd(old, new, dated("optimizer.pt", 0.1)) == ("ckpt-loss=0.123.pt",)
    assert odd(replace(old, names=2), new) == ("ckpt-loss=0.123.pt",)
    assert "differs in a metric" in foreign([old, new], before=None).why
    assert odd(dated("a/val_loss-0.5.safetensors", 1), dated("a/val_loss-0.75.safetensors", 0)) == (
        "a/val_loss-0.75.safetensors",
    )


@pytest.mark.parametrize(
    "names",
    [
        ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        ("rank0.pt", "rank1.pt"),
        ("layer=1.pt", "layer=2.pt"),
        ("0.0", "1.0"),
        ("state.w.0.0", "state.w.1.0"),
        ("a/loss=0.1.pt", "b/loss=0.2.pt"),
        ("loss=0.1.pt", "acc=0.1.pt"),
        ("loss=0.1.json", "loss=0.2.json"),
        ("__0_0.distcp", "__1_0.distcp"),
        ("v1.2.3.pt", "v1.2.4.pt"),
    ],
)
def test_shards_are_no_twins(names):
    assert odd(*(dated(name, at) for at, name in enumerate(names))) is None


def test_files_older_than_the_save_before():
    files = [dated("extra.pt", -30, role="weights"), dated("model.pt", 0), dated("optimizer.pt", 0.1)]
    assert odd(*files, before=-20) == ("extra.pt",)
    assert odd(*files, before=-40) == ("extra.pt",)  # much older than the rest, and fewer
    assert odd(files[0], files[1], before=-20) == ("extra.pt",)
    assert odd(files[0], files[1], before=-40) is None  # one old, one new, and nothing between: a slow save?
    assert odd(dated("old.pt", -20.5), dated("new.pt", -19.9), before=-20) is None  # less than a minute apart
    assert odd(dated("old.pt", -30), dated("older.pt", -31), before=-20) is None  # all of it is old: found late


def test_files_that_people_put_there_are_left_alone():
    rest = [dated("model.pt", 0, role="weights"), dated("optimizer.pt", 0, role="optimizer")]
    for odd_one in (
        dated("config.json", -900, role="config"),
        dated("tokenizer.model", -900),
        dated("README.md", -900),
        dated("base.safetensors", -900, role="weights", names=2),
        dated("vocab.bin", -900, role="config"),
    ):
        assert odd(odd_one, *rest, before=-20) is None


def test_a_slow_save_is_one_save():
    def hundred_gigabytes(name, minutes):
        return dated(name, minutes, role="weights", size_bytes=10**11)

    assert odd(*(hundred_gigabytes(f"{number}.pt", 60 * number) for number in range(4))) is None
    assert odd(*(dated(f"{number}.pt", 60 * number) for number in range(4))) == ("0.pt",)
    late = [dated(f"rank{rank}.pt", 0, role="weights") for rank in range(8)]
    assert odd(*late, dated("pytorch_model.bin", 600, role="weights")) is None  # made from it, much later


@pytest.mark.timeout(240)
def test_a_save_of_many_files_is_judged_in_one_go():
    """A large step of Orbax has 28,000 objects, each of them weights by its role."""
    many = [dated(f"state/d/{number:032x}", number / 60_000, role="weights") for number in range(40_000)]
    assert odd(*many) is None
    assert odd(dated("state/d/first", -60, role="weights"), *many) == ("state/d/first",)
