"""Everything a service works with, in one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path

from lakemark.errors import Misconfigured, NotFound
from lakemark.model.ledger.entry import Clock as ClockMark, Stamp
from lakemark.model.ledger.run import Place
from lakemark.model.tiers.moves import SKEW
from lakemark.model.tiers.residence import Residence
from lakemark.model.tiers.retention import RetentionPolicy
from lakemark.model.values.names import original
from lakemark.ports.data import DataVersions, Strength
from lakemark.ports.files import Files
from lakemark.ports.hot import HotStore
from lakemark.ports.journal import Journal
from lakemark.ports.ledger import Ledger
from lakemark.ports.notes import Notes
from lakemark.ports.pointers import Pointers
from lakemark.ports.recogniser import Recogniser
from lakemark.ports.restorer import Restorer
from lakemark.ports.spool import Spool
from lakemark.ports.store import CheckpointStore
from lakemark.ports.work import Clock, Lanes, Progress, Quiet, one_by_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Who may let a rollback go on. alone_after: the requester may approve alone then; None: never."""

    required: bool = True
    alone_after: timedelta | None = timedelta(minutes=15)
    expires_after: timedelta = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """rpo: how much work may be lost, and so how long a replica that shares its files with the trainer may be the only one.

    rto: how long a restore may take. idle_after: a run without a save for so long is idle. None: nobody said.
    """

    rpo: timedelta | None = None
    rto: timedelta | None = None
    idle_after: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """How soon every byte of every replica is read back, and the share of the measured read rate that may take, in (0, 1]."""

    every: timedelta = timedelta(days=30)
    budget: Fraction = Fraction(1, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drills:
    """How often a restore is tried from each tier. command: what proves that it loads, within `timeout`; None: nothing does.

    scratch_max_bytes: the most that a drill restores at once.
    """

    every: timedelta = timedelta(days=7)
    command: str | None = None
    timeout: timedelta = timedelta(minutes=30)
    scratch_max_bytes: int = 500 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterMarks:
    """Above `high` a tier releases what policy allows, down to `low`: bytes, or shares of its capacity; None: no mark."""

    high: int | Fraction | None = None
    low: int | Fraction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A directory trainers save into.

    run: a name, or a pattern in which `{name}` is what `*` stands for in `path`. data: what `run open` reads by default.
    seen_as: the directory's path inside a container.
    """

    path: Path
    run: str
    data: str | None = None
    seen_as: Path | None = None

    def directory(self, run: str) -> Path | None:
        """Where trainers of `run` save, if they do so here."""
        # Backwards from the run's name: what `{name}` stood for is what the star in the path was.
        before, pattern, after = self.run.partition("{name}")
        if not pattern:
            return self.path if self.run == run else None
        # The directory is called as the trainer called it, not as the ledger's name maps that.
        written = original(run)
        name = written[len(before) : len(written) - len(after)]
        # A name that came from elsewhere must not become a path out of the watched place.
        if f"{before}{name}{after}" != written or "/" in name or name in ("", ".", ".."):
            return None
        return Path(*(part.replace("*", name) for part in self.path.parts))

    def finds(self, path: Path) -> Path | None:
        """The directory of this entry that `path` is, or lies in, whatever run it would be; None where it does in none."""
        wanted, there = self.path.parts, path.parts[: len(self.path.parts)]
        # A hidden directory is no run's.
        fit = len(there) == len(wanted) and all(
            one == pattern or ("*" in pattern and fnmatchcase(one, pattern) and not one.startswith("."))
            for one, pattern in zip(there, wanted, strict=True)
        )
        return Path(*there) if fit else None

    def here(self, run: str, path: Path) -> Path:
        """`path`, as a trainer of `run` names it, on this node."""
        directory = self.directory(run)
        if directory is None or self.seen_as is None or not path.is_relative_to(self.seen_as):
            return path
        return directory / path.relative_to(self.seen_as)

    def there(self, run: str, path: Path) -> Path:
        """`path` of this node, as a trainer of `run` names it."""
        directory = self.directory(run)
        if directory is None or self.seen_as is None or not path.is_relative_to(directory):
            return path
        return self.seen_as / path.relative_to(directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The site's rules. `residence` by tier name; `retention`: run pattern -> policy, `default` and `abandoned` among them.

    ephemeral_hot: this node's hot is empty by design at each start. when_full: `thin` or `stop`, of hot. apply: False: what
    retention would not keep is only said, never dropped, by nothing. water: by tier name; a tier without marks has none.
    """

    copies: int = 1
    residence: Mapping[str, Residence] = field(default_factory=dict)
    retention: Mapping[str, RetentionPolicy] = field(default_factory=dict)
    retention_zone: str = "UTC"
    min_keep: int = 2
    max_delete: Fraction = Fraction(1, 5)
    grace: timedelta = timedelta(hours=72)
    require_pin: Strength = Strength.GUARDED
    approval: Approval = field(default_factory=Approval)
    quiet_seconds: float = 5.0
    when_full: str = "thin"
    ephemeral_hot: bool = False
    objectives: Objectives = field(default_factory=Objectives)
    apply: bool = True
    read_back: ReadBack = field(default_factory=ReadBack)
    drills: Drills = field(default_factory=Drills)
    water: Mapping[str, WaterMarks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One node's view of a site. `data` is None where there is no data versioning.

    seconds: a monotonic stopwatch, for measuring how long work takes. version: of this program. address: where other
    nodes reach this one, if known.
    store_time: what a store's clock says now, as its last answer told, whoever it was given to on this node; None where
    none told lately. Asks nobody. reads_only: nothing may be appended from here.
    home: the folder of lakemark.yaml; run files lie in `home/runs`, plans in `home/plans`, spools in `home/spool`.
    """

    name: str
    node: str
    actor: str
    home: Path
    ledger: Ledger
    hot: HotStore
    tiers: Mapping[str, CheckpointStore]
    data: DataVersions | None
    files: Files
    restorer: Restorer
    pointers: Pointers
    spool: Spool
    notes: Notes
    journal: Journal
    recogniser: Recogniser
    now: Clock
    policies: Policies = field(default_factory=Policies)
    watch: tuple[Watched, ...] = ()
    restore_root: Path = Path("restores")
    default_repository: str | None = None
    default_branch: str | None = None
    simulated_clock: bool = False
    reads_only: bool = False
    version: str | None = None
    address: str | None = None
    seconds: Callable[[], float] = lambda: 0.0
    store_time: Callable[[], datetime | None] = lambda: None
    progress: Progress = field(default_factory=Quiet)
    at_once: Lanes = one_by_one

    def stamp(self, request: str) -> Stamp:
        """A stamp of this node, now: suspect where its clock is more than five minutes off a store's."""
        at = self.now()
        # A simulated clock is another time on purpose: stores tell nothing about it.
        theirs = None if self.simulated_clock else self.store_time()
        mark = ClockMark.SIMULATED if self.simulated_clock else ClockMark.OK
        # By a store's clock that told lately, either way: too early is as wrong as too late.
        if theirs is not None and abs(at - theirs) > SKEW:
            mark = ClockMark.SUSPECT
        return Stamp(at=at, node=self.node, actor=self.actor, request=request, clock=mark)

    def store(self, place: Place | str) -> CheckpointStore:
        """The store of a tier name, or of a place.

        Raises Misconfigured for a name that lakemark.yaml has not, NotFound for a place of such a tier or another node's hot.
        """
        name = place if isinstance(place, str) else place.tier
        found = self.tiers.get(name)
        if found is None:
            known = ", ".join(sorted(self.tiers))
            # Who writes a tier's name can mend the file; a place in the ledger may be of a tier that other nodes have.
            unknown = Misconfigured if isinstance(place, str) else NotFound
            raise unknown(f"there is no tier {name!r}; lakemark.yaml has {known}", advice="See `lakemark tiers`.")
        if isinstance(place, Place) and place.node is not None and place.node != self.node:
            raise NotFound(
                f"{name!r} of node {place.node} is not reachable from {self.node}", advice="Run this on that node."
            )
        return found

    def here(self, run: str, path: Path) -> Path:
        """A path that a trainer of `run` wrote down, maybe inside a container, on this node."""
        # The first that changes it: a path that no container renames is what it says.
        return next((found for one in self.watch if (found := one.here(run, path)) != path), path)

    def there(self, run: str, path: Path) -> Path:
        """A path of this node, as trainers of `run` name it."""
        return next((found for one in self.watch if (found := one.there(run, path)) != path), path)

    def run_file(self, run: str) -> Path:
        return self.home / "runs" / f"{run}.json"

    def spool_of(self, run: str) -> Path:
        return self.home / "spool" / run
