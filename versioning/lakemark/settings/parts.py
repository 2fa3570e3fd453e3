"""The smaller parts of the configuration, in the file's order."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from lakemark.settings.kinds import (
    AbsolutePath,
    Branch,
    Command,
    Cpus,
    DataBranch,
    Delay,
    Duration,
    Endpoint,
    Header,
    LocalPath,
    Nice,
    Rate,
    Remote,
    Repository,
    Run,
    SecretUrl,
    Share,
    Size,
)
from lakemark.settings.section import Default, Section, SettingProblem


@dataclass(frozen=True, kw_only=True)
class LedgerSettings(Section):
    """`path`: this node's bare repository. `remote`: the one all nodes share; None on a single node."""

    what: ClassVar[str] = "ledger"

    path: Annotated[LocalPath, Default("ledger.git")]
    remote: Annotated[Remote | None, Default(None)]


@dataclass(frozen=True, kw_only=True)
class DataSettings(Section):
    """lakeFS. `repository` and `branch` are what `run open` takes when not told.

    `require_pin` is the weakest pin this site accepts.
    """

    what: ClassVar[str] = "data"

    endpoint: Endpoint
    repository: Annotated[Repository, Default("data")]
    branch: Annotated[Branch, Default("main")]
    require_pin: Annotated[Literal["guarded", "plain", "none"], Default("guarded")]


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings(Section):
    """`rpo`: how much work may be lost. `rto`: how long a restore may take.

    A run without a save for `idle_after` counts as idle, not as late.
    """

    what: ClassVar[str] = "objectives"

    rpo: Annotated[Duration, Default("30m")]
    rto: Annotated[Duration, Default("10m")]
    idle_after: Annotated[Duration, Default("2d")]


@dataclass(frozen=True, kw_only=True)
class WatchSettings(Section):
    """Directories in which a trainer saves.

    `path` may have one component with `*`, and then `run` has `{name}`: what the
    star's component is called. `data` (REPOSITORY/BRANCH) is what `run open`
    takes for that run when not told. `seen_as` is what the trainer calls `path` inside its container.
    """

    what: ClassVar[str] = "watch"

    path: LocalPath
    run: Run
    data: Annotated[DataBranch | None, Default(None)]
    seen_as: Annotated[AbsolutePath | None, Default(None)]

    def problems(self) -> Iterator[SettingProblem]:
        """A pattern that would give several directories one run, or one directory to every run."""
        # What one star stands for is the run's name; two would need to be told apart.
        stars = str(self.path).count("*")
        if stars > 1:
            yield SettingProblem(("path",), "has more than one `*`; one component may have one")
        if stars and "{name}" not in self.run:
            yield SettingProblem(("run",), 'is one name for several directories; name their runs with "{name}"')
        if not stars and "{name}" in self.run:
            yield SettingProblem(("run",), "has `{name}`, and `path` has no `*` that it could stand for")


@dataclass(frozen=True, kw_only=True)
class ApprovalSettings(Section):
    """Who may roll back. `prune_share`: a prune of more of a run than this needs approval too.

    The requester alone may approve after `alone_after`, never if it is None; a request ends after
    `expires_after`. `allowed_signers`: SSH's file of that name, for signed decisions; this version
    signs none and refuses it.
    """

    what: ClassVar[str] = "approval"

    required: Annotated[bool, Default(value=True)]
    alone_after: Annotated[Delay | None, Default("15m")]
    expires_after: Annotated[Duration, Default("24h")]
    prune_share: Annotated[Share, Default("20%")]
    allowed_signers: Annotated[LocalPath | None, Default(None)]

    def problems(self) -> Iterator[SettingProblem]:
        """A request that ends before its time has come."""
        # Silently never would be read as `soon`.
        if self.alone_after is not None and self.alone_after >= self.expires_after:
            yield SettingProblem(("alone_after",), "must be shorter than `expires_after`, or nobody can approve alone")


@dataclass(frozen=True, kw_only=True)
class VerifySettings(Section):
    """Each byte of each replica is read back within `every`, with at most the share `budget` of the measured read rate."""

    what: ClassVar[str] = "verify"

    every: Annotated[Duration, Default("30d")]
    budget: Annotated[Share, Default("20%")]

    def problems(self) -> Iterator[SettingProblem]:
        """A budget that reads nothing."""
        if not self.budget:
            yield SettingProblem(("budget",), "must be more than 0%, or nothing would ever be read back")


@dataclass(frozen=True, kw_only=True)
class DrillSettings(Section):
    """Each tier is restored from within `every`. `command` proves within `timeout` that a restored checkpoint loads.

    `scratch_max` bounds what a drill restores.
    """

    what: ClassVar[str] = "drill"

    every: Annotated[Duration, Default("7d")]
    command: Annotated[Command | None, Default(None)]
    timeout: Annotated[Duration, Default("30m")]
    scratch_max: Annotated[Size, Default("500GiB")]


@dataclass(frozen=True, kw_only=True)
class FlowSettings(Section):
    """How Prefect's tasks run: threads in the worker, or dask."""

    what: ClassVar[str] = "flows"

    task_runner: Annotated[Literal["threads", "dask"], Default("threads")]


@dataclass(frozen=True, kw_only=True)
class ServeSettings(Section):
    """`token_file` holds the token that readers show; in `proxy_header` a trusted proxy says who they are."""

    what: ClassVar[str] = "serve"

    token_file: Annotated[LocalPath | None, Default(None)]
    proxy_header: Annotated[Header | None, Default(None)]


@dataclass(frozen=True, kw_only=True)
class LimitSettings(Section):
    """What background work may take: `cpus` threads, `nice` 0 to 19, `bandwidth` in bytes per second.

    `minimum_rate` and `stall` are about every request to S3: a transfer, either way, that is slower than so many
    bytes a second over so long, or an answer that takes longer, is given up and tried later.
    """

    what: ClassVar[str] = "limits"

    cpus: Annotated[Cpus, Default(2)]
    nice: Annotated[Nice, Default(10)]
    io_class: Annotated[Literal["idle", "best-effort", "none"], Default("idle")]
    bandwidth: Annotated[Rate | None, Default(None)]
    minimum_rate: Annotated[Rate, Default("64KiB")]
    stall: Annotated[Duration, Default("60s")]


@dataclass(frozen=True, kw_only=True)
class NotifySettings(Section):
    """Where to say that something is red (`webhook`), and that all is well (`heartbeat`)."""

    what: ClassVar[str] = "notify"

    # Not in a repr: settings are shown in tracebacks.
    webhook: Annotated[SecretUrl | None, Default(None)] = field(repr=False)
    heartbeat: Annotated[SecretUrl | None, Default(None)] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SandboxSettings(Section):
    """What `lakemark up` starts in `dir`; what is left out you run yourself."""

    what: ClassVar[str] = "sandbox"

    dir: Annotated[LocalPath, Default("sandbox")]
    s3: Annotated[Literal["seaweedfs"] | None, Default(None)]
    lakefs: Annotated[Literal["stand-in"] | None, Default(None)]
    prefect: Annotated[Literal["server"] | None, Default(None)]
