"""What `lakemark init` writes: one valid configuration per profile, in block style, one setting a line, said what it does.

For whoever edits it at night: at most 100 columns, a comment beside what does not speak for itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from string import Template
from types import MappingProxyType
from typing import Final

from lakemark.errors import Misconfigured, Usage, quoted
from lakemark.settings.document import parse_scalar

_COMMENTS_AT: Final = 32
_HEAD: Final = """\
# $about
# Relative paths count from this file. Sizes 200GiB, durations 10m 2h 3d, shares 20%.
# What is left out has its default: `lakemark config show` gives every value with its source,
# `lakemark config schema` all that may stand here. Secrets never stand here: see
# LAKEMARK_NAME_ACCESS_KEY_ID, LAKEFS_ACCESS_KEY_ID and their ..._FILE forms.

site: $site
node: $node                     # LAKEMARK_NODE overrides it

# The history: a bare Git repository. `remote`: the URL all nodes share, null: this one alone.
ledger:
  path: ledger.git
  remote: $remote
"""
_DATA: Final = """
# lakeFS. `data: none` where there is no data versioning.
data:
  endpoint: $lakefs
  repository: data              # what `run open` takes when it is not told
  branch: main
  require_pin: guarded          # guarded | plain | none: the weakest pin this site accepts
"""
_NO_DATA: Final = """
# No data versioning: records are kept and restorable, but a rollback brings back no data.
data: none
"""
_HOT: Final = """
tiers:
  # Where saves land first, and where a restart reads first.
  hot:
    class: hot
    kind: tree
    path: hot
    landing: auto               # auto | reflink | link | copy
    min_free: $min_free         # of the file system; below it nothing new lands
    when_full: thin             # thin: drop what retention would not keep, loudly | stop
"""
_WARM: Final = """\
  # Where every node reads. The prefix must be lakemark's alone.
  warm:
    class: warm
    kind: s3
    url: s3://lakemark/warm
    endpoint: $s3
    region: us-east-1
    credentials: s3             # LAKEMARK_S3_ACCESS_KEY_ID, LAKEMARK_S3_SECRET_ACCESS_KEY
"""
_COLD: Final = """\
  # History, for "three days ago" and for auditors.
  cold:
    class: cold
    kind: directory
    path: $cold
"""
_COLD_PLACE: Final = "    path: $cold\n"
_FOR_THE_GROUP: Final = "    access: group               # whoever may enter may read it: the folder's group\n"
_COPIES: Final = """
# Verified replicas, each in a failure domain of its own, before a record counts as safe.
copies: $copies

# When a replica comes to a tier, and when it may be released from it.
residence:
  hot:
    keep_last: 3                # the newest saves stay, whatever lies below
    settle: 10m                 # how long the slower replica must have been proven
"""
_WARM_STAY: Final = """\
  warm:
    admit: all                  # all | retained | {every: 1h, newest: true, best: true}
    keep_for: 7d
    settle: 1h
"""
_COLD_STAY: Final = """\
  cold:
    admit: retained             # what retention keeps anyway
"""
_RETENTION: Final = """
# Which records stay. What a policy does not name, it does not keep.
retention:
  default:
    keep_last: 5
    hourly: 24                  # of the last 24 hours that have one, the newest of each
    daily: 30
    weekly: 12
    monthly: 12
    every_steps: 10000
    best: {metric: val_loss, mode: min, keep: 3}
  abandoned:                    # timelines left behind by a rollback
    keep_last: 1
    keep_for: 14d
  zone: UTC                     # where days and weeks begin
  min_keep: 2                   # of a run, whatever a policy says
  grace: 72h                    # between forgetting a record and deleting its bytes
"""
_COMMON: Final = """
objectives:
  rpo: 30m                      # how much work may be lost
  idle_after: 2d                # when silence means that a run is idle

# Directories to find saves in, for example:
#   - {path: /train/out, run: llama-7b, data: data/main}
watch: []

$approval
# What background work may take from a node that trains.
limits:
  cpus: 2
  nice: 10
  io_class: idle
  bandwidth: null               # bytes a second, as 200MiB; null: no limit

# Not acted on yet: who would be told when something turns red, and called while all is well.
notify:
  webhook: null
  heartbeat: null

restore_root: restores          # where rollbacks put what they restore
"""
_ASKED: Final = """\
# Who may roll back.
approval:
  required: true                # a second person approves
  alone_after: 15m              # the requester alone only after this, and marked so
  expires_after: 24h
  allowed_signers: null         # an SSH allowed_signers file
"""
_NOT_ASKED: Final = """\
approval:
  required: false               # true: a second person approves a rollback
"""

_LAPTOP: Final = (
    _HEAD
    + _DATA
    + _HOT
    + _WARM
    + _COLD
    + _COPIES
    + _WARM_STAY
    + _COLD_STAY
    + _RETENTION
    + _COMMON
    + """
# What `lakemark up` starts; leave out what you run yourself.
sandbox:
  dir: sandbox
  s3: seaweedfs
  lakefs: stand-in
  prefect: server

simulated_clock: false          # true only in demos and tests: allows LAKEMARK_CLOCK
"""
)
_SOLO: Final = (
    _HEAD
    + _NO_DATA
    + _HOT
    + _COLD
    + "    removable: true             # may be away, as a USB disk is, without being red\n"
    + _COPIES
    + _COLD_STAY
    + _RETENTION
    + _COMMON
)
_NODE: Final = (
    _HEAD
    + _NO_DATA
    + "# As on the other nodes, for example:\n"
    + "#   data: {endpoint: https://lakefs.example.org, repository: data, branch: main}\n"
    + _HOT
    + "  # Add here the tiers that all nodes share, as the other nodes have them, for example:\n"
    + "  #   warm: {class: warm, kind: s3, url: s3://lakemark/warm, endpoint: https://s3.example.org}\n"
    + _COPIES
    + _RETENTION
    + _COMMON
)
_READER: Final = (
    _HEAD
    + "\n# `ledger.path` is a mirror of the remote, fetched anew by each command; writing is refused.\n"
    + "profile: reader\n"
    + _NO_DATA
    + _HOT
    + "  # As the site's ledger names them; add `credentials: NAME` where a store asks for keys.\n"
    + "$tiers\n"
    + "# This machine restores; it deletes nothing.\n"
    + "retention:\n"
    + "  apply: false\n"
    + _COMMON
)
_CLUSTER: Final = (
    _HEAD
    + _DATA
    + _HOT
    + _WARM
    + "    domain: array               # the failure domain; `copies` counts those\n"
    + "    capacity: 200TiB\n"
    + _COLD
    + "    capacity: 800TiB\n"
    + "    domain: hdd\n"
    + "    min_free: 2%\n"
    + _COPIES
    + _WARM_STAY
    + _COLD_STAY
    + "    settle: 24h\n"
    + _RETENTION
    + _COMMON
    + """
# Not acted on yet: the read-only pages.
serve:
  token_file: null
  proxy_header: null
"""
)
# Each template uses some of these; what a profile says itself wins.
_USUAL: Final = {"min_free": "10%", "cold": "cold", "copies": "1", "approval": _ASKED}


def _described(about: str, template: str, **values: str) -> tuple[str, Mapping[str, str]]:
    return template, {"about": about, **_USUAL, **values}


_PROFILES: Final = MappingProxyType({
    "laptop": _described(
        "This machine alone, with the sandbox's services: to try lakemark out.",
        _LAPTOP,
        min_free="1%",
    ),
    "solo": _described(
        "One workstation and a disk: no S3, no lakeFS, no Prefect, nobody to ask.",
        _SOLO,
        approval=_NOT_ASKED,
    ),
    "node": _described("A node that joins a site: its ledger's remote is shared by all nodes.", _NODE),
    "reader": _described("A machine that only restores, from a site's shared tiers.", _READER),
    "cluster": _described(
        "A cluster's node: local NVMe, an S3 array, HDDs; one ledger for all nodes.",
        _CLUSTER,
        s3="https://s3.example.org",
        lakefs="https://lakefs.example.org",
        cold="/mnt/hdd/lakemark",
        copies="2",
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
    shared: bool = False,
) -> str:
    """A valid `lakemark.yaml`; `ports` are the sandbox's loopback ports by service, `s3` and `lakefs`.

    Only the profile laptop needs ports; node and reader need a `ledger_url`. tiers: of a reader, beside hot: name -> keys.
    shared: its folder is a group's, which then may read the cold tier in it. An unknown profile, or one of these missing, is
    Usage.
    """
    if profile not in _PROFILES:
        raise Usage(f"{quoted(profile)} is not a profile", advice=f"Take one of {', '.join(PROFILES)}.")
    if profile in {"node", "reader"} and ledger_url is None:
        raise Usage(f"profile {profile} joins a site, but no ledger is named", advice="Give the site's --ledger URL.")
    template, values = _PROFILES[profile]
    # Only the cold tier that lies in the site's own folder; another disk's group is that disk's business.
    if shared and values["cold"] == _USUAL["cold"]:
        template = template.replace(_COLD_PLACE, _COLD_PLACE + _FOR_THE_GROUP)
    if profile == "laptop":
        values = {**values, **{service: _loopback(ports, service) for service in ("s3", "lakefs")}}
    named = {"site": _written(site), "node": _written(node), "remote": _written(ledger_url)}
    named["tiers"] = "".join(
        f"  {name}:\n" + "".join(f"    {key}: {_written(value)}\n" for key, value in keys.items())
        for name, keys in (tiers or {}).items()
    )
    return "".join(_filled(line, {**values, **named}) for line in template.splitlines(keepends=True))


def _filled(line: str, values: Mapping[str, str]) -> str:
    """One line of a template; its comment stays in its column, whatever the value is long."""
    setting, mark, comment = line.partition("  # ")
    # Split before anything is filled in: a value may hold what looks like a comment.
    filled = Template(setting.rstrip(" ")).substitute(values)
    return f"{filled:<{_COMMENTS_AT - 1}} # {comment.lstrip()}" if mark and setting.strip() else filled + mark + comment


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
    # More than YAML needs: the text may stand inside braces, or before a comment.
    risky = any(mark in text for mark in ",[]{}#'\"\\ ") or text.endswith(":") or text[:1] in "-?:&*!|>%@`"
    return text if plain and not risky else json.dumps(text, ensure_ascii=False)
