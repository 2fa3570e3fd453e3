import pytest
from hypothesis import given, strategies as st

from lakemark.model.values.names import is_run, original, run_for


@pytest.mark.parametrize("name", ["a", "llama-7b", "a.b_c-d", "0", "a" * 63, "lock"])
def test_valid(name):
    assert is_run(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "site",
        "a.lock",
        "A",
        "a..b",
        "-a",
        "a-",
        "a b",
        "a/b",
        "ü",
        "a" * 64,
        "a\n",
        "a.",
        ".a",
        "a@b",
        "a~1",
        "\uff11",
    ],
)
def test_invalid(name):
    assert not is_run(name)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=7))
def test_any_text_maps_and_back(name):
    run = run_for(name)
    assert is_run(run)
    assert original(run) == name


def test_a_name_that_looks_mapped_is_mapped_too():
    assert run_for("x-41") != "x-41"
    assert original(run_for("x-41")) == "x-41"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=7), unique=True, min_size=2))
def test_distinct_names_stay_distinct(names):
    assert len({run_for(name) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["", "X" * 32])
def test_too_long_or_empty(name):
    with pytest.raises(ValueError, match="30 UTF-8 bytes"):
        run_for(name)


@pytest.mark.parametrize("run", ["x-ff", "x-abc", "plain"])
def test_what_was_never_mapped_stays(run):
    assert original(run) == run
