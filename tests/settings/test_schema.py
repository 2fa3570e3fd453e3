"""Every key, its default, and every mistake that must not pass."""

import contextlib
import copy
import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lakemark.errors import Misconfigured
from lakemark.settings import (
    AdmitSettings,
    BestSettings,
    DirectoryTier,
    HotTree,
    PolicySettings,
    S3Tier,
    Settings,
    loads,
    schema,
)
from lakemark.settings.document import Key, Value, parse
from lakemark.settings.schema import read_settings
from lakemark.settings.section import InvalidError, shown_section

REPOSITORY = Path(__file__).parents[2]
CONFIGS = REPOSITORY / "configs"
WHOLE = """\
site: laptop
node: node-a
ledger: {path: ledger.git, remote: null}
data:
  endpoint: http://127.0.0.1:8000
  repository: data
  branch: main
  require_pin: guarded
tiers:
  hot:  {class: hot,  kind: tree, path: hot, landing: auto, min_free: 10%, when_full: thin, peers: []}
  warm: {class: warm, kind: s3, url: s3://lakemark/warm, endpoint: http://127.0.0.1:8333, region: us-east-1, credentials: s3,
         domain: array}
  cold: {class: cold, kind: directory, path: cold, capacity: 8TiB, domain: hdd, removable: false}
copies: 1
residence:
  hot:  {keep_last: 3, settle: 10m}
  warm: {admit: all, keep_for: 7d, settle: 1h}
  cold: {admit: retained}
retention:
  default:   {keep_last: 5, hourly: 24, daily: 30, weekly: 12, monthly: 12, yearly: 0, every_steps: 10000,
              best: {metric: val_loss, mode: min, keep: 3}}
  abandoned: {keep_last: 1, keep_for: 14d}
  runs: {}
  zone: UTC
  min_keep: 2
  max_delete: 20%
  grace: 72h
  apply: true
objectives: {rpo: 30m, rto: 10m, idle_after: 2d}
watch: [{path: /train/out, run: llama-7b, data: data/main, seen_as: /workspace/out}]
approval: {required: true, alone_after: 15m, expires_after: 24h, prune_share: 20%, allowed_signers: null}
verify: {every: 30d, budget: 20%}
drill: {every: 7d, command: null, timeout: 30m, scratch_max: 500GiB}
flows: {task_runner: threads}
serve: {token_file: null, proxy_header: null}
limits: {cpus: 2, nice: 10, io_class: idle, bandwidth: null}
notify: {webhook: null, heartbeat: null}
restore_root: restores
sandbox: {dir: sandbox, s3: seaweedfs, lakefs: stand-in, prefect: server}
simulated_clock: false
"""
LEAST = """\
site: laptop
data: {endpoint: http://127.0.0.1:8000}
tiers:
  hot:  {class: hot,  kind: tree, path: hot}
  warm: {class: warm, kind: s3, url: s3://lakemark/warm, endpoint: http://127.0.0.1:8333, credentials: s3, domain: array}
  cold: {class: cold, kind: directory, path: cold, capacity: 8TiB, domain: hdd}
watch: [{path: /train/out, run: llama-7b, data: data/main, seen_as: /workspace/out}]
sandbox: {s3: seaweedfs, lakefs: stand-in, prefect: server}
"""


def test_the_documented_values_are_the_defaults(configured):
    assert configured(text=LEAST, LAKEMARK_NODE="node-a").settings == configured(text=WHOLE).settings


def test_the_whole_configuration_as_values(configured):
    settings = configured(text=WHOLE).settings
    home = Path("/srv/lakemark")
    assert settings.ledger.path == home / "ledger.git"
    assert settings.restore_root == home / "restores"
    assert settings.sandbox.dir == home / "sandbox"
    hot, warm, cold = (settings.tiers[name] for name in ("hot", "warm", "cold"))
    assert isinstance(hot, HotTree)
    assert (hot.path, hot.min_free, hot.peers) == (home / "hot", Fraction(1, 10), ())
    assert isinstance(warm, S3Tier)
    assert (warm.url.bucket, warm.url.prefix, str(warm.url)) == ("lakemark", "warm", "s3://lakemark/warm")
    assert warm.path_style is None
    assert isinstance(cold, DirectoryTier)
    assert (cold.capacity, cold.tier_class, cold.removable) == (8 * 2**40, "cold", False)
    assert settings.residence["hot"].settle == timedelta(minutes=10)
    assert settings.residence["warm"].keep_for == timedelta(days=7)
    assert settings.residence["cold"].admit == "retained"
    assert settings.retention.default.best == BestSettings(metric="val_loss", mode="min", keep=3)
    assert settings.retention.grace == timedelta(hours=72)
    assert settings.retention.max_delete == Fraction(1, 5)
    assert settings.drill.scratch_max == 500 * 2**30
    assert settings.watch[0].seen_as == Path("/workspace/out")


def test_settings_are_frozen(configured):
    settings = configured().settings
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.site = "other"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.retention.apply = False  # type: ignore[misc]


def test_every_key_of_a_tier(configured):
    settings = configured(
        "  far: {class: cold, kind: s3, url: s3://far-away/a/b/, endpoint: 'https://s3.example.org/', region: eu-1, "
        "credentials: Far_1, domain: elsewhere, capacity: 2PB, high_water: 90%, low_water: 80%, shared: true, "
        "storage_class: STANDARD_IA, ca_bundle: ca.pem, path_style: true, retain_until: 2030-01-01T01:00:00+01:00}\n"
        "  disk: {class: warm, kind: directory, path: /mnt/usb, min_free: 5GiB, high_water: 2TB, low_water: 50%, "
        "removable: true, shared: true}\n",
        text="site: lab\nnode: n\ndata: none\ntiers:\n  hot: {class: hot, kind: tree, path: ../x/hot, landing: copy, "
        "when_full: stop, peers: ['http://b:8080/hot']}\n",
    ).settings
    far, disk, hot = (settings.tiers[name] for name in ("far", "disk", "hot"))
    assert isinstance(far, S3Tier)
    assert far.retain_until == datetime(2030, 1, 1, tzinfo=UTC)
    assert (far.url.prefix, far.endpoint, far.ca_bundle) == (
        "a/b",
        "https://s3.example.org",
        Path("/srv/lakemark/ca.pem"),
    )
    assert (far.path_style, far.shared, far.storage_class) == (True, True, "STANDARD_IA")
    assert isinstance(disk, DirectoryTier)
    assert (disk.min_free, disk.high_water) == (5 * 2**30, 2 * 10**12)
    assert isinstance(hot, HotTree)
    assert (hot.path, hot.peers, hot.landing) == (Path("/srv/x/hot"), ("http://b:8080/hot",), "copy")


def test_data_none_is_no_data_versioning(configured):
    assert configured().settings.data is None


def test_residence_fills_what_is_not_said(configured):
    settings = configured(
        "residence: {warm: {admit: {every: 1h, newest: true, best: true}, keep_for: null}}\n"
    ).settings
    warm, hot = settings.residence["warm"], settings.residence["hot"]
    assert warm.admit == AdmitSettings(every=timedelta(hours=1), newest=True, best=True)
    assert (warm.keep_for, warm.settle) == (None, timedelta(hours=1))
    assert (hot.keep_last, hot.settle) == (3, timedelta(minutes=10))


def test_a_policy_is_whole(configured):
    retention = configured(
        "retention: {default: {keep_last: 7}, runs: {'*-smoke': {keep_for: 1d}}}\n"
    ).settings.retention
    assert (retention.default.keep_last, retention.default.daily, retention.default.best) == (7, 0, None)
    assert retention.runs["*-smoke"].keep_for == timedelta(days=1)
    assert isinstance(retention.abandoned, PolicySettings)
    assert retention.abandoned.keep_for == timedelta(days=14)


def test_remotes(configured):
    for given, meant in [
        ("/git/site.git", "/git/site.git"),
        ("../site.git", "/srv/site.git"),
        ("ssh://git@git.example.org/site.git", "ssh://git@git.example.org/site.git"),
        ("git@git.example.org:ml/site.git", "git@git.example.org:ml/site.git"),
        ("https://git.example.org/site.git", "https://git.example.org/site.git"),
        ("file:///git/site.git", "file:///git/site.git"),
    ]:
        assert configured(f"ledger: {{remote: '{given}'}}\n").settings.ledger.remote == meant


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("retenton: {}", "lakemark.yaml:5: `retenton` is not a known key; the nearest one is `retention`"),
        ("Copies: 1", "lakemark.yaml:5: `Copies` is not a known key; the nearest one is `copies`"),
        ("zzz: 1", "lakemark.yaml:5: `zzz` is not a known key; the nearest one is"),
        ("ledger: {paht: x}", "lakemark.yaml:5: `ledger.paht` is not a known key of ledger; the nearest one is `path`"),
        (
            "retention:\n  default:\n    keep_last: 3\n    keeep_for: 3d",
            "lakemark.yaml:8: `retention.default.keeep_for` is not a known key of a retention policy; the nearest one is",
        ),
        (
            "watch: [{path: /a, run: b, dta: x/y}]",
            "lakemark.yaml:5: `watch.0.dta` is not a known key of watch; the nearest one is `data`",
        ),
    ],
)
def test_unknown_keys_name_the_file_the_key_and_the_nearest(refusal, more, message):
    assert refusal(more).startswith(message)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("retention:", "`retention` is empty; leave the key out to have its defaults"),
        ("retention: {default: }", "`retention.default` is empty"),
        ("retention: {default: {}}", "`retention.default` keeps nothing"),
        ("retention: {default: {daily: 0}}", "`retention.default` keeps nothing"),
        ("retention: {runs: {a: {}}}", "`retention.runs.a` keeps nothing"),
        ("retention: {runs: null}", "`retention.runs` must be a mapping"),
        ("retention: {runs: {a b: {keep_last: 1}}}", "`retention.runs.a b` 'a b' is not a run's name or a pattern"),
        ("retention: {default: {keep_last: 0}}", "`retention.default.keep_last` must be from 1"),
        ("retention: {default: {keep_last: -1}}", "`retention.default.keep_last` must be from 1"),
        ("retention: {default: {keep_last: '7'}}", "`retention.default.keep_last` must be a whole number, not '7'"),
        ("retention: {default: {keep_last: 7.0}}", "`retention.default.keep_last` must be a whole number, not 7.0"),
        ("retention: {default: {keep_last: true}}", "`retention.default.keep_last` must be a whole number, not True"),
        ("retention: {default: {daily: -3}}", "`retention.default.daily` must be from 0"),
        ("retention: {default: {best: {metric: loss, keep: 0}}}", "`retention.default.best.keep` must be from 1"),
        ("retention: {default: {best: {keep: 1}}}", "`retention.default.best.metric` is missing"),
        ("retention: {default: {best: {metric: loss, mode: mean}}}", "must be min or max, not 'mean'"),
        ("retention: {default: {keep_for: 3}}", "must be text such as 90m, 2h or 3d, not the bare value 3"),
        ("retention: {grace: 72}", "`retention.grace` must be text such as 90m, 2h or 3d, not the bare value 72"),
        ("retention: {grace: 0s}", "`retention.grace` '0s' is no time at all"),
        ("retention: {max_delete: 20}", "`retention.max_delete` must be text such as 20%, not the bare value 20"),
        ("retention: {max_delete: 101%}", "'101%' is not a share"),
        ("retention: {min_keep: 0}", "`retention.min_keep` must be from 1"),
        ("retention: {zone: Mars/Olympus}", "'Mars/Olympus' is not a time zone"),
        ("retention: {zone: ../etc/passwd}", "is not a time zone"),
        ("retention: {apply: 'false'}", "`retention.apply` must be true or false, not 'false'"),
        ("retention: []", "`retention` must be a mapping such as {default: …}, not []"),
    ],
)
def test_retention_never_means_delete_all_by_mistake(refusal, more, message):
    assert message in refusal(more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("copies: 0", "`copies` must be from 1 to 16, not 0"),
        ("copies: 3", "`copies` asks for 3 failure domains, but the tiers have 2"),
        ("residence: {wram: {}}", "`residence.wram` is not a tier; the nearest one is `warm`"),
        ("residence: {hot: {admit: retained}}", "`residence.hot.admit` must be all for class hot"),
        ("residence: {warm: {admit: some}}", "`residence.warm.admit` must be all, retained or"),
        ("residence: {warm: {admit: {}}}", "`residence.warm.admit` admits nothing"),
        ("residence: {warm: {admit: {newst: true}}}", "`residence.warm.admit.newst` is not a known key of admit"),
        ("residence: {warm: null}", "`residence.warm` is empty"),
        ("residence: null", "`residence` must be a mapping"),
        ("objectives: {rpo: 0m}", "`objectives.rpo` '0m' is no time at all"),
        ("approval: {required: 1}", "`approval.required` must be true or false, not 1"),
        ("approval: {alone_after: 24h}", "`approval.alone_after` must be shorter than `expires_after`"),
        ("watch: {path: /a, run: b}", "`watch` must be a list"),
        ("watch: [{path: /a}]", "`watch.0.run` is missing"),
        ("watch: [{path: /a, run: Llama}]", "`watch.0.run` 'Llama' is not a run's name"),
        ("watch: [{path: /a, run: site}]", "`watch.0.run` 'site' is not a run's name"),
        ("watch: [{path: '/a/*', run: b}]", "`watch.0.run` is one name for several directories"),
        ("watch: [{path: /a, run: '{name}'}]", "`watch.0.run` has `{name}`, and `path` has no `*`"),
        ("watch: [{path: $HOME/a, run: b}]", "`watch.0.path` '$HOME/a' starts with a variable"),
        ("watch: [{path: '/a/*/*', run: '{name}'}]", "`watch.0.path` has more than one `*`"),
        ("watch: [{path: /a, run: b, data: main}]", "`watch.0.data` 'main' is not REPOSITORY/BRANCH"),
        ("watch: [{path: /a, run: b, seen_as: out}]", "`watch.0.seen_as` 'out' is not an absolute path"),
        ("drill: {command: ' '}", "is not a command line"),
        ("flows: {task_runner: ray}", "`flows.task_runner` must be threads or dask, not 'ray'"),
        ("serve: {proxy_header: 'X User'}", "is not an HTTP header's name"),
        ("limits: {nice: 20}", "`limits.nice` must be from 0 to 19, not 20"),
        ("limits: {cpus: 0}", "`limits.cpus` must be from 1"),
        ("limits: {io_class: realtime}", "must be idle or best-effort or none"),
        ("limits: {bandwidth: 5}", "not the bare value 5"),
        ("sandbox: {s3: minio}", "`sandbox.s3` must be seaweedfs, not 'minio'"),
        ("restore_root: ''", "`restore_root` '' is not a path"),
        ("restore_root: ~/x", "only shells understand"),
        ('restore_root: "a\\nb"', "is not a path"),
        ("ledger: {remote: 'https://u:p@git.example.org/x'}", "has a password in the URL"),
        ("ledger: {remote: 'ssh://git:p@git.example.org/x'}", "has a password in the URL"),
        ("ledger: {remote: 'ext::sh -c id'}", "is not a Git URL or path"),
        ("ledger: {remote: '--upload-pack=id'}", "is not a Git URL or path"),
    ],
)
def test_mistakes_elsewhere(refusal, more, message):
    assert message in refusal(more)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("site: a\ntiers: {hot: {class: hot, kind: tree, path: hot}}", "`data` is missing"),
        ("data: none\ntiers: {hot: {class: hot, kind: tree, path: hot}}", "`site` is missing"),
        ("site: a\ndata: none", "`tiers` is missing"),
        ("site: a\ndata: none\ntiers:", "`tiers` must be a mapping of names to values, not None"),
        ("site: a\ndata: none\ntiers: {}", "`tiers` has no tier of class hot"),
        (
            "site: a\ndata: none\ntiers: {c: {class: cold, kind: directory, path: c}}",
            "`tiers` has no tier of class hot",
        ),
        ("site: A\ndata: none\ntiers: {hot: {class: hot, kind: tree, path: hot}}", "`site` 'A' is not a name of"),
        ("site: 7\ndata: none\ntiers: {hot: {class: hot, kind: tree, path: hot}}", "not the bare value 7"),
        ("site: a\ndata:\ntiers: {hot: {class: hot, kind: tree, path: hot}}", "write `data: none` where"),
        (
            "site: a\ndata: 'off'\ntiers: {hot: {class: hot, kind: tree, path: hot}}",
            "`data` must be a mapping such as {endpoint: …}",
        ),
        ("site: a\ndata: {}\ntiers: {hot: {class: hot, kind: tree, path: hot}}", "`data.endpoint` is missing"),
        (
            "site: a\ndata: {endpoint: 'http://h', repository: a/b}\ntiers: {hot: {class: hot, kind: tree, path: hot}}",
            "is not a lakeFS repository",
        ),
        (
            "site: a\ndata: {endpoint: 'http://h', repository: ..}\ntiers: {hot: {class: hot, kind: tree, path: hot}}",
            "is not a lakeFS repository",
        ),
        (
            "site: a\ndata: {endpoint: 'http://h', branch: a b}\ntiers: {hot: {class: hot, kind: tree, path: hot}}",
            "is not a lakeFS branch",
        ),
    ],
)
def test_mistakes_in_the_main_parts(refusal, text, message):
    assert message in refusal(text=text)


@pytest.mark.parametrize(
    ("tier", "message"),
    [
        ("7", "`tiers.t` must be a mapping such as {class: hot"),
        ("null", "`tiers.t` must be a mapping"),
        ("{kind: s3}", "`tiers.t.class` is missing; it is hot or warm or cold"),
        ("{class: lukewarm, kind: s3}", "`tiers.t.class` must be hot or warm or cold, not 'lukewarm'"),
        ("{class: warm}", "`tiers.t.kind` is missing; it is s3 or directory"),
        ("{class: hot, kind: s3, url: s3://bucket}", "`tiers.t.kind` must be tree for class hot, not 's3'"),
        ("{class: cold, kind: tree, path: x}", "must be s3 or directory for class cold, not 'tree'"),
        ("{class: warm, kind: s3}", "`tiers.t.url` is missing"),
        (
            "{class: warm, kind: s3, url: s3://bucket, path: x}",
            "`tiers.t.path` is not a known key of an s3 tier; the nearest one is `path_style`",
        ),
        ("{class: cold, kind: directory, path: x, credentials: s3}", "is not a known key of a directory tier"),
        ("{class: hot, kind: tree, path: x, shared: true}", "is not a known key of a hot tree"),
        ("{class: warm, kind: s3, url: s3://B}", "is not s3://bucket/prefix"),
        ("{class: warm, kind: s3, url: s3://buc..ket}", "is not s3://bucket/prefix"),
        ("{class: warm, kind: s3, url: s3://bucket/a/../b}", "is not s3://bucket/prefix"),
        ("{class: warm, kind: s3, url: s3://bucket//a}", "is not s3://bucket/prefix"),
        ("{class: warm, kind: s3, url: 'https://bucket/a'}", "is not s3://bucket/prefix"),
        ("{class: warm, kind: s3, url: s3://bucket, credentials: a__b}", "is not a name for variables"),
        ("{class: warm, kind: s3, url: s3://bucket, retain_until: 2030-01-01}", "ISO 8601 instant with an offset"),
        ("{class: warm, kind: s3, url: s3://bucket, path_style: 'on'}", "must be true or false"),
        ("{class: cold, kind: directory, path: x, capacity: 8}", "must be text such as 200GiB, not the bare value 8"),
        (
            "{class: cold, kind: directory, path: x, low_water: 10%}",
            "`tiers.t.low_water` is given without `high_water`",
        ),
        ("{class: cold, kind: directory, path: x, low_water: 90%, high_water: 80%}", "must be below `high_water`"),
        ("{class: hot, kind: tree, path: x, min_free: 10}", "must be text such as 10% or 50GiB"),
        ("{class: hot, kind: tree, path: x, peers: http://b}", "must be a list"),
        ("{class: hot, kind: tree, path: x, peers: [b]}", "`tiers.t.peers.0` 'b' is not an http:// or https:// URL"),
        ("{class: hot, kind: tree, path: x, domain: A B}", "`tiers.t.domain` 'A B' is not a name"),
    ],
)
def test_mistakes_in_a_tier(refusal, tier, message):
    text = "site: a\ndata: none\ntiers:\n  hot: {class: hot, kind: tree, path: hot}\n  t: " + tier + "\n"
    found = refusal(text=text)
    assert message in found
    assert "lakemark.yaml:5: " in found


def test_a_tiers_name_is_checked(refusal):
    text = "site: a\ndata: none\ntiers: {Hot Tier: {class: hot, kind: tree, path: hot}}\n"
    assert "`tiers.Hot Tier` 'Hot Tier' is not a name of lower-case letters" in refusal(text=text)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[::ffff:169.254.169.254]/",
        "http://2852039166/",
        "http://0xA9FEA9FE:80/",
        "http://0251.0376.0251.0376/",
        "file:///etc/passwd",
        "gopher://h/",
        "s3://h",
        "h:80",
        "http://",
        "http:///x",
        "http://user:pw@h",
        "http://user@h",
        "http://@h",
        "http://h:99999",
        "http://[::1",
        "http://h /",
        "http://h\\x00",
        "http://h/?a=b",
        "http://h/#x",
    ],
)
def test_endpoints_that_are_refused(refusal, url):
    more = f'  w: {{class: warm, kind: s3, url: s3://bucket, endpoint: "{url}"}}\n'
    found = refusal(more, text="site: a\ndata: none\ntiers:\n  hot: {class: hot, kind: tree, path: hot}\n")
    assert "`tiers.w.endpoint`" in found
    assert "pw" not in found


def test_an_address_that_may_hold_a_secret_is_not_shown(refusal, configured):
    assert "T0KEN" not in refusal("notify: {webhook: 'ftp://hooks.example.org/T0KEN'}")
    loaded = configured("notify: {webhook: 'https://hooks.example.org/T0KEN'}\n")
    assert loaded.settings.notify.webhook == "https://hooks.example.org/T0KEN"
    assert "T0KEN" not in repr(loaded.settings)
    shown = {line.key: line.value for line in loaded.shown()}
    assert shown["notify.webhook"] == "https://hooks.example.org/…"


def test_all_mistakes_at_once_but_not_endlessly(refusal):
    found = refusal("copies: 0\nlimits: {nice: 20, cpus: 0}\n")
    assert found.count("lakemark.yaml:") == 3
    more = "".join(f"x{number}: 1\n" for number in range(9))
    found = refusal(more)
    assert found.count("lakemark.yaml:") == 5
    assert found.endswith("; and 4 more")


@pytest.mark.parametrize("path", [*sorted(CONFIGS.glob("retention-*.yaml"))], ids=lambda path: path.name)
def test_the_retention_examples_hold(configured, path):
    text = path.read_text()
    assert list(parse(text, name=path.name).value) == ["retention"]
    assert configured(text).settings.retention != configured().settings.retention


def test_there_are_retention_examples():
    assert len(list(CONFIGS.glob("retention-*.yaml"))) >= 3


def test_the_cluster_example_holds():
    path = CONFIGS / "cluster.yaml"
    settings = loads(path.read_text(), file=path, environ={}, hostname="node-07").settings
    assert settings.node == "node-07"
    assert settings.copies == 2
    assert {tier.domain for tier in settings.tiers.values()} == {None, "array", "hdd"}
    assert settings.ledger.remote is None


def described(text: str) -> bool:
    try:
        jsonschema.Draft202012Validator(schema()).validate(parse(text, name="f").value)
    except jsonschema.ValidationError:
        return False
    return True


STRANGE = (
    None,
    True,
    7,
    -1,
    1.5,
    "",
    "no",
    "x" * 5_000,
    "\x00",
    "~",
    "a/../..",
    "%s",
    [],
    [None],
    {},
    {"": {}},
    {"x": [{}]},
)


def places(value: Value, key: Key = ()) -> Iterator[Key]:
    if key:
        yield key
    if isinstance(value, dict | list):
        for step, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*key, step))


def test_nothing_strange_anywhere_is_a_crash():
    whole = parse(WHOLE, name="f").value
    assert len(list(places(whole))) > 100
    for key in places(whole):
        for strange in STRANGE:
            changed: Any = copy.deepcopy(whole)
            inner = changed
            for step in key[:-1]:
                inner = inner[step]
            inner[key[-1]] = strange
            with contextlib.suppress(InvalidError):
                read_settings(changed, Path("/srv"))


def test_what_is_shown_reads_back_as_the_same():
    for text in (WHOLE, LEAST + "node: n\n", (CONFIGS / "cluster.yaml").read_text() + "node: n\n"):
        settings = read_settings(parse(text, name="f").value, Path("/srv"))
        assert read_settings(shown_section(settings), Path("/elsewhere")) == settings


def test_the_schema_describes_the_examples():
    document = schema()
    jsonschema.Draft202012Validator.check_schema(document)
    json.dumps(document)
    for text in (WHOLE, LEAST, (CONFIGS / "cluster.yaml").read_text(), (CONFIGS / "laptop.yaml").read_text()):
        assert described(text)
    assert document["required"] == ["site", "data", "tiers"]
    assert set(document["properties"]) == {field.name for field in dataclasses.fields(Settings)}
    assert document["properties"]["approval"]["properties"]["alone_after"]["default"] == "15m"


@pytest.mark.parametrize(
    "more", ["retenton: {}\n", "copies: 0\n", "copies: two\n", "flows: {task_runner: ray}\n", "watch: [{path: /a}]\n"]
)
def test_the_schema_refuses_what_the_loader_refuses(configured, more):
    base = "site: a\ndata: none\ntiers: {hot: {class: hot, kind: tree, path: hot}}\n"
    assert described(base)
    assert not described(base + more)
    with pytest.raises(Misconfigured):
        configured(text=base + more)
