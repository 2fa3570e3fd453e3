"""Any value from the environment, and `config show`'s sources."""

from pathlib import Path

import pytest

from lakemark.errors import Misconfigured
from lakemark.settings import loads


def test_a_value_is_overridden_and_says_so(configured):
    loaded = configured(LAKEMARK_TIERS__WARM__ENDPOINT="http://127.0.0.1:9000", LAKEMARK_COPIES="2")
    assert loaded.settings.tiers["warm"].endpoint == "http://127.0.0.1:9000"
    assert loaded.settings.copies == 2
    shown = {line.key: (line.value, line.source) for line in loaded.shown()}
    assert shown["tiers.warm.endpoint"] == ("http://127.0.0.1:9000", "environment LAKEMARK_TIERS__WARM__ENDPOINT")
    assert shown["tiers.warm.url"] == ("s3://lakemark/warm", "/srv/lakemark/lakemark.yaml:4")
    assert shown["data"] == ("none", "/srv/lakemark/lakemark.yaml:3")
    assert shown["retention.grace"] == ("3d", "default")
    assert shown["tiers.hot.min_free"] == ("10%", "default")
    assert shown["drill.scratch_max"] == ("500GiB", "default")
    assert shown["residence.warm.keep_for"] == ("7d", "default")
    assert shown["watch"] == ([], "default")
    assert shown["simulated_clock"] == (False, "default")


@pytest.mark.parametrize(
    "name", ["LAKEMARK_RETENTION__MAX_DELETE", "lakemark_retention__max_delete", "Lakemark_Retention__Max_Delete"]
)
def test_letter_case_does_not_matter(configured, name):
    assert configured(**{name: "5%"}).settings.retention.max_delete * 20 == 1


def test_dashes_and_patterns_are_found(configured):
    text = "site: a\ndata: none\ntiers: {fast-1: {class: hot, kind: tree, path: hot}}\nretention: {runs: {A-b: {keep_last: 1}}}\n"
    text = text.replace("A-b", "a-b")
    settings = configured(
        text=text, LAKEMARK_TIERS__FAST_1__PATH="/x", LAKEMARK_RETENTION__RUNS__A_B__KEEP_LAST="9"
    ).settings
    assert str(settings.tiers["fast-1"].path) == "/x"
    assert settings.retention.runs["a-b"].keep_last == 9


def test_lists_by_number(configured):
    more = "watch: [{path: /a, run: b}]\n"
    settings = configured(
        more, LAKEMARK_WATCH__0__RUN="c", LAKEMARK_WATCH__1__PATH="/d", LAKEMARK_WATCH__1__RUN="e"
    ).settings
    assert [(str(watched.path), watched.run) for watched in settings.watch] == [("/a", "c"), ("/d", "e")]
    begun = configured(LAKEMARK_WATCH__0__PATH="/d", LAKEMARK_WATCH__0__RUN="e").settings
    assert begun.watch[0].run == "e"
    assert configured(LAKEMARK_TIERS__HOT__PEERS__0="http://b:1").settings.tiers["hot"].peers == ("http://b:1",)


def test_sources_in_lists(configured):
    loaded = configured("watch:\n- path: /a\n  run: b\n", LAKEMARK_WATCH__0__RUN="c")
    shown = {line.key: line.source for line in loaded.shown()}
    assert shown["watch.0.path"] == "/srv/lakemark/lakemark.yaml:6"
    assert shown["watch.0.run"] == "environment LAKEMARK_WATCH__0__RUN"
    assert shown["watch.0.seen_as"] == "default"


def test_values_follow_the_files_rules(configured, refusal):
    assert configured(LAKEMARK_NODE='"7"').settings.node == "7"
    assert "not the bare value 7" in refusal(LAKEMARK_NODE="7")
    assert refusal(LAKEMARK_NODE="no").startswith("LAKEMARK_NODE has 'no', which YAML readers understand differently")
    assert "`site` is empty" in refusal(LAKEMARK_SITE="")
    assert (
        configured("limits: {bandwidth: 1MiB}\n", LAKEMARK_LIMITS__BANDWIDTH="null").settings.limits.bandwidth is None
    )
    assert "must be a single value" in refusal(LAKEMARK_TIERS="{}")


def test_data_none_both_ways(configured):
    assert configured(LAKEMARK_DATA__ENDPOINT="http://127.0.0.1:1").settings.data.endpoint == "http://127.0.0.1:1"
    text = "site: a\ndata: {endpoint: 'http://h'}\ntiers: {hot: {class: hot, kind: tree, path: hot}}\n"
    assert configured(text=text, LAKEMARK_DATA="none").settings.data is None


def test_mistakes_name_the_variable(refusal):
    found = refusal(LAKEMARK_TIERS__WRM__ENDPOINT="http://h")
    assert found.startswith("environment LAKEMARK_TIERS__WRM__ENDPOINT: `tiers.wrm.class` is missing")
    assert refusal(LAKEMARK_LIMITS__NICE="99").startswith("environment LAKEMARK_LIMITS__NICE: `limits.nice` must be")
    found = refusal(LAKEMARK_LIMITS__NIZE="9")
    assert (
        found
        == "environment LAKEMARK_LIMITS__NIZE: `limits.nize` is not a known key of limits; the nearest one is `nice`"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("LAKEMARK_TEIRS__HOT__PATH", "names no key of the configuration; the nearest one is `tiers`"),
        ("LAKEMARK___SITE", "names no key of the configuration"),
        ("LAKEMARK_TIERS____PATH", "names no key of the configuration"),
        ("LAKEMARK_SITE__NAME", "goes below `site`, which is a single value"),
        ("LAKEMARK_WATCH__FIRST__PATH", "`watch` must be a list"),
        ("LAKEMARK_TIERS__HOT__PEERS__1", "`tiers.hot.peers` must be a list"),
    ],
)
def test_variables_that_lead_nowhere(refusal, name, message):
    assert message in refusal(**{name: "x"})


def test_gaps_in_lists_are_refused(refusal):
    found = refusal("watch: [{path: /a, run: b}]\n", LAKEMARK_WATCH__2__PATH="/x")
    assert found == "LAKEMARK_WATCH__2__PATH goes below `watch`, which is a list: number its items from 0"


def test_two_variables_for_one_key(refusal):
    assert "both set `site`" in refusal(LAKEMARK_SITE="a", lakemark_site="b")


def test_other_variables_are_left_alone(configured):
    settings = configured(
        LAKEMARK_HOME="/x",
        LAKEMARK_RUN_FILE="/x",
        LAKEMARK_CLOCK="",
        LAKEMARK_S3_ACCESS_KEY_ID="K",
        LAKEMARK_DATA__X_SECRET_ACCESS_KEY="S",
        LAKEMARK_SITE__ACCESS_KEY_ID_FILE="/x",
        LAKEMARKET__X="y",
        HOME="/home/a",
    ).settings
    assert settings == configured().settings


def test_the_nodes_name(configured, refusal):
    text = "site: a\ndata: none\ntiers: {hot: {class: hot, kind: tree, path: hot}}\n"
    loaded = configured(text=text)
    assert loaded.settings.node == "host-1"
    assert ("node", "host-1", "host name") in loaded.shown()
    assert configured(text=text, LAKEMARK_NODE="node-07").settings.node == "node-07"
    assert configured(LAKEMARK_NODE="node-07").settings.node == "node-07"


def test_a_host_name_that_is_no_nodes():
    text = "site: a\ndata: none\ntiers: {hot: {class: hot, kind: tree, path: hot}}\n"
    with pytest.raises(Misconfigured, match=r"^host name: `node` 'bad host' is not a node's name"):
        loads(text, file=Path("/x/lakemark.yaml"), environ={}, hostname="bad host")
