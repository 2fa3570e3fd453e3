"""References to data that lies in no lakeFS."""

import pytest

from lakemark.model.checkpoints.record import DataRef

DVC = {"kind": "dvc", "repository": "corpus", "commit": "3f" * 20, "path": "train.dvc", "md5": "0a" * 16 + ".dir"}
PRINT = {"kind": "fingerprint", "path": "/data/train", "digest": "ab" * 32, "files": 3, "size_bytes": 99}


@pytest.mark.parametrize("value", [DVC, PRINT])
def test_what_each_kind_says_is_kept(value):
    ref = DataRef.from_json(value | {"added_later": [1]})
    assert {name: getattr(ref, name) for name in value} == value
    assert DataRef.from_json(ref.as_json()) == ref
    assert value.items() <= ref.as_json().items()
    assert ref.extra == {"added_later": [1]}


def test_a_lakefs_reference_is_written_as_before():
    assert not {"path", "digest", "md5", "files", "size_bytes"} & DataRef(commit="a" * 64).as_json().keys()


@pytest.mark.parametrize("change", [{"digest": "ab"}, {"md5": "../x"}, {"files": -1}, {"size_bytes": 1.5}, {"path": 3}])
def test_out_of_bounds_is_refused(change):
    with pytest.raises(ValueError, match=" is "):
        DataRef.from_json(PRINT | change)
