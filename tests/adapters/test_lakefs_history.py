from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from lakemark.adapters.lakefs.history import LONGEST_BEYOND, LONGEST_WALK, altered, derived, head_at
from lakemark.ports.data import DataCommit

START = datetime(2026, 11, 26, 12, tzinfo=UTC)


def chain(*seconds):
    """Commits, oldest first, created so many seconds after START, each the only parent of the next."""
    commits, parents = [], ()
    for number, second in enumerate(seconds):
        commit = DataCommit(
            id="",
            parents=parents,
            committer="admin",
            message=f"commit {number}",
            created_at=START + timedelta(seconds=second),
            meta_range=f"{number:064x}",
        )
        commits.append(replace(commit, id=derived(commit)))
        parents = (commits[-1].id,)
    return commits


def at(commits, second):
    return head_at(reversed(commits), START + timedelta(seconds=second))


def test_the_newest_at_or_before():
    a, b, c = commits = chain(0, 10, 20)
    assert [at(commits, second).commit for second in (0, 9, 10, 19.9, 20, 99)] == [a.id, a.id, b.id, b.id, c.id, c.id]
    before = at(commits, -1)
    assert before.commit is None
    assert "all of them are later" in before.precision


def test_it_never_claims_more_than_an_estimate():
    for second in (-1, 0, 50):
        assert at(chain(0, 10), second).precision.startswith("estimated: ")


def test_a_back_dated_commit_counts_from_its_ancestors_on():
    a, _, back_dated, d = commits = chain(0, 100, 5, 110)
    assert at(commits, 50).commit == a.id
    assert at(commits, 105).commit == back_dated.id
    assert at(commits, 110).commit == d.id
    assert "out of order" in at(commits, 105).precision
    assert "out of order" not in at(chain(0, 10), 5).precision


def test_a_forward_dated_commit_hides_its_descendants_until_then():
    a, forward_dated, c = commits = chain(0, 10_000, 20)
    assert at(commits, 30).commit == a.id
    assert at(commits, 10_000).commit == c.id
    assert forward_dated.id not in {at(commits, second).commit for second in (30, 9_999)}


def test_several_in_one_second_are_named():
    _, b, c = commits = chain(0, 10, 10)
    found = at(commits, 10.5)
    assert found.commit == c.id
    assert f"{b.id[:12]} in the same second" in found.precision
    assert "same second" not in at(commits, 11).precision


def test_the_answer_is_the_newest_whose_ancestry_is_not_later():
    @given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(-1, 31))
    def check(seconds, second):
        commits = chain(*seconds)
        fitting = [n for n in range(len(commits)) if max(seconds[: n + 1]) <= second]
        assert at(commits, second).commit == (commits[fitting[-1]].id if fitting else None)

    check()


def test_the_walk_is_bounded_and_says_so():
    walked = []

    def endless(start):
        for number in range(start, -(10**9), -1):
            walked.append(number)
            at = START + timedelta(seconds=number)
            yield DataCommit(
                id=f"{number % 2**64:064x}", parents=(), committer="a", message="", created_at=at, meta_range=""
            )

    found = head_at(endless(5000), START + timedelta(seconds=4000))
    assert found.commit == f"{4000:064x}"
    assert len(walked) <= 1000 + LONGEST_BEYOND + 2
    assert f"only the newest {len(walked) - 1} were looked at" in found.precision
    walked.clear()
    long_ago = head_at(endless(10**8), START)
    assert (long_ago.commit, len(walked)) == (None, LONGEST_WALK + 1)
    assert "only the newest" in long_ago.precision


def test_altered_commits_are_found():
    commits = chain(0, 10, 20)
    assert altered(commits) == ()
    commits[1] = replace(commits[1], message="nothing to see here")
    assert altered(commits) == (commits[1].id,)
