"""No tier lies in another, nor in anything else of ours."""

import pytest

from lakemark.errors import Misconfigured
from lakemark.settings import loads

HOT = "hot: {class: hot, kind: tree, path: /tiers/hot}"


def check(tmp_path, tiers: str, more: str = "") -> str:
    text = f"site: a\nnode: n\ndata: none\ntiers: {{{tiers}}}\n{more}"
    try:
        loads(text, file=tmp_path / "lakemark.yaml", environ={}, hostname="h")
    except Misconfigured as error:
        return str(error)
    return ""


def directory(path: object) -> str:
    return f"d: {{class: cold, kind: directory, path: {path}}}"


def s3(name: str, url: str, endpoint: str = "http://h:1") -> str:
    return f"{name}: {{class: warm, kind: s3, url: {url}, endpoint: '{endpoint}'}}"


@pytest.mark.parametrize("path", ["/tiers/hot", "/tiers/hot/", "/tiers/./hot/../hot", "/tiers/hot/cold", "/tiers", "/"])
def test_equal_and_nested_paths(tmp_path, path):
    found = check(tmp_path, f"{HOT}, {directory(path)}")
    assert "`tiers.hot.path` overlaps with `tiers.d.path`; each needs a place of its own" in found


@pytest.mark.parametrize("path", ["/tiers/hotter", "/tiers/cold", "/tier", "/tiers/hot2/hot"])
def test_neighbours_are_apart(tmp_path, path):
    assert check(tmp_path, f"{HOT}, {directory(path)}") == ""


def test_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    tiers = f"hot: {{class: hot, kind: tree, path: {tmp_path}/real/hot}}, {directory(f'{tmp_path}/link')}"
    assert "overlaps" in check(tmp_path, tiers)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (s3("a", "s3://lakemark/x"), s3("b", "s3://lakemark/x")),
        (s3("a", "s3://lakemark/x"), s3("b", "s3://lakemark/x/y")),
        (s3("a", "s3://lakemark"), s3("b", "s3://lakemark/y")),
        (s3("a", "s3://lakemark/x", "http://h"), s3("b", "s3://lakemark/x", "http://H:80/")),
        (s3("a", "s3://lakemark/x", "https://h"), s3("b", "s3://lakemark/x", "https://h:443")),
    ],
)
def test_equal_and_nested_prefixes(tmp_path, first, second):
    assert "`tiers.a.url` overlaps with `tiers.b.url`" in check(tmp_path, f"{HOT}, {first}, {second}")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (s3("a", "s3://lakemark/x"), s3("b", "s3://lakemark/xy")),
        (s3("a", "s3://lakemark/x"), s3("b", "s3://lakemark2/x")),
        (s3("a", "s3://lakemark/x"), s3("b", "s3://lakemark/x", "http://other:1")),
        (s3("a", "s3://lakemark/x"), "b: {class: warm, kind: s3, url: s3://lakemark/x}"),
    ],
)
def test_prefixes_that_are_apart(tmp_path, first, second):
    assert check(tmp_path, f"{HOT}, {first}, {second}") == ""


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("ledger: {path: /tiers/hot/ledger.git}", "ledger.path"),
        ("ledger: {path: /tiers}", "ledger.path"),
        ("restore_root: /tiers/hot/restores", "restore_root"),
        ("sandbox: {dir: /tiers/hot, s3: seaweedfs}", "sandbox.dir"),
        ("watch: [{path: /tiers/hot/out, run: a}]", "watch.0.path"),
        ("watch: [{path: /tiers, run: a}]", "watch.0.path"),
        ("watch: [{path: /tiers/*, run: '{name}'}]", "watch.0.path"),
        ("watch: [{path: /tiers/h*, run: '{name}'}]", "watch.0.path"),
    ],
)
def test_what_is_no_tier_stays_out_of_tiers(tmp_path, more, what):
    assert f"`tiers.hot.path` overlaps with `{what}`" in check(tmp_path, HOT, more)


@pytest.mark.parametrize(
    "more",
    [
        "watch: [{path: /train/*, run: '{name}'}]",
        "watch: [{path: /tiers/c*, run: '{name}'}]",
        "watch: [{path: '/tiers/?ot', run: a}]",
        "watch: [{path: '/tiers/[h]ot', run: a}]",
        "sandbox: {dir: /tiers/hot}",
    ],
)
def test_what_is_apart_or_unused(tmp_path, more):
    assert check(tmp_path, HOT, more) == ""


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("{path: /train/a, run: a}", "{path: /train/b, run: b}", True),
        ("{path: /train/a, run: a}", "{path: /train/a, run: b}", False),
        ("{path: /train/a, run: a}", "{path: /train/a/out, run: b}", False),
        ("{path: /train, run: a}", "{path: /train/a, run: a}", False),
        ("{path: '/train/*', run: '{name}'}", "{path: '/train/*', run: 'x-{name}'}", False),
        ("{path: '/train/*', run: '{name}'}", "{path: /train/a, run: b}", True),
    ],
)
def test_watched_directories_stay_out_of_each_other(tmp_path, first, second, fits):
    said = check(tmp_path, HOT, f"watch: [{first}, {second}]")
    assert ("`watch.0.path` overlaps with `watch.1.path`" in said) is not fits
    assert bool(said) is not fits
