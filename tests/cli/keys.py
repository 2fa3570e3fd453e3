"""Keys of the JSON documents, as docs and other programs count on them."""

RECORD = [
    "record", "run", "timeline", "step", "saved_at", "recorded_at", "size_bytes", "files", "framework",
    "roles", "resumable", "gaps", "data", "code", "metrics", "parent", "replicas", "safe_at", "supersedes",
    "held", "quarantined", "pruned", "kept_by", "expires_at",
]  # fmt: skip
DATA = [
    "kind", "repository", "branch", "commit", "evidence", "from_step", "to_step",
]  # fmt: skip
REPLICA = [
    "tier", "node", "verified_at", "linked",
]  # fmt: skip
ENTRY = [
    "sequence", "timeline", "kind", "recorded_at", "actor", "reason", "record",
]  # fmt: skip
PLAN = [
    "plan", "run", "at", "target", "data", "source_tier", "size_bytes", "estimated_seconds", "gives_up",
    "affected", "data_changes", "notes",
]  # fmt: skip
TIER = [
    "name", "class", "kind", "id", "state", "domain", "used_bytes", "capacity_bytes", "records",
    "durability",
]  # fmt: skip


def has(document, keys):
    """Whether every key is there."""
    missing = [key for key in keys if key not in document]
    assert missing == [], f"lacks {missing}"
