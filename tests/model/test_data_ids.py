import json
from pathlib import Path

import pytest

from lakemark.model.values.data_ids import commit_id, is_commit_id

REAL = [json.loads(line) for line in (Path(__file__).parent / "data" / "commits.jsonl").read_text().splitlines()]


def derived(commit):
    return commit_id(
        committer=commit["committer"],
        message=commit["message"],
        meta_range=commit["meta_range_id"],
        created_s=commit["creation_date"],
        metadata=commit["metadata"],
        parents=commit["parents"],
    )


def test_real_commits_have_the_ids_of_their_fields():
    assert len(REAL) == 23
    assert [derived(commit) for commit in REAL] == [commit["id"] for commit in REAL]


def test_the_real_commits_cover_what_a_commit_can_have():
    assert {len(commit["parents"]) for commit in REAL} >= {0, 1}
    assert any(commit["metadata"] for commit in REAL)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("committer", "mallory"),
        ("message", "x"),
        ("meta_range_id", "0" * 64),
        ("creation_date", 1),
        ("creation_date", -1),
        ("metadata", {"a": "c"}),
        ("metadata", {"ab": ""}),
        ("parents", ["0" * 64]),
        ("parents", ["0" * 32, "0" * 32]),
    ],
)
def test_every_field_counts(field, value):
    for commit in REAL:
        assert derived({**commit, field: value}) != commit["id"]


def test_metadata_has_no_order():
    one, other = {"a": "1", "ü": "2"}, {"ü": "2", "a": "1"}
    assert derived({**REAL[0], "metadata": one}) == derived({**REAL[0], "metadata": other})


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("0" * 64, True),
        ("abcdef" + "0" * 58, True),
        ("0" * 63, False),
        ("0" * 65, False),
        ("A" * 64, False),
        ("0" * 64 + "\n", False),
        ("\u0660" * 64, False),
        ("", False),
        ("main", False),
    ],
)
def test_full_ids(text, full):
    assert is_commit_id(text) is full
