import pytest

from lakemark.model.values import outside

HEX = "0123456789abcdef"


@pytest.mark.parametrize(
    ("parse", "right"),
    [(outside.digest, HEX * 4), (outside.md5, HEX * 2), (outside.directory_object, HEX * 2 + ".dir")],
)
def test_only_the_exact_form_passes(parse, right):
    assert parse(right) == right
    for wrong in (
        right[:-1],
        right + "0",
        right + "\n",
        "../" + right,
        right + "/../x",
        "\uff10" + right[1:],
        None,
        7,
        b"x",
    ):
        with pytest.raises(ValueError, match="is not"):
            parse(wrong)


def test_capitals_are_another_name():
    with pytest.raises(ValueError, match="lower-case"):
        outside.md5((HEX * 2).upper())


@pytest.mark.parametrize("value", [0, -1, 11, True, "5", 5.0, None])
def test_numbers_have_bounds(value):
    assert outside.bounded(1, least=1, most=10, what="parts") == 1
    with pytest.raises(ValueError, match="parts is"):
        outside.bounded(value, least=1, most=10, what="parts")


def test_an_attempt_s_id_is_no_path():
    for right in ("0123456789abcdef", "llama-3f2a-2", "a"):
        assert outside.attempt_id(right) == right
    for wrong in ("", ".", "..", "../x", "a/b", "a\n", "-a", "a-", "x" * 129, None, 7):
        with pytest.raises(ValueError, match="is not"):
            outside.attempt_id(wrong)
