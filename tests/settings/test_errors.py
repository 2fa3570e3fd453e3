"""The error tree: what is whose parent, what exits how, and what a script reads."""

import copy
import inspect
import json
import pickle

import pytest

from lakemark import errors
from lakemark.errors import DataGone, ErrorDocument, LakemarkError, quoted

TREE = {
    "NotFound": ("LakemarkError", 3),
    "NoRecordAsOf": ("NotFound", 3),
    "NoReplica": ("NotFound", 3),
    "DataGone": ("NotFound", 3),
    "Conflict": ("LakemarkError", 5),
    "Incomplete": ("LakemarkError", 4),
    "Corrupt": ("LakemarkError", 4),
    "SourceDamaged": ("Corrupt", 4),
    "TargetDamaged": ("Corrupt", 4),
    "AnswerDamaged": ("Corrupt", 4),
    "Refused": ("LakemarkError", 7),
    "NoRoom": ("Refused", 7),
    "RunClosed": ("Refused", 7),
    "NameTaken": ("Refused", 7),
    "PinReleased": ("Refused", 7),
    "InDistress": ("Refused", 7),
    "Unsteady": ("Incomplete", 4),
    "Misconfigured": ("LakemarkError", 2),
    "Usage": ("Misconfigured", 2),
    "Denied": ("LakemarkError", 8),
    "StoreUnavailable": ("LakemarkError", 6),
}
CLASSES = [LakemarkError, *(getattr(errors, name) for name in TREE)]
SHOWN = {
    **dict.fromkeys(("NoRoom", "RunClosed", "NameTaken", "PinReleased", "InDistress"), "Refused"),
    "Unsteady": "Incomplete",
}
"""Classes that scripts see as their parent."""


def test_the_tree_is_exactly_this():
    found = {
        name: (cls.__base__.__name__, cls.exit_code)
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, LakemarkError) and cls is not LakemarkError
    }
    assert found == TREE
    assert LakemarkError.exit_code == errors.EXIT_UNEXPECTED == 1
    assert (errors.EXIT_OK, errors.EXIT_INTERRUPTED) == (0, 130)


def drawn() -> dict[str, tuple[str, int]]:
    """The tree as the module's docstring draws it, parents found by indentation."""
    found: dict[str, tuple[str, int]] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        marked = next((mark for mark in ("├── ", "└── ") if mark in line), None)
        if line.strip().startswith("LakemarkError"):
            above = [(0, "LakemarkError")]
        if marked is None or not above:
            continue
        depth = line.index(marked)
        name, *rest = line.split(marked)[1].split()
        above = [(place, parent) for place, parent in above if place < depth]
        parent = above[-1][1]
        inherited = found[parent][1] if parent in found else 1
        found[name] = (parent, int(rest[0]) if rest and rest[0].isdecimal() else inherited)
        above.append((depth, name))
    return found


def test_the_docstring_draws_that_tree():
    assert drawn() == TREE


def test_all_is_sorted_and_whole():
    public = {
        name
        for name, value in vars(errors).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == errors.__name__
    }
    assert public <= set(errors.__all__)
    assert all(hasattr(errors, name) for name in errors.__all__)


@pytest.mark.parametrize("cls", CLASSES)
def test_message_advice_and_document(cls):
    error = cls("step 3 has no replica", advice="Look at `lakemark tiers`.")
    document: ErrorDocument = error.as_json()
    assert json.loads(json.dumps(document)) == {
        "error": {
            "kind": SHOWN.get(cls.__name__, cls.__name__),
            "message": "step 3 has no replica",
            "advice": "Look at `lakemark tiers`.",
            "exit_code": cls.exit_code,
        }
    }
    assert str(error) == error.message == "step 3 has no replica"


@pytest.mark.parametrize("cls", CLASSES)
def test_advice_is_not_optional(cls):
    with pytest.raises(TypeError):
        cls("something")


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_copies_keep_everything(cls, again):
    error = cls("step 3", advice="Wait.")
    error.add_note("seen twice")
    twin = again(error)
    assert type(twin) is cls
    assert twin.as_json() == error.as_json()
    assert twin.args == error.args
    assert twin.__notes__ == ["seen twice"]


def test_data_gone_names_what_is_lost():
    error = DataGone("data@c1 was collected", advice="Use --model-only.", lost=iter(["a/1", "a/2"]))
    assert error.lost == ("a/1", "a/2")
    assert error.as_json()["error"]["lost"] == ["a/1", "a/2"]
    assert copy.copy(error).lost == ("a/1", "a/2")
    assert "lost" not in DataGone("data@c1", advice="Use --model-only.").as_json()["error"]


@pytest.mark.parametrize(
    "value", ["a\nb", "\x1b[2J", "\u202eabc", "\udcff", "\x00", "x" * 10_000, b"\xff\n", {"a": "\n"}]
)
def test_quoted_is_one_harmless_line(value):
    text = quoted(value)
    assert len(text) <= 120
    assert text.isprintable()
    text.encode()


def test_quoted_leaves_plain_text_readable():
    assert quoted("llama-7b") == "'llama-7b'"
    assert quoted("abcdefgh", limit=6) == "'abcd…"
