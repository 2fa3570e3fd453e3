"""A process that appends to a ledger and prints each acknowledged sequence. Arguments: ledger, node, count or `forever`."""

import itertools
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lakemark.adapters.git.ledger import GitLedger, Remote
from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import record_for
from lakemark.model.ledger.entry import Attachments, Draft, Stamp

RUN = "written"
START = datetime(2026, 11, 26, tzinfo=UTC)
REMOTES = {"cold": Remote(name="cold", url="/cold", directory=True)}


def drafts(node: str, number: int):
    """A commit, and its replica: every kind of object, a tag and a moved pointer."""
    digest = number.to_bytes(16, "big").hex() + node.encode().hex().rjust(32, "0")
    manifest = Manifest(files=(File(path="weights", size_bytes=number, digest=digest),))
    record = record_for(manifest, run=RUN, timeline=1, step=number, saved_at=START, node=node)
    yield (
        "commit",
        Draft(
            kind="committed", timeline=1, contents=Attachments(record=record, manifest=manifest), body={"tier": "hot"}
        ),
    )
    objects = {digest: digest[:32], "dir": digest[32:]}
    body = {"tier": "cold", "node": None}
    yield (
        "replicate",
        Draft(kind="replicated", timeline=1, record=record.id, contents=Attachments(objects=objects), body=body),
    )


def main(path: str, node: str, count: str) -> None:
    ledger = GitLedger(Path(path), remotes=REMOTES)
    done = 0
    for number in itertools.count(ledger.run(RUN).sequence):
        for verb, draft in drafts(node, number):
            at = START + timedelta(seconds=number)
            stamp = Stamp(at=at, node=node, actor=f"ana@{node}", request=f"{verb}:{node}:{number}")
            entry = ledger.append(RUN, lambda _, draft=draft: draft, stamp).entry
            print(entry.sequence, entry.request, flush=True)  # noqa: T201 - the acknowledgement
            done += 1
            if count != "forever" and done >= int(count):
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
