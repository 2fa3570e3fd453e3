"""What the index answers and how fast, over a run of 100,000 records (`--records`).

Prints the median and worst of each question, and what a process pays that starts, asks for one page and ends.
"""

import argparse
import hashlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lakemark.index import Index, Selection
from lakemark.model.checkpoints.record import Record
from lakemark.model.entries.table import settled
from lakemark.model.ledger.entry import Attachments, Draft, Stamp
from lakemark.model.values.canonical import canonical

RUN = "bench"
START = datetime(2026, 1, 1, tzinfo=UTC)
PAGE = """
import sys
from pathlib import Path
from lakemark.index import Index, Selection
index = Index(Path(sys.argv[1]), read_only=True)
assert index.is_current({"bench": sys.argv[2]})
assert len(index.records(Selection(run="bench")).records) == 50
loaded = {"boto3", "pygit2", "pyarrow", "dvc", "prefect", "lakefs_client"} & sys.modules.keys()
assert not loaded, loaded
"""

Row = tuple[str, bytes, bytes | None]


class Made:
    """A ledger of `records` records, each committed and replicated, a minute apart; made while it is read."""

    def __init__(self, records: int) -> None:
        self.entries = 2 * records + 1

    def tips(self) -> Mapping[str, str]:
        return {RUN: self.revision(self.entries)}

    def revision(self, sequence: int) -> str:
        return hashlib.sha1(str(sequence).encode(), usedforsecurity=False).hexdigest()

    def rows(self, branch: str, *, onto: str | None) -> Iterator[Row] | None:
        assert (branch, onto) == (RUN, None)
        return (self.row(sequence) for sequence in range(1, self.entries + 1))

    def row(self, sequence: int) -> Row:
        step = sequence // 2
        at = START + timedelta(minutes=step, seconds=sequence % 2)
        stamp = Stamp(at=at, node="node-a", actor="ana@node-a", request=str(sequence))
        record = Record(
            run=RUN,
            timeline=1,
            step=step,
            content=f"{step:064x}",
            saved_at=at,
            node="node-a",
            size_bytes=10**9,
            files=20,
        )
        if sequence == 1:
            draft = Draft(kind="opened", timeline=1)
        elif sequence % 2 == 0:
            draft = Draft(kind="committed", timeline=1, contents=Attachments(record=record), body={"tier": "hot"})
        else:
            draft = Draft(kind="replicated", timeline=1, record=record.id, body={"tier": "warm", "node": None})
        entry = settled(draft, branch=RUN, sequence=sequence, stamp=stamp)
        carried = canonical(record.as_json()) if draft.contents else None
        return self.revision(sequence), canonical(entry.as_json()), carried


def ask(label: str, question: Callable[[], object], times: int = 200) -> None:
    question()
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        question()
        taken.append(1000 * (time.perf_counter() - started))
    print(f"{label:>24}: p50 {statistics.median(taken):7.2f}  max {max(taken):7.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    records = parser.parse_args().records
    made, choose = Made(records), random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "index.sqlite"
        index = Index(path)
        started = time.process_time()
        index.catch_up(made)
        taken = time.process_time() - started
        print(f"filled with {made.entries} entries in {taken:.1f} CPU s ({1e6 * taken / made.entries:.0f} µs each)")
        index.close()
        index = Index(path)

        def anywhere() -> datetime:
            return START + timedelta(minutes=choose.randrange(1, records))

        ask("as of", lambda: index.as_of(RUN, anywhere()))
        ask("as of, known then", lambda: index.as_of(RUN, anywhere(), known_then=True))
        ask("latest", lambda: index.latest(RUN))
        ask("a page of 50", lambda: index.records(Selection(run=RUN)))
        ask("a page of all runs", lambda: index.records(Selection()))
        ask("a page since", lambda: index.records(Selection(run=RUN, since=anywhere(), tier="warm")))
        ask("a tier that has none", lambda: index.records(Selection(run=RUN, tier="cold")), times=20)
        newest = index.records(Selection(run=RUN, limit=1)).records[0].record.id
        ask("a record by its id", lambda: index.find(newest[:12]))
        ask("the newest entries", lambda: index.log(RUN, limit=50))
        ask("a ledger's first state", lambda: index.known(RUN), times=3)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", PAGE, str(path), made.tips()[RUN]], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"a process that lists one page: {spent:.2f} CPU s")


if __name__ == "__main__":
    main()
