"""What `lakemark init` writes: one valid configuration per profile, each top-level key on one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from string import Template
from types import MappingProxyType
from typing import Final

from lakemark.errors import Misconfigured, Usage, quoted
from lakemark.settings.document import parse_scalar

_HEAD: Final = """\
# $about
# Relative paths count from this file. Sizes 200GiB, durations 10m 2h 3d, shares 20%.
# `lakemark config show` gives every value with its source, `lakemark config schema` what may stand here.
# Secrets never stand here: see LAKEMARK_NAME_ACCESS_KEY_ID, LAKEFS_ACCESS_KEY_ID and their …_FILE forms.
site: $site
node: $node
ledger: {path: ledger.git, remote: $remote}
"""
_COMMON: Final = """\
# How much work may be lost, how long a restore may take, and when silence means idle.
objectives: {rpo: 30m, rto: 10m, idle_after: 2d}
# Directories to find saves in, e.g. [{path: /train/out, run: llama-7b, data: data/main}].
watch: []
$approval
drill: {command: null, scratch_max: $scratch}
limits: {cpus: 2, nice: 10, io_class: idle, bandwidth: null}
notify: {webhook: null, heartbeat: null}
restore_root: restores
"""
_RETENTION: Final = """\
# What a policy does not name, it does not keep. `apply: false` makes plans only.
retention: {default: {keep_last: 5, hourly: 24, daily: 30, weekly: 12, monthly: 12, yearly: 0, every_steps: 10000, \
best: {metric: val_loss, mode: min, keep: 3}}, abandoned: {keep_last: 1, keep_for: 14d}, runs: {}, zone: UTC, \
min_keep: 2, max_delete: 20%, grace: 72h, apply: true}
"""
_HOT: Final = "hot: {class: hot, kind: tree, path: hot, landing: auto, min_free: $min_free, when_full: thin, peers: []}"
_DATA: Final = "data: {endpoint: $lakefs, repository: data, branch: main, require_pin: guarded}\n"
_ASKED: Final = (
    "# A second person approves a rollback; the requester alone only after `alone_after`.\n"
    "approval: {required: true, alone_after: 15m, expires_after: 24h, prune_share: 20%, allowed_signers: null}"
)
_JOINING: Final = """\
# Add the tiers all nodes share to the line below, as the other nodes have them, for example:
#   warm: {class: warm, kind: s3, url: s3://lakemark/warm, endpoint: https://s3.example.org, credentials: s3}
"""

_LAPTOP: Final = (
    _HEAD
    + "# lakeFS: the stand-in that `lakemark up` starts.\n"
    + _DATA
    + "# Checkpoints land in hot, sink to warm, and from there to cold.\n"
    + "tiers: {"
    + _HOT
    + ", warm: {class: warm, kind: s3, url: s3://lakemark/warm, endpoint: $s3, region: us-east-1, credentials: s3}"
    + ", cold: {class: cold, kind: directory, path: cold}}\n"
    + "copies: 1\n"
    + "# When a replica comes to a tier, and when it may be released from it.\n"
    + "residence: {hot: {keep_last: 3, settle: 10m}, warm: {admit: all, keep_for: 7d, settle: 1h}, "
    + "cold: {admit: retained}}\n"
    + _RETENTION
    + _COMMON
    + "# What `lakemark up` starts; leave out what you run yourself.\n"
    + "sandbox: {dir: sandbox, s3: seaweedfs, lakefs: stand-in, prefect: server}\n"
    + "# true only in demos and tests: allows LAKEMARK_CLOCK.\n"
    + "simulated_clock: false\n"
)
_SOLO: Final = (
    _HEAD
    + "# No data versioning: records are kept and restorable, but a rollback brings back no data.\n"
    + "data: none\n"
    + "# `cold` may be a USB disk: give its path, and leave `removable: true`.\n"
    + "tiers: {"
    + _HOT
    + ", cold: {class: cold, kind: directory, path: cold, removable: true}}\n"
    + "copies: 1\n"
    + "residence: {hot: {keep_last: 3, settle: 10m}, cold: {admit: retained}}\n"
    + _RETENTION
    + _COMMON
)
_NODE: Final = (
    _HEAD
    + "# As on the other nodes, for example {endpoint: https://lakefs.example.org, repository: data, branch: main}.\n"
    + "data: none\n"
    + _JOINING
    + "tiers: {"
    + _HOT
    + "}\n"
    + "copies: 1\n"
    + "residence: {hot: {keep_last: 3, settle: 10m}}\n"
    + _RETENTION
    + _COMMON
)
_READER: Final = (
    _HEAD
    + "# `ledger.path` is a mirror of the remote, fetched anew by each command; whatever would write is refused.\n"
    + "profile: reader\n"
    + "data: none\n"
    + "# As the site's ledger names them; add `credentials: NAME` where a store asks for keys.\n"
    + "tiers: {"
    + _HOT
    + "$tiers}\n"
    + "# This machine restores; it deletes nothing.\n"
    + "retention: {apply: false}\n"
    + _COMMON
)
_CLUSTER: Final = (
    _HEAD
    + "# Every data commit in use is pinned against garbage collection; a pin must guard itself.\n"
    + _DATA
    + "# Each tier names its failure domain; `copies` counts those.\n"
    + "tiers: {"
    + _HOT
    + ", warm: {class: warm, kind: s3, url: s3://lakemark/warm, endpoint: $s3, region: us-east-1, credentials: s3, "
    + "domain: array, capacity: 200TiB, high_water: 85%, low_water: 75%}"
    + ", cold: {class: cold, kind: directory, path: /mnt/hdd/lakemark, capacity: 800TiB, domain: hdd, min_free: 2%}}\n"
    + "copies: 2\n"
    + "residence: {hot: {keep_last: 3, settle: 10m}, warm: {admit: all, keep_for: 7d, settle: 1h}, "
    + "cold: {admit: retained, settle: 24h}}\n"
    + _RETENTION
    + _COMMON
    + "flows: {task_runner: threads}\n"
    + "serve: {token_file: null, proxy_header: null}\n"
)


def _described(about: str, template: str, **values: str) -> tuple[Template, Mapping[str, str]]:
    return Template(template), {"about": about, "approval": _ASKED, "min_free": "10%", "scratch": "500GiB", **values}


_PROFILES: Final = MappingProxyType({
    "laptop": _described(
        "This machine alone, with the sandbox's services: to try lakemark out.",
        _LAPTOP,
        min_free="1%",
        scratch="20GiB",
    ),
    "solo": _described(
        "One workstation and a disk: no S3, no lakeFS, no Prefect, nobody to ask.",
        _SOLO,
        approval="approval: {required: false}",
    ),
    "node": _described("A node that joins a site: its ledger's remote is shared by all nodes.", _NODE),
    "reader": _described("A machine that only restores, from a site's shared tiers.", _READER),
    "cluster": _described(
        "A cluster's node: local NVMe, an S3 array, HDDs; one ledger for all nodes.",
        _CLUSTER,
        s3="https://s3.example.org",
        lakefs="https://lakefs.example.org",
    ),
})  # fmt: skip
PROFILES: Final = tuple(_PROFILES)


def render(
    profile: str,
    *,
    site: str,
    node: str,
    ports: Mapping[str, int],
    ledger_url: str | None = None,
    tiers: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """A valid `lakemark.yaml`; `ports` are the sandbox's loopback ports by service, `s3` and `lakefs`.

    Only the profile laptop needs ports; node and reader need a `ledger_url`. tiers: of a reader, beside hot: name -> keys.
    An unknown profile, or one of these missing, is Usage.
    """
    if profile not in _PROFILES:
        raise Usage(f"{quoted(profile)} is not a profile", advice=f"Take one of {', '.join(PROFILES)}.")
    if profile in {"node", "reader"} and ledger_url is None:
        raise Usage(f"profile {profile} joins a site, but no ledger is named", advice="Give the site's --ledger URL.")
    template, values = _PROFILES[profile]
    if profile == "laptop":
        values = {**values, **{service: _loopback(ports, service) for service in ("s3", "lakefs")}}
    named = {"site": _written(site), "node": _written(node), "remote": _written(ledger_url)}
    named["tiers"] = "".join(
        f", {name}: {{{', '.join(f'{key}: {_written(value)}' for key, value in keys.items())}}}"
        for name, keys in (tiers or {}).items()
    )
    return template.substitute(values, **named)


def _loopback(ports: Mapping[str, int], service: str) -> str:
    if service not in ports:
        raise Usage(f"no port is given for the sandbox's {service}", advice="Give a free loopback port for it.")
    return f"http://127.0.0.1:{ports[service]}"


def _written(text: str | None) -> str:
    """As YAML that reads back as exactly `text`, inside braces too."""
    if text is None:
        return "null"
    try:
        plain = parse_scalar(text, name="") == text and text.isprintable()
    except Misconfigured:
        plain = False
    risky = any(mark in text for mark in ",[]{}#'\"\\ ") or text.endswith(":") or text[:1] in "-?:&*!|>%@`"
    return text if plain and not risky else json.dumps(text, ensure_ascii=False)
