from bisect import bisect_right

import pytest
from hypothesis import given, strategies as st

from lakemark.adapters.lakefs.samples import evenly, spread


class Listing:
    """Objects under sorted paths, listed as lakeFS does; counts requests."""

    def __init__(self, paths):
        self.paths = sorted(set(paths))
        self.requests = 0

    def __call__(self, prefix, after, amount):
        self.requests += 1
        start = bisect_right(self.paths, after) if after else 0
        found = []
        for path in self.paths[start:]:
            if path.startswith(prefix):
                found.append((path, len(path)))
            if len(found) > amount:
                break
        return found[:amount], len(found) > amount


def sampled(listing, amount):
    return [path for path, _ in spread(listing, amount)]


@pytest.mark.parametrize("amount", [0, -1])
def test_nothing_asked_for(amount):
    listing = Listing(["a"])
    assert spread(listing, amount) == []
    assert listing.requests == 0


def test_an_empty_commit():
    assert spread(Listing([]), 5) == []


def test_a_small_commit_takes_one_request():
    listing = Listing(f"part-{n:03}" for n in range(900))
    found = sampled(listing, 9)
    assert found == [f"part-{n:03}" for n in range(50, 900, 100)]
    assert listing.requests == 1


def test_all_of_a_commit_no_larger_than_the_sample():
    listing = Listing(f"part-{n:03}" for n in range(30))
    assert sampled(listing, 30) == listing.paths == sampled(listing, 100)


def test_every_folder_is_seen():
    folders = ["eval", "test/deep/deeper", "train", "val"]
    listing = Listing(f"{folder}/shard-{n:06}.parquet" for folder in folders for n in range(3000))
    found = sampled(listing, 8)
    assert len(found) == 8
    assert {path.rsplit("/", 1)[0] for path in found} == set(folders)


def test_a_flat_folder_of_many_is_spread():
    listing = Listing(f"data/train/shard-{n:07}.tar" for n in range(100_000))
    found = sampled(listing, 10)
    assert len(found) == 10
    numbers = [int(path[-11:-4]) for path in found]
    assert [number // 10_000 for number in numbers] == list(range(10))
    assert listing.requests <= 64 + 9 * 10


def test_a_long_beginning_in_common_costs_nothing():
    listing = Listing(f"{'very/long/' * 20}{n:05}" for n in range(5000))
    assert len(sampled(listing, 4)) == 4
    assert listing.requests < 20


def test_a_path_that_begins_others():
    listing = Listing(["x", *(f"x{n:04}" for n in range(3000))])
    assert len(sampled(listing, 5)) == 5


@given(
    st.sets(st.text(alphabet="ab/é\U0001f600", min_size=1, max_size=6), min_size=1),
    st.integers(1, 8),
    st.integers(0, 3),
)
def test_samples_are_objects_and_requests_are_bounded(beginnings, amount, many):
    listing = Listing(f"{start}{n:04}" for start in beginnings for n in range(many * 700 + 1))
    found = sampled(listing, amount)
    assert set(found) <= set(listing.paths)
    assert found == sorted(set(found))
    assert len(found) == min(amount, len(listing.paths))
    assert listing.requests <= 64 + 9 * amount


@given(st.lists(st.integers(), unique=True), st.integers(1, 20))
def test_evenly(items, amount):
    found = evenly(items, amount)
    assert len(found) == min(len(items), amount)
    places = [items.index(item) for item in found]
    assert places == sorted(set(places))
