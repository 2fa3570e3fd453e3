"""A site with hot, S3 and a directory under faults drawn at random, driven by its command line in processes of their own.

What was acknowledged must come back byte for byte. The campaign never takes the last good copy itself: before it damages one
it looks, past the product's code, whether another place holds the same bytes, and whether the ledger still claims that one:
what was released lies there for its grace only. So no loss is excused.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from tests.support import s3_faults as wire
from tests.support.bad_disk import Fault, library, read_only
from tests.support.forked import begun, said, start_forking

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUN = "r1"
PATIENCE_SECONDS = 240.0
"""No command may take longer, whatever fails around it."""
LYING = (wire.flipped_body, wire.short_body, wire.long_body, wire.cut_body, wire.reset_in_body)
FAILING = (
    wire.lost_answer, wire.lost_request, wire.failed_after_success, wire.own_412, wire.status(500, "InternalError"),
    wire.status(503, "SlowDown"), wire.empty_answer, wire.truncated_listing, wire.flipped_upload, wire.flipped_at_rest,
)  # fmt: skip
CONFIGURATION = """\
site: campaign
node: node-a
data: none
ledger: {{path: ledger.git}}
tiers:
  hot: {{class: hot, kind: tree, path: hot, min_free: 0%, when_full: stop}}
  warm: {{class: warm, kind: s3, url: s3://{bucket}/{prefix}, endpoint: {endpoint}, credentials: s3, domain: array}}
  cold: {{class: cold, kind: directory, path: cold, domain: hdd}}
residence:
  hot: {{keep_last: 2, settle: 10m}}
  warm: {{admit: all, keep_for: 7d, settle: 1h}}
  cold: {{admit: all}}
approval: {{required: false}}
simulated_clock: true
"""


@dataclass
class Done:
    """code: None where the process was killed."""

    words: tuple[str, ...]
    code: int | None
    out: str
    err: str

    def document(self):
        return json.loads(self.out) if self.code == 0 else {}


@dataclass
class Save:
    """What the trainer wrote for a step, and what was said of it. record: None while it is only pending, or only found."""

    step: int
    files: dict[str, bytes]
    path: Path
    record: str | None = None
    acknowledged: bool = False

    def md5s(self):
        return {name: hashlib.md5(data, usedforsecurity=False).hexdigest() for name, data in self.files.items()}


@dataclass
class Campaign:
    """home: an empty folder. proxy: before the real S3 server. events: what was done and what it answered, a line each."""

    home: Path
    server: object
    proxy: wire.S3Faults
    seed: int
    events: list[str] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    now: datetime = START
    kinds: Counter = field(default_factory=Counter)

    def __post_init__(self):
        start_forking(library(self.home))
        self.random = Random(self.seed)
        self.prefix = f"campaign-{self.home.name}-{self.seed}"
        self.numbers = 0
        self.backup = None
        keys = self.server.credentials
        foreign = ("LAKEMARK_", "PREFECT_", "LAKEFS_", "AWS_")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)} | {
            "LAKEMARK_CONFIG": str(self.home / "lakemark.yaml"),
            "LAKEMARK_CLOCK": f"@{self.home / 'clock'}",
            "LAKEMARK_S3_ACCESS_KEY_ID": keys.access_key_id,
            "LAKEMARK_S3_SECRET_ACCESS_KEY": keys.secret_access_key,
            "LOGNAME": "ana",
        }
        text = CONFIGURATION.format(bucket=self.server.bucket, prefix=self.prefix, endpoint=self.proxy.endpoint)
        (self.home / "lakemark.yaml").write_text(text)
        self.tell_time()
        self.must("init", self.home)
        self.must("run", "open", RUN, "--watch", self.home / "out")

    @property
    def faults(self):
        return self.kinds.total()

    # Commands

    def tell_time(self):
        draft = self.home / ".clock"
        draft.write_text(self.now.isoformat().replace("+00:00", "Z"))
        draft.rename(self.home / "clock")

    def begin(self, *words, environ=None):
        """The process, and the folder of what it says."""
        return self.begin_all((words,), environ=environ)

    def begin_all(self, lines, environ=None):
        """One process for all of these command lines, as long as they end well."""
        self.numbers += 1
        folder = self.home / "said" / f"{self.numbers}"
        folder.mkdir(parents=True)
        lines = [(*map(str, words), "--json") for words in lines]
        return lines[-1], begun(lines, self.environ | (environ or {}), folder), folder

    def end(self, begun, *, patience=PATIENCE_SECONDS):
        words, process, folder = begun
        process.join(patience)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            raise AssertionError(f"{' '.join(words)} hung: {said(folder, 'err')}\n{self.story()}")
        code = None if process.exitcode < 0 else process.exitcode
        process.close()
        done = Done(words, code, said(folder, "out"), said(folder, "err"))
        shutil.rmtree(folder)
        self.events.append(f"{self.now:%d %H:%M} {' '.join(words[:-1])} -> {code} {done.err.strip()[:300]}")
        assert code != 1, f"an unexpected error: {done.err}\n{self.story()}"
        return done

    def send(self, begun, number):
        """Nothing to a process that has ended by itself."""
        _, process, _ = begun
        if process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def lakemark(self, *words, environ=None):
        return self.end(self.begin(*words, environ=environ))

    def must(self, *words):
        done = self.lakemark(*words)
        assert done.code == 0, f"{' '.join(done.words)}: {done.code} {done.out[:3000]} {done.err}\n{self.story()}"
        return done.document()

    def story(self):
        return f"seed {self.seed}, {self.faults} faults:\n" + "\n".join(self.events[-80:])

    # A trainer

    def next_step(self):
        return max((save.step for save in self.saves), default=0) + 100

    def save(self):
        step = self.next_step()
        path = self.home / "out" / f"step-{step}"
        sizes = {"weights.bin": self.random.randrange(1, 200_000), "optimizer.bin": self.random.randrange(1, 20_000)}
        files = {name: self.random.randbytes(size) for name, size in sizes.items()}
        path.mkdir(parents=True)
        for name, data in files.items():
            (path / name).write_bytes(data)
        one = Save(step, files, path)
        self.saves.append(one)
        return one

    def commit(self, one, *, environ=None):
        begun = self.begin("commit", one.path, "--run", RUN, "--step", one.step, environ=environ)
        if self.random.random() < 0.15:
            self.note("kill -9 in a commit")
            time.sleep(self.random.random() * 0.6)
            self.send(begun, signal.SIGKILL)
        self.committed(one, self.end(begun))

    def committed(self, one, done):
        if done.code == 0:
            one.acknowledged = True
            one.record = done.document()["record"]

    def note(self, kind, what=""):
        """A fault that is injected now."""
        self.kinds[kind] += 1
        what = what or kind
        self.events.append(f"{self.now:%d %H:%M} FAULT {what}")

    # What is really where, past the product's code

    def whole_in(self, one):
        """Places that hold every byte of it now."""
        return [place for place in ("hot", "warm", "cold") if getattr(self, f"_in_{place}")(one)]

    def claimed(self, one):
        """Tiers that the ledger says have a sound replica; of a record it does not know none."""
        shown = self.lakemark("show", f"id:{one.record}").document() if one.record else {}
        return {replica["tier"] for replica in shown.get("replicas", ()) if replica["sound"]}

    def _trees(self, one):
        return [
            tree
            for tree in (self.home / "hot" / RUN).glob(f"{one.step}-*")
            if all((tree / name).exists() for name in one.files)
        ]

    def _in_hot(self, one):
        return any(
            all((tree / name).read_bytes() == data for name, data in one.files.items()) for tree in self._trees(one)
        )

    def _objects(self, one, prefix):
        return {name: f"{prefix}files/md5/{md5[:2]}/{md5[2:]}" for name, md5 in one.md5s().items()}

    def _in_cold(self, one):
        return all(
            (self.home / key).is_file() and (self.home / key).read_bytes() == one.files[name]
            for name, key in self._objects(one, "cold/").items()
        )

    def _in_warm(self, one):
        return all(self._fetched(key) == one.files[name] for name, key in self._objects(one, f"{self.prefix}/").items())

    def _fetched(self, key):
        client = self.server.client()
        try:
            return client.get_object(Bucket=self.server.bucket, Key=key)["Body"].read()
        except client.exceptions.NoSuchKey:
            return None

    # Faults

    def damage(self):
        """One byte, the end, or all of one file of one replica, where another place holds it whole."""
        known = [one for one in self.saves if one.acknowledged]
        if not known:
            return
        one = self.random.choice(known)
        places = [place for place in self.whole_in(one) if place in self.claimed(one)]
        if len(places) < 2:
            return
        place, name, how = (
            self.random.choice(places),
            self.random.choice(list(one.files)),
            self.random.choice(("flip", "cut", "gone")),
        )
        data = one.files[name]
        bad = {"flip": wire.flip(data), "cut": data[: len(data) // 2], "gone": None}[how]
        self.note(f"{how} in {place}", f"{how} of {name} of step {one.step} in {place}")
        if place == "warm":
            key = self._objects(one, f"{self.prefix}/")[name]
            client = self.server.client()
            if bad is None:
                client.delete_object(Bucket=self.server.bucket, Key=key)
            else:
                client.put_object(Bucket=self.server.bucket, Key=key, Body=bad)
            return
        paths = (
            [tree / name for tree in self._trees(one)]
            if place == "hot"
            else [self.home / self._objects(one, "cold/")[name]]
        )
        for path in paths:
            # To a new inode: a disk that lies, not a trainer that writes through a link.
            path.unlink()
            if bad is not None:
                path.write_bytes(bad)

    def wire_fails(self):
        faults = self.random.choice((LYING, FAILING, FAILING + LYING))
        share = self.random.choice((0.05, 0.2, 0.6))
        self.note("requests to S3 fail", f"{share:.0%} of the requests to S3 fail")
        self.proxy.at_random(seed=self.random.random(), share=share, faults=faults)
        self.work()
        self.proxy.clear()

    def warm_is_away(self):
        self.note("S3 is away")
        self.proxy.on(wire.status(503, "SlowDown"), times=None)
        self.work()
        self.proxy.clear()

    def cold_is_away(self):
        self.note("cold is not mounted")
        (self.home / "cold").rename(self.home / "unmounted")
        if self.random.random() < 0.5:
            (self.home / "cold").mkdir()  # the mount point of a disk that is away is an empty folder
        self.work()
        if (self.home / "cold").exists():
            assert not any((self.home / "cold").iterdir()), (
                f"something was written into an unmounted tier\n{self.story()}"
            )
            (self.home / "cold").rmdir()
        (self.home / "unmounted").rename(self.home / "cold")

    def hot_is_full(self):
        self.note("hot is full")
        self.work(environ={"LAKEMARK_TIERS__HOT__MIN_FREE": "100%"})

    def another_node_name(self):
        self.note("another node name")
        self.work(environ={"LAKEMARK_NODE": "node-b"})

    def clock_jumps(self):
        away = self.random.choice((-40, -1, 1, 40)) * timedelta(days=1)
        self.note("the clock jumps", f"the clock is {away.days} d off")
        kept, self.now = self.now, self.now + away
        self.tell_time()
        self.work()
        self.now = kept
        self.tell_time()

    def killed(self):
        self.note("kill -9 in a pass")
        begun = self.begin(*self.random.choice((("sweep",), ("verify", "--repair"), ("sweep",))))
        time.sleep(self.random.random() * 1.5)
        self.send(begun, signal.SIGKILL)
        self.end(begun)

    def stopped(self):
        """One pass is stopped somewhere, others work, then it goes on with what it believed."""
        self.note("SIGSTOP in a pass")
        begun = self.begin("sweep")
        time.sleep(self.random.random() * 1.5)
        self.send(begun, signal.SIGSTOP)
        for _ in range(self.random.randint(1, 2)):
            self.wait()
            self.work()
        self.send(begun, signal.SIGCONT)
        self.end(begun)

    def disk_fails(self):
        """In one process some calls below one folder give errors, then the disk is well."""
        folder = self.home / self.random.choice(("hot", "cold", "ledger.git", "out"))
        call, error = self.random.choice(
            (
                ("read", errno.EIO),
                ("fsync", errno.EIO),
                ("write", errno.ENOSPC),
                ("write", errno.EIO),
                ("rename", errno.EIO),
            )
        )
        count, skip = self.random.choice((1, 5, -1)), self.random.choice((0, 1, 3, 10, 30))
        faults = [Fault(call, folder, error=error, skip=skip, count=count)]
        if self.random.random() < 0.2:
            faults = read_only(folder)
        what = "the disk is read-only" if len(faults) > 1 else f"{errno.errorcode[error]} of {call}"
        self.note(f"{what} in {folder.name}", f"a bad disk: {'; '.join(map(str, faults))}")
        one = self.save()
        words = self.random.choice(
            (("sweep",), ("verify", "--repair"), ("commit", str(one.path), "--run", RUN, "--step", str(one.step)))
        )
        done = self.lakemark(*words, environ={"BAD_DISK": ";".join(map(str, faults))})
        if words[0] == "commit":
            self.committed(one, done)
        elif words[0] == "sweep":
            self.found(done.document())

    def ledger_of_yesterday(self):
        """A backup of the ledger comes back; saves go on; then somebody recovers it."""
        ledger = self.home / "ledger.git"
        if self.backup is None:
            self.backup = self.home / "backup.git"
            shutil.copytree(ledger, self.backup, symlinks=True)
            return
        self.note("a backup of the ledger came back")
        shutil.rmtree(ledger)
        self.backup.rename(ledger)
        self.backup = None
        for _ in range(self.random.randint(0, 2)):
            self.work()
        self.must("ledger", "recover")

    # Work

    def work(self, environ=None):
        """What trainers, people and schedules do, whatever comes of it."""
        kind = self.random.choice(("save", "save", "found", "sweep", "sweep", "restore", "release", "verify", "rotate"))
        if kind == "save":
            self.commit(self.save(), environ=environ)
        elif kind == "found":
            self.save()
            self.sweep(environ=environ)
        elif kind == "sweep":
            self.sweep(environ=environ)
        elif kind == "verify":
            self.lakemark("verify", "--repair", environ=environ)
        elif kind == "rotate":
            self.rotate()
        else:
            known = [one for one in self.saves if one.record]
            if known and kind == "restore":
                self.restore(self.random.choice(known), environ=environ)
            elif known:
                one = self.random.choice(known)
                tier = self.random.choice(("hot", "warm"))
                self.lakemark("release", f"id:{one.record}", "--from", tier, "--reason", "a campaign", environ=environ)

    def rotate(self):
        """The trainer removes what it saved; what nobody acknowledged is its own loss, so that stays."""
        for one in self.saves[:-1]:
            if one.acknowledged and one.path.exists() and self.random.random() < 0.5:
                shutil.rmtree(one.path)

    def sweep(self, environ=None):
        self.found(self.lakemark("sweep", environ=environ).document())

    def found(self, swept):
        found = {made["step"]: made for made in swept.get("committed", ())}
        for one in self.saves:
            if one.step in found:
                one.acknowledged = True
                one.record = found[one.step]["record"]

    def restore(self, one, environ=None):
        """It may be refused or fail while something is wrong; what it hands out is right."""
        self.numbers += 1
        to = self.home / "back" / f"{self.numbers}"
        to.parent.mkdir(exist_ok=True)
        done = self.lakemark("restore", f"id:{one.record}", "--to", to, environ=environ)
        if done.code == 0:
            self.same(to, one)
        shutil.rmtree(to, ignore_errors=True)
        return done

    def same(self, to, one):
        there = {path.name: path.read_bytes() for path in to.iterdir()}
        assert there == one.files, f"wrong bytes of step {one.step} were handed out\n{self.story()}"

    def wait(self):
        self.now += timedelta(minutes=self.random.choice((1, 11, 61, 60 * 5)))
        self.tell_time()

    def go(self, faults):
        """Until that many faults have happened; then all is well again, and everything is asked for."""
        kinds = (
            self.damage, self.damage, self.wire_fails, self.wire_fails, self.warm_is_away, self.cold_is_away, self.hot_is_full,
            self.another_node_name, self.clock_jumps, self.killed, self.killed, self.stopped, self.ledger_of_yesterday,
            self.disk_fails, self.disk_fails,
        )  # fmt: skip
        while self.faults < faults:
            self.wait()
            self.work()
            if self.random.random() < 0.8:
                self.random.choice(kinds)()
        self.settle()

    def settle(self):
        """Nothing fails any more: the next passes converge, and all that was acknowledged comes back."""
        for _ in range(4):
            self.now += timedelta(hours=2)
            self.tell_time()
            self.sweep()
        self.lakemark("verify", "--repair")
        self.sweep()
        rows = self.records()
        known = [one for one in self.saves if one.acknowledged]
        for one in known:
            one.record = one.record or rows.get(one.step)
            assert one.record, f"step {one.step} was acknowledged, and no record has it\n{self.story()}"
        to = self.home / "back" / "all"
        to.mkdir(parents=True)
        done = self.end(self.begin_all([("restore", f"id:{one.record}", "--to", to / f"{one.step}") for one in known]))
        for one in known:
            why = f"step {one.step} was acknowledged and is lost: {done.err}\n{self.story()}"
            assert (to / f"{one.step}").is_dir(), why
            self.same(to / f"{one.step}", one)
        assert done.code == 0, f"{done.err}\n{self.story()}"
        whole = self.lakemark("verify", "--invariants")
        assert whole.code == 0, f"{whole.out} {whole.err}\n{self.story()}"

    def records(self):
        found, after = {}, None
        while True:
            page = self.must("ls", RUN, "--all-timelines", "--limit", "500", *(("--after", after) if after else ()))
            found |= {row["step"]: row["record"] for row in page["records"]}
            after = page["next"]
            if after is None:
                return found
