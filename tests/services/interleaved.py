"""A whole site in memory whose processes are stopped between any two calls of a port, while others work.

Nodes share a ledger and two tiers. A process runs one command under the name its node is called by, or by a wrong one; it may
be killed, stopped for hours, be told lies by what it reads, get no answer; clocks jump; a backup of the ledger comes back.
All that happens is drawn from one seed, and only one thread runs at a time: the same seed is the same story.
"""

import io
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from unittest.mock import patch

from lakemark.errors import StoreUnavailable
from lakemark.model.tiers.residence import Residence
from lakemark.model.tiers.retention import RetentionPolicy
from lakemark.ports import Damage, Policies, Site
from lakemark.services.soundness import GuardedLedger
from tests.services.world import START
from tests.support.memory import (
    MemoryDisk,
    MemoryFiles,
    MemoryHot,
    MemoryJournal,
    MemoryLedger,
    MemoryNotes,
    MemoryPointers,
    MemoryRecogniser,
    MemoryRestorer,
    MemoryShelf,
    MemorySpool,
    MemoryStore,
)

KEPT = 3
SHARED = {"warm": "array", "cold": "hdd"}


class Killed(BaseException):
    """Nothing catches it: what runs then is what would run after kill -9, which is nothing of ours."""


class Held:
    """Stands for every lock of the adapters: while any is held nobody else has a turn, so each counts as one step."""

    def __init__(self):
        self.depth = 0

    def __enter__(self):
        self.depth += 1
        return self

    def __exit__(self, *_):
        self.depth -= 1


@dataclass(eq=False)
class Process:
    """What runs a command now, one after the other in a thread of its own.

    asked: calls of ports so far in this command. killed_at: of that number; stops: at these it is stopped, for so many steps
    of others and so much time. failing, lost: calls of a shared tier that are not made, or whose answer is lost. lying: of
    those that read bytes, which give wrong ones.
    """

    turns: object
    name: str
    ended: bool = False
    until: int = 0
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def begin(self, random, *, faults):
        self.asked, self.dead, self.said = 0, False, ""
        self.killed_at = random.randint(1, 120) if random.random() < faults / 3 else None
        self.stops = {}
        if random.random() < faults:
            for _ in range(random.randint(1, 2)):
                away = timedelta(minutes=random.choice((0, 1, 10, 70, 300, 5000)))
                self.stops[random.randint(1, 150)] = (random.choice((5, 40, 400)), away)
        self.failing, self.lost, self.lying = (
            {random.randint(1, 60) for _ in range(random.randint(1, 4))} if random.random() < faults / 2 else set()
            for _ in range(3)
        )
        self.reads = self.requests = 0

    def ask(self, call, what=""):
        """Others may come before it."""
        if self.turns.held.depth:
            return call()
        self.turns.over(self)
        self.asked += 1
        self.dead = self.dead or self.asked == self.killed_at
        if self.dead:
            raise Killed
        if self.asked in self.stops:
            steps, away = self.stops.pop(self.asked)
            self.until = self.turns.steps + steps
            self.turns.tell(f"{self.name} is stopped before {what}")
            self.turns.over(self)
            self.turns.now += away
        return call()

    def request(self, call, what):
        """Of a shared tier."""
        self.requests += 1
        number = self.requests
        if number in self.failing:
            raise StoreUnavailable("no answer", advice="Try again.")
        answer = self.ask(call, what)
        if number in self.lost:
            raise StoreUnavailable("no answer", advice="Try again.")
        return answer

    def is_lied_to(self):
        self.reads += 1
        return self.reads in self.lying


class Turns:
    """Who goes on is drawn again and again. sticky: the probability that it is who went last. now: the true time."""

    def __init__(self, random, held):
        self.random, self.held = random, held
        self.sticky = random.choice((0.5, 0.8, 0.95))
        self.steps, self.now = 0, START
        self.processes, self.errors, self.story = [], [], []
        self._ended = threading.Semaphore(0)

    def tell(self, what):
        self.story.append(f"{self.steps:6} {self.now:%d %H:%M:%S} {what}")

    def over(self, process):
        """Gives the turn away, and comes back with it."""
        self.steps += 1
        self.now += timedelta(milliseconds=self.random.choice((1, 50, 2000)))
        chosen = self._chosen(process)
        if chosen is not process:
            chosen.gate.release()
            process.gate.acquire()

    def _chosen(self, process):
        living = [one for one in self.processes if not one.ended]
        awake = [one for one in living if one.until <= self.steps] or [min(living, key=lambda one: one.until)]
        if process in awake and self.random.random() < self.sticky:
            return process
        return self.random.choice(awake)

    def run(self, number, work):
        """`work(process)` in so many processes beside each other; what one of them raised is raised."""
        self.processes = [Process(self, f"p{one}") for one in range(number)]
        threads = [threading.Thread(target=self._work, args=(one, work), daemon=True) for one in self.processes]
        for thread in threads:
            thread.start()
        self.processes[0].gate.release()
        self._ended.acquire()
        for thread in threads:
            thread.join()
        for error in self.errors:
            raise error

    def _work(self, process, work):
        process.gate.acquire()
        try:
            if not self.errors:
                work(process)
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self.errors.append(error)
        process.ended = True
        if all(one.ended for one in self.processes):
            self._ended.release()
        else:
            self._chosen(process).gate.release()


class Turned:
    """A port whose calls each wait for their turn. find: the port as it is at that moment."""

    def __init__(self, find, process, *, what):
        self._find, self._process, self._what = find, process, what

    def __getattr__(self, name):
        found = getattr(self._find(), name)
        if name == "marks":
            return Turned(lambda: self._find().marks, self._process, what=f"{self._what}.marks")
        if not callable(found):
            return found

        def call(*args, **named):
            return self._call(lambda: getattr(self._find(), name)(*args, **named), f"{self._what}.{name}")

        return call

    def _call(self, call, what):
        return self._process.ask(call, what)


class TurnedStore(Turned):
    """A tier that a process may be lied to by: once, not at the next reading."""

    def open(self, checkpoint, file, *, start=0, length=None):
        opened = self._call(
            lambda: self._find().open(checkpoint, file, start=start, length=length), f"{self._what}.open"
        )
        if not self._process.is_lied_to():
            return opened
        with opened as stream:
            data = stream.read()
        return io.BytesIO(bytes([data[0] ^ 1]) + data[1:] if data else data)

    def verify(self, checkpoint, *, progress):
        found = self._call(lambda: self._find().verify(checkpoint, progress=progress), f"{self._what}.verify")
        if self._process.is_lied_to():
            return (*found, Damage(path=checkpoint.manifest.regular[0].path, why="has other bytes"))
        return found


class TurnedShelf(TurnedStore):
    """One that others use, too, behind a network."""

    def _call(self, call, what):
        return self._process.request(call, what)


class TurnedHot(TurnedStore):
    """A node's own. Who names a tree waits while somebody holds that nobody does, as by the kernel's locks."""

    @contextmanager
    def naming(self):
        while self._find().settling:
            self._process.ask(lambda: None, "hot.naming")
        with self._process.ask(self._find().naming, "hot.naming"):
            yield

    @contextmanager
    def settled(self):
        hot = self._find()
        with self._process.ask(hot.settled, "hot.settled") as settled:
            hot.settling += settled
            try:
                yield settled
            finally:
                hot.settling -= settled


class TurnedProgress:
    """The steps inside of a put, a landing, a restore are steps, too."""

    def __init__(self, process):
        self._process = process

    def step(self, name):
        self._process.ask(lambda: None, name)

    def expect(self, what, size_bytes):
        pass

    def advance(self, size_bytes):
        self._process.ask(lambda: None, "moving bytes")


class Clocked:
    """A node's own clock."""

    def __init__(self, turns):
        self._turns, self.off = turns, timedelta()

    def __call__(self):
        return self._turns.now + self.off


class NodeHot(MemoryHot):
    """As one process of the node sees it. settling: how many of the node's processes hold that nobody names a tree."""

    tier_settling = None

    def end(self):
        """Of its process."""
        self._tier.alive.discard(self._process)

    @property
    def settling(self):
        return self.tier_settling[0]

    @settling.setter
    def settling(self, value):
        self.tier_settling[0] = value


class Node:
    """What outlives the processes of a node. called: what the node is called at present. run: what is trained here."""

    def __init__(self, yard, name, run):
        self.yard, self.called, self.run = yard, name, run
        self.clock = Clocked(yard.turns)
        self.disk = MemoryDisk(self.clock)
        self.disk.lock = yard.held
        self.hot = MemoryHot(self.disk, name="hot", node=name)
        self.settling = [0]
        self.journal, self.spool, self.notes = MemoryJournal(), MemorySpool(), MemoryNotes()
        self.files, self.restorer = MemoryFiles(self.disk, self.notes), MemoryRestorer(self.disk)
        self.pointers = MemoryPointers(self.disk)
        self.journal._lock = yard.held
        self.out = Path("/train") / run
        self._spooled = count(1)

    def process_hot(self, called):
        """Hot as a new process has it; the others live on."""
        made = NodeHot(self.disk, name="hot", node=called)
        made._tier, made.tier_settling = self.hot._tier, self.settling
        made.free_share, made.min_free_share = self.hot.free_share, self.hot.min_free_share
        made._tier.processes += 1
        made._process = made._tier.processes
        made._tier.alive.add(made._process)
        return made

    def site(self, process=None, *, called=None):
        """As a new process of this node sees it; None: one that nothing comes between, and nothing happens to."""
        called = called or self.called
        process = process or Alone()
        hot = self.process_hot(called)
        shelves = {
            name: MemoryStore(shelf, name=name, tier_class=name, domain=SHARED[name])
            for name, shelf in self.yard.shelves.items()
        }
        tiers = {"hot": TurnedHot(lambda: hot, process, what="hot")} | {
            name: TurnedShelf(lambda store=store: store, process, what=name) for name, store in shelves.items()
        }
        journal = Turned(lambda: self.journal, process, what="journal")
        ledger = Turned(lambda: self.yard.ledger, process, what="ledger")
        return Site(
            name="test",
            node=called,
            actor=f"ana@{called}",
            home=Path("/home"),
            ledger=GuardedLedger(lambda: ledger, journal, stores=tiers.values),
            hot=tiers["hot"],
            tiers=tiers,
            data=None,
            files=Turned(lambda: self.files, process, what="files"),
            restorer=Turned(lambda: self.restorer, process, what="restorer"),
            pointers=Turned(lambda: self.pointers, process, what="pointers"),
            spool=Turned(lambda: self.spool, process, what="spool"),
            notes=Turned(lambda: self.notes, process, what="notes"),
            journal=journal,
            recogniser=MemoryRecogniser(self.disk),
            now=self.clock,
            policies=self.yard.policies,
            restore_root=Path("/restores"),
            progress=TurnedProgress(process),
        )


class Alone:
    """A process to which nothing happens."""

    name = "alone"

    def ask(self, call, what=""):
        return call()

    request = ask

    def is_lied_to(self):
        return False


class Yard:
    """What outlives all processes. truth: digest -> bytes of all that was ever saved.

    acknowledged: record id -> its manifest, of what somebody was told is safe; runs: id -> its run.
    """

    def __init__(self, seed):
        self.seed, self.random = seed, Random(seed)
        self.held = Held()
        self.turns = Turns(Random(self.random.random()), self.held)
        self.ledger = self.own(MemoryLedger())
        self.shelves = {name: MemoryShelf(lock=self.held) for name in SHARED}
        self.backups = []
        self.policies = self._policies()
        self.nodes = [Node(self, "node-a", "llama"), Node(self, "node-b", "mistral")]
        self.truth, self.acknowledged, self.runs = {}, {}, {}
        self.numbers = count(1)
        self.done = Counter()

    def own(self, ledger):
        ledger._lock = self.held
        return ledger

    def _policies(self):
        return Policies(
            copies=self.random.choice((1, 1, 2)),
            residence={
                "hot": Residence(keep_last=self.random.choice((1, 2)), settle=timedelta(minutes=10)),
                "warm": Residence(keep_for=timedelta(hours=self.random.choice((2, 200))), settle=timedelta(hours=1)),
                "cold": Residence(settle=timedelta(hours=2)),
            },
            retention={"default": RetentionPolicy(keep_last=KEPT)},
            grace=timedelta(hours=self.random.choice((0, 3, 72))),
            when_full=self.random.choice(("stop", "stop", "thin")),
        )

    def whole_somewhere(self, record):
        """Past the product's code: whether any place holds every byte of it."""
        regular = self.acknowledged[record].regular
        for node in self.nodes:
            sealed = node.hot._tier.sealed.get(record)
            if sealed is not None:
                tree = node.hot._tree(sealed.checkpoint.record)
                if all(self._holds(node.disk, tree / file.path, file) for file in regular):
                    return True
        return any(
            all(shelf.objects.get(str(file.digest)) == self.truth[str(file.digest)] for file in regular)
            for shelf in self.shelves.values()
        )

    def _holds(self, disk, path, file):
        return disk.exists(path) and disk.inode(path).data == self.truth[str(file.digest)]

    def acknowledge(self, run, record):
        """Somebody was told that it is safe, at this moment."""
        if record not in self.acknowledged:
            self.acknowledged[record] = self._manifest(run, record)
            self.runs[record] = run

    def _manifest(self, run, record):
        for node in self.nodes:
            if record in node.hot._tier.sealed:
                return node.hot._tier.sealed[record].checkpoint.manifest
        for shelf in self.shelves.values():
            if record in shelf.markers:
                return shelf.markers[record].manifest
        return self.ledger.manifest(run, record)

    def let_go(self, record):
        """Whether the ledger says that it was dropped for room, as retention lets it: three newer ones are there."""
        records = self.ledger.run(self.runs[record]).records
        found = records.get(record)
        if found is None or found.pruned is None or self.policies.when_full != "thin":
            return False
        return sum(one.sequence > found.sequence for one in records.values()) >= KEPT

    def require_nothing_lost(self):
        for record in self.acknowledged:
            if not self.whole_somewhere(record):
                assert self.let_go(record), f"{record[:12]} of {self.runs[record]} is nowhere any more"


@contextmanager
def same_story(random):
    """What the program draws itself is drawn from the same seed."""
    with (
        patch("secrets.token_hex", lambda size=32: random.randbytes(size).hex()),
        patch("secrets.randbits", random.getrandbits),
    ):
        yield
