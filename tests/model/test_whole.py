"""Saves held against others: what is missing from one, and whether a later look at a step found more or less of it."""

import pytest
from hypothesis import given, strategies as st

from lakemark.model.checkpoints.manifest import File, FileType, Manifest
from lakemark.model.checkpoints.whole import grew, kinds_of, lacking, lacks_too, told

names = st.lists(
    st.sampled_from(
        ["model.bin", "optim.bin", "ema.bin", "notes.txt", "model_rank_0.pt", "model_rank_1.pt", "model_rank_22.pt"]
    ),
    unique=True,
)


@pytest.mark.parametrize(
    ("now", "before", "short"),
    [
        (["model.bin"], [["model.bin", "optim.bin", "ema.bin"]], "ema.bin, optim.bin"),
        (
            ["model_rank_0.pt", "model_rank_1.pt"],
            [[f"model_rank_{rank}.pt" for rank in range(4)]],
            "2 of model_rank_#.pt",
        ),
        (["a-300.pt"], [["a-200.pt", "b-200.pt"]], "1 of b-#.pt"),
        (["model.bin"], [["model.bin", "samples.npz"], ["model.bin"]], ""),
        (["model.bin"], [["model.bin"], ["model.bin", "optim.bin"]], ""),
        (["loss=nan.pt", "a.txt"], [["loss=0.31.pt", "a.txt"]], ""),
        (["a.txt"], [["loss=0.31.pt", "a.txt"]], "1 of loss=#.#.pt"),
        (["model.bin"], [["model.bin", "log.txt", "config.json"]], ""),
        (["__0_0.distcp"], [["__0_0.distcp", "__1_0.distcp"]], ""),
        (["model.bin"], [], ""),
    ],
)
def test_what_every_earlier_save_has_is_missing(now, before, short):
    assert told(lacking(now, map(kinds_of, before))) == short


def test_earlier_saves_are_read_no_further_than_needed():
    def earlier():
        yield kinds_of(["model.bin"])
        raise AssertionError("one had no more: nothing is missing")

    assert lacking(["model.bin"], earlier()) == {}


@given(names, st.lists(names, min_size=1, max_size=4))
def test_it_is_what_all_of_them_have_more_of(now, before):
    mine, all_had = kinds_of(now), [kinds_of(one) for one in before]
    every = {name for had in all_had for name in had}
    one_for_another = bool(mine) and any(had.total() == 1 for had in all_had)
    expected = {name: short for name in every if (short := min(had[name] for had in all_had) - mine[name]) > 0}
    expected = {} if one_for_another else expected
    assert lacking(now, all_had) == expected


@given(names, names, names)
def test_the_next_save_says_whether_it_is_written_no_more(now, before, later):
    short = lacking(now, [kinds_of(before)])
    assert lacks_too(short, now, now)
    expected = all(kinds_of(later)[name] <= kinds_of(now)[name] for name in short)
    assert lacks_too(short, now, later) is expected


def manifest(**files):
    return Manifest(
        files=tuple(File(path=path, size_bytes=1, digest=digest * 64) for path, digest in sorted(files.items()))
    )


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"a.bin": "1"}, {"a.bin": "1", "b.bin": "2"}, True),
        ({"a.bin": "1", "notes": "2"}, {"a.bin": "1", "notes": "3"}, True),
        ({"a.bin": "1", "notes": "2"}, {"a.bin": "1"}, False),
        ({"a.bin": "1", "b.bin": "2"}, {"a.bin": "1"}, False),
        ({"a.bin": "1", "b.bin": "2"}, {"a.bin": "1", "b.bin": "3"}, False),
        ({"data": "1", "index": "2"}, {"data": "3", "index": "2"}, False),
        ({"data": "1", "index": "2"}, {"data": "1", "index": "2", "more": "3"}, True),
    ],
)
def test_it_grew_where_nothing_of_it_was_lost(before, now, expected):
    assert grew(manifest(**before), manifest(**now)) is expected


def test_a_link_in_the_place_of_a_file_is_a_loss():
    now = Manifest(files=(File(path="a.bin", type=FileType.SYMLINK, target="b"),))
    assert not grew(manifest(**{"a.bin": "1"}), now)
