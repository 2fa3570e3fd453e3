"""Processes that end in the middle: at a named step, after any call that changed something, or amid the bytes of one."""

from dataclasses import replace

from lakemark.model.runs.timeline import latest, lineage
from lakemark.ports import Quiet
from lakemark.services.ledger import checkpoint
from lakemark.services.tiers.verify import verify

PORTS = ("ledger", "hot", "data", "restorer", "pointers", "spool", "notes", "journal")
_CHANGING = (
    "append append_site claim land adopt discard clean put drop collect unshare pin unpin branch_at delete_branch "
    "keep_ledger move_branch restore restore_parts move_aside draft swap write_run_file unspool save remember "
    "bind_directory set"
)
CHANGING = frozenset(_CHANGING.split())


class Killed(BaseException):
    """Nothing catches it: what runs then is what would run after kill -9, which is nothing of ours."""


class KillAt(Quiet):
    """Ends the process at its `number`th step. `steps`: those that were reached."""

    def __init__(self, number):
        self.number = number
        self.steps = []

    def step(self, name):
        self.steps.append(name)
        if len(self.steps) == self.number:
            raise Killed(name)


class At(Quiet):
    """Does something else, once, when a step is reached: what another process does at that very moment."""

    def __init__(self, name, call):
        self.name = name
        self.call = call
        self.done = False

    def step(self, name):
        if name == self.name and not self.done:
            self.done = True
            self.call()


class Advancing(Quiet):
    """Does something whenever bytes were moved."""

    def __init__(self, call):
        self.call = call

    def advance(self, size_bytes):
        self.call()


class Fuse(Quiet):
    """Ends the process at the `left`th call that changed something, or file that was moved; None: never."""

    def __init__(self):
        self.left = None

    def burn(self, what):
        if self.left is None:
            return
        self.left -= 1
        if self.left <= 0:
            self.left = None
            raise Killed(what)

    def advance(self, size_bytes):
        self.burn("moving bytes")


class Fused:
    """A port whose calls burn a fuse. Ending before a call is ending after the one before it."""

    def __init__(self, port, fuse):
        self._port = port
        self._fuse = fuse

    def __getattr__(self, name):
        found = getattr(self._port, name)
        if name == "marks":
            return Fused(found, self._fuse)
        if name not in CHANGING:
            return found

        def call(*args, **named):
            answer = found(*args, **named)
            self._fuse.burn(name)
            return answer

        return call


def fused(site, fuse):
    """The site with every port under one fuse."""
    tiers = {name: Fused(store, fuse) for name, store in site.tiers.items()}
    ports = {name: Fused(getattr(site, name), fuse) for name in PORTS}
    ports["hot"] = tiers[site.hot.name]
    return replace(site, tiers=tiers, progress=fuse, **ports)


def invariants(world, acknowledged, *, swept=True):
    """What always holds, and (swept) what does once the next sweep has run; also of what is out of reach just now.

    acknowledged: ids of records that somebody was told are safe.
    """
    away = [part for part in (world.data, *world.shelves.values()) if not part.reachable]
    for part in away:
        part.reachable = True
    _invariants(world, acknowledged, swept=swept)
    for part in away:
        part.reachable = False


def _invariants(world, acknowledged, *, swept):
    for run in world.ledger.runs():
        state = world.state(run)
        lost = acknowledged & {identity for identity in acknowledged if world_of(world, identity) is None}
        assert not lost, f"acknowledged and not in the ledger: {lost}"
        records = [found for found in state.records.values() if found.pruned is None]
        for found in records:
            for place, replica in found.replicas.items():
                if replica.sound:
                    check_replica(world, found, place)
            assert found.replicas, f"{found.record.step} has no replica at all"
        steps = [found.record.step for found in lineage(state)]
        assert steps == sorted(steps, reverse=True), f"a lineage that goes up and down: {steps}"
        newest = latest(state)
        assert newest is None or newest.record.step == max(steps)
    if swept:
        check_hot(world)
        check_pins(world)


def world_of(world, identity):
    """The run that has the record."""
    return next((run for run in world.ledger.runs() if identity in world.state(run).records), None)


def check_replica(world, found, place):
    """A recorded replica is a verified replica: every byte, now."""
    store = world.site().tiers[place.tier]
    held = checkpoint(world.site(), found, tier=None if place.node else place.tier)
    damages = store.verify(held, progress=Quiet())
    overwritten = any(damage.suspect for damage in damages)
    assert not damages or overwritten, f"{found.record.step} in {place.tier}: {damages[0]}"


def check_hot(world):
    """What hot shows is whole and claimed: no half checkpoint, no landing without an owner, nothing that nobody knows."""
    claimed = {
        identity
        for run in world.ledger.runs()
        for identity, found in world.state(run).records.items()
        if world.hot.place in found.replicas
    }
    assert set(world.hot.records().records) <= claimed, "hot holds trees that the ledger does not claim"
    assert world.hot.clean() == 0, "a landing without an owner was left"


def check_pins(world):
    """What a record says it was trained with can be read, and what the ledger calls pinned is."""
    for pin in world.ledger.site().pins.values():
        if pin.state == "pinned":
            assert world.data.pin_strength(pin.repository, pin.commit, branch=pin.branch) != "none"


def settled(world, acknowledged):
    """The next process: a sweep, then everything holds, and another sweep finds nothing to do."""
    world.restart()
    world.sweep()
    invariants(world, acknowledged)
    before = {run: world.state(run).sequence for run in world.ledger.runs()} | {"": world.ledger.site().sequence}
    again = world.sweep()
    assert {run: world.state(run).sequence for run in world.ledger.runs()} | {
        "": world.ledger.site().sequence
    } == before
    assert (again.committed, again.replicated, again.released, again.said) == ([], [], [], [])


def read_everything(world):
    """`verify` over all: for tests that damage nothing, it finds nothing."""
    for run in world.ledger.runs():
        assert verify(world.site(), list(world.state(run).records.values())).damaged == []
