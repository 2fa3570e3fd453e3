"""What is configured and not acted on: said, and true of the code."""

import re
from pathlib import Path

import pytest

from lakemark.settings import half_used, unused
from lakemark.settings.templates import PROFILES, render
from lakemark.settings.unused import UNUSED, UNUSED_OF_TIERS
from tests.settings.test_schema import WHOLE

ROOT = Path(__file__).parents[2]
CODE = ROOT / "versioning" / "lakemark"
EXAMPLES = sorted(path for name in ("laptop", "cluster") for path in (ROOT / "configs").glob(f"{name}.yaml"))


def test_defaults_are_not_named(configured):
    assert list(unused(configured())) == []
    assert list(unused(configured(text=WHOLE))) == ["retention.apply"]
    assert list(unused(configured("retention: {max_delete: 20%}\nlimits: {cpus: 2}\n"))) == []


def test_retention_is_named_where_somebody_wrote_it(configured):
    """By `doctor` alone: `status` has nothing to do about it."""
    assert list(half_used(configured())) == []
    (said,) = half_used(configured("retention: {min_keep: 3}\n"))
    assert said.startswith("retention ")
    assert "nothing is pruned by it" in said


@pytest.mark.parametrize("profile", PROFILES)
def test_what_init_writes_has_an_effect(configured, profile):
    ports, url = {"s3": 8333, "lakefs": 8000}, "https://git.example.org/ledger.git"
    text = render(profile, site="lab", node="node-a", ports=ports, ledger_url=url)
    assert list(unused(configured(text=text))) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_so_has_what_the_examples_say(configured, example):
    assert list(unused(configured(text=example.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("retention: {apply: false, max_delete: 5%, min_keep: 3}", ["retention.max_delete"]),
        ("retention: {apply: true}", ["retention.apply"]),
        ("retention: {apply: true, max_delete: 5%}", ["retention.max_delete", "retention.apply"]),
        ("objectives: {rpo: 1h, rto: 1h}", ["objectives.rto"]),
        ("approval: {prune_share: 30%, alone_after: 1m}", ["approval.prune_share"]),
        ("verify: {every: 9d, budget: 5%}", ["verify.every", "verify.budget"]),
        ("drill: {command: python load.py, scratch_max: 1GiB}", ["drill.command", "drill.scratch_max"]),
        ("drill: {every: 1d, timeout: 1h}", ["drill.every", "drill.timeout"]),
        ("flows: {task_runner: dask}", ["flows.task_runner"]),
        ("serve: {token_file: token, proxy_header: X-User}", ["serve.token_file", "serve.proxy_header"]),
        ("notify: {webhook: 'https://example.org/x'}", ["notify.webhook"]),
    ],
)
def test_what_differs_is_named(configured, more, names):
    assert list(unused(configured(more + "\n"))) == names


def test_tiers_are_named_one_by_one(configured):
    text = """\
site: lab
node: node-a
data: none
tiers:
  hot: {class: hot, kind: tree, path: hot, peers: ["http://node-b:8080"]}
  warm: {class: warm, kind: directory, path: warm, high_water: 85%, low_water: 75%}
"""
    assert list(unused(configured(text=text))) == ["tiers.hot.peers", "tiers.warm.high_water", "tiers.warm.low_water"]


def readers(pattern):
    files = [file for file in CODE.rglob("*.py") if file.parent.name != "settings"]
    return [file.name for file in files if re.search(pattern, file.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("section", ["verify", "drill", "flows", "serve", "notify"])
def test_nothing_reads_a_section_that_is_named_whole(section):
    assert readers(rf"settings\.{section}\b") == []


@pytest.mark.parametrize("key", ["rto", "prune_share", *UNUSED_OF_TIERS])
def test_nothing_reads_the_single_keys(key):
    assert readers(rf"\.{key}\b") == []


def test_nothing_asks_the_policies_for_what_is_only_passed_on():
    assert readers(r"policies\.(max_delete|read_back|drills|water|objectives\.rto)\b") == []


def test_the_keys_that_are_looked_for_are_all_of_them():
    whole = {"verify", "drill", "flows", "serve", "notify"}
    single = {key for section, keys in UNUSED.items() if section not in whole for key in keys}
    assert single == {"rto", "prune_share", "max_delete"}


@pytest.mark.parametrize(
    "key",
    [
        "rpo",
        "idle_after",
        "min_keep",
        "grace",
        "alone_after",
        "expires_after",
        "seen_as",
        "nice",
        "io_class",
        "bandwidth",
    ],
)
def test_others_are_read(key):
    assert readers(rf"\.{key}\b")
