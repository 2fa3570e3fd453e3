"""From settings to a `Site`: the only module beside `background` that names adapters; it imports each when it is first needed."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakemark.background import hold_to_limits
from lakemark.errors import (
    Corrupt,
    Denied,
    LakemarkError,
    Misconfigured,
    NoRoom,
    NotFound,
    StoreUnavailable,
    without_secrets,
)
from lakemark.late import LateDataVersions, LateRecogniser
from lakemark.ports import (
    CheckpointStore,
    DataVersions,
    Progress,
    Quiet,
    Recogniser,
    Restorer,
    Site,
    Watched,
)
from lakemark.settings import (
    DirectoryTier,
    LimitSettings,
    Loaded,
    S3Tier,
    Settings,
    clock_from,
    credentials,
    is_simulated,
    lakefs_credentials,
    load,
    with_sandbox,
)
from lakemark.settings.rules import hot_tier, policies

if TYPE_CHECKING:
    from lakemark.adapters.disk.heard_clock import HeardClock
    from lakemark.adapters.disk.objects import Blobs
    from lakemark.adapters.disk.pacing import Pace
    from lakemark.adapters.git.ledger import GitLedger
    from lakemark.adapters.git.pointer import Remote
    from lakemark.adapters.hot.store import TreeStore
    from lakemark.adapters.node.journal import SqliteJournal
    from lakemark.index import Index
    from lakemark.model.ledger.soundness import Seen


def configuration(config: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> Loaded:
    """The configuration that applies here (see `settings.load`). Raises Misconfigured, Denied."""
    return load(config, environ=environ, cwd=Path.cwd(), hostname=socket.gethostname())


PATIENCE_SECONDS: Final = 60.0
"""How long lakeFS is waited for in all where somebody waits: for a command, or a step of a flow."""


@dataclass(frozen=True)
class Parts:
    """A site's parts, each made at its first use: a command that only lists pays for the ledger and the index alone.

    background: `limits.bandwidth` holds for what its stores read, and so for what they copy. patience_seconds: how long
    lakeFS is waited for in all, as where a person waits; None: for as long as the work needs.
    """

    loaded: Loaded
    environ: Mapping[str, str]
    background: bool = False
    patience_seconds: float | None = None

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def reads_only(self) -> bool:
        """Whether this machine only restores, from a site whose ledger it mirrors."""
        return self.settings.profile == "reader"

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """The environment, with the keys of what the sandbox started."""
        return with_sandbox(self.settings, self.environ)

    @cached_property
    def now(self) -> Callable[[], datetime]:
        return clock_from(self.settings, self.environ)

    @cached_property
    def heard(self) -> HeardClock:
        """The stores' time, as the last answer of one told it."""
        from lakemark.adapters.disk.heard_clock import HeardClock

        stopwatch = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
        return HeardClock(self.settings.ledger.path.with_suffix(".heard.json"), seconds=stopwatch)

    @cached_property
    def index(self) -> Index:
        """The derived index, beside the ledger; where that can't be written, one of this process alone."""
        from lakemark.index import Index, passing_index

        try:
            return Index(self.settings.ledger.path.with_suffix(".index.sqlite"))
        except (Denied, NoRoom) as error:
            made = passing_index()
            if made is None:
                raise
            self.troubles.append(f"{error}; what is asked is worked out from the ledger anew")
            return made

    @cached_property
    def troubles(self) -> list[str]:
        """What a person should be told of, a sentence each: it slows things down and stops nothing."""
        return []

    @cached_property
    def journal(self) -> SqliteJournal:
        """What this node remembers, beside the ledger."""
        from lakemark.adapters.node.journal import SqliteJournal

        # Opened when something is to be remembered: reading and rescuing never need to write beside the ledger.
        path = self.settings.ledger.path.with_suffix(".journal.sqlite")
        return SqliteJournal(path, now=self.now, at_first_use=True)

    def journal_is_there(self) -> bool:
        """Whether this node ever kept one: that somebody worked here, whatever became of the ledger."""
        try:
            return self.settings.ledger.path.with_suffix(".journal.sqlite").exists()
        except OSError:  # there is something, and it can't be looked at: what opens it says why
            return True

    @cached_property
    def ledger(self) -> GitLedger:
        """The node's ledger. Raises NotFound or Misconfigured where `init` never ran, Denied for another owner's."""
        if self.reads_only:
            from lakemark.adapters.git.mirror import ReadOnlyLedger

            return ReadOnlyLedger(self.settings.ledger.path, cache=self.index)
        if self.settings.ledger.remote is not None:
            raise Misconfigured(
                "`ledger.remote` is set, and this version keeps the ledger of one node only",
                advice="Set `ledger: {remote: null}`, or `profile: reader` for a machine that only restores.",
            )
        from lakemark.adapters.git.ledger import GitLedger

        return GitLedger(self.settings.ledger.path, remotes=remotes(self.settings), cache=self.index)

    @cached_property
    def pace(self) -> Pace | None:
        """None where nothing is held back."""
        rate = self.settings.limits.bandwidth if self.background else None
        if rate is None:
            return None
        from lakemark.adapters.disk.pacing import Pace

        return Pace(rate)

    @cached_property
    def hot(self) -> TreeStore:
        name, tier = hot_tier(self.settings)
        from lakemark.adapters.hot.store import TreeStore

        return TreeStore(
            tier.path,
            name=name,
            node=self.settings.node,
            domain=tier.domain,
            landing=tier.landing,
            min_free=tier.min_free,
            capacity_bytes=tier.capacity,
            pace=self.pace,
        )

    @cached_property
    def data(self) -> DataVersions | None:
        """None where there is no data versioning. Keys are asked for at its first use: without them, commits still work."""
        if self.settings.data is None:
            return None
        return LateDataVersions(self._lakefs)

    def _lakefs(self) -> DataVersions:
        from lakemark.adapters.lakefs.versions import LakeFSVersions

        if self.settings.data is None:
            raise Misconfigured("this site has no data versioning", advice="Name a lakeFS endpoint under `data:`.")
        pair, where = lakefs_credentials(self.keys), self.settings.data.endpoint
        secret = pair.secret_access_key.reveal()
        return LakeFSVersions(where, pair.access_key_id, secret, patience_seconds=self.patience_seconds)

    def store(self, name: str) -> CheckpointStore:
        """The store of a tier other than hot."""
        tier = self.settings.tiers[name]
        from lakemark.adapters.dvc.store import DvcStore

        if isinstance(tier, DirectoryTier):
            from lakemark.adapters.disk.directory_objects import DirectoryBlobs

            blobs: Blobs = DirectoryBlobs(tier.path, min_free=tier.min_free, access=tier.access)
            shared = tier.shared
        elif isinstance(tier, S3Tier):
            uploads = self.loaded.home / "uploads" / name
            blobs = s3_blobs(tier, self.keys, journal=uploads, limits=self.settings.limits, heard=self.heard.hear)
            shared = tier.shared
        else:
            raise Misconfigured(f"the tier {name} is of the kind {type(tier).__name__}", advice="Use directory or s3.")
        if self.pace is not None:
            from lakemark.adapters.disk.pacing import PacedBlobs

            blobs = PacedBlobs(blobs, self.pace)
        return DvcStore(
            blobs,
            name=name,
            tier_class=tier.tier_class,
            domain=tier.domain,
            shared=shared,
            capacity_bytes=tier.capacity,
        )


class Stores(Mapping[str, CheckpointStore]):
    """Tiers by name, in the order of the configuration; a store is made when it is first asked for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._made: dict[str, CheckpointStore] = {}

    def __getitem__(self, name: str) -> CheckpointStore:
        if name not in self._parts.settings.tiers:
            raise KeyError(name)
        if name not in self._made:
            hot, _ = hot_tier(self._parts.settings)
            self._made[name] = self._parts.hot if name == hot else self._parts.store(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts.settings.tiers)

    def __len__(self) -> int:
        return len(self._parts.settings.tiers)


def open_site(
    config: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    actor: str | None = None,
    progress: Progress | None = None,
    background: bool = False,
) -> Site:
    """The site of the configuration that applies here. `actor`: who acts; by default user@node.

    background: for work that nobody waits for: this thread and what it starts are held to the site's `limits`.
    """
    # Work that grows with what there is to look after has a patience of its own, for each pass.
    patience = None if background else PATIENCE_SECONDS
    parts = Parts(configuration(config, environ=environ), environ, background=background, patience_seconds=patience)
    if background:
        hold_to_limits(parts.settings)
    return site_of(parts, actor=actor, progress=progress, saving=background)


def site_of(parts: Parts, *, actor: str | None = None, progress: Progress | None = None, saving: bool = False) -> Site:
    """The `Site` services work with. Raises Misconfigured for a promise this version can't keep.

    saving: for whoever takes saves: a ledger that can't be opened is tried again each time it is asked, and raises then.
    """
    from lakemark import __version__
    from lakemark.adapters.disk.lanes import at_once
    from lakemark.adapters.node.files import LocalFiles
    from lakemark.adapters.node.notes import LocalNotes
    from lakemark.adapters.node.pointers import LocalPointers
    from lakemark.adapters.node.restorer import LocalRestorer
    from lakemark.adapters.node.run_files import LocalSpool
    from lakemark.services.soundness import GuardedLedger

    settings = parts.settings
    _require_unsigned(settings)
    tiers = Stores(parts)
    _require_ledger(parts, saving=saving)
    return Site(
        name=settings.site,
        node=settings.node,
        actor=actor or f"{getpass.getuser()}@{settings.node}",
        home=parts.loaded.home,
        ledger=GuardedLedger(lambda: parts.ledger, parts.journal, stores=tiers.values),
        hot=parts.hot,
        tiers=tiers,
        data=parts.data,
        files=LocalFiles(),
        restorer=LocalRestorer(),
        pointers=LocalPointers(),
        spool=LocalSpool(data_endpoint=settings.data.endpoint if settings.data else None),
        notes=LocalNotes(),
        journal=parts.journal,
        recogniser=LateRecogniser(recogniser),
        now=parts.now,
        store_time=parts.heard.now,
        policies=policies(settings),
        watch=tuple(Watched(path=one.path, run=one.run, data=one.data, seen_as=one.seen_as) for one in settings.watch),
        restore_root=settings.restore_root,
        default_repository=settings.data.repository if settings.data else None,
        default_branch=settings.data.branch if settings.data else None,
        simulated_clock=is_simulated(parts.environ),
        reads_only=parts.reads_only,
        version=__version__,
        address=socket.gethostname(),
        seconds=time.monotonic,
        progress=progress or Quiet(),
        at_once=at_once,
    )


def _require_ledger(parts: Parts, *, saving: bool) -> None:
    """Raises what keeps the ledger from being opened, unless a save may wait for that."""
    try:
        _ = parts.ledger
    except (Corrupt, NotFound, StoreUnavailable, Misconfigured):
        # Where this node worked before, somebody's save must not fail for it.
        if not saving or parts.reads_only or parts.settings.ledger.remote is not None or not parts.journal_is_there():
            raise


def tier_at(path: Path) -> tuple[CheckpointStore, Restorer]:
    """The tier whose disk is at `path`, told by what lies there, and what restores from it. Nothing is written there.

    For whoever has neither a site nor a ledger left. Raises NotFound where it is no tier's.
    """
    from lakemark.adapters.node.restorer import LocalRestorer

    place = path.absolute()
    if (place / ".lakemark" / "sealed").is_dir():
        from lakemark.adapters.hot.store import TreeStore

        return TreeStore(place, name=str(place), node=""), LocalRestorer()
    if (place / "lakemark" / "records").is_dir():
        from lakemark.adapters.disk.directory_objects import DirectoryBlobs
        from lakemark.adapters.dvc.store import DvcStore

        return DvcStore(DirectoryBlobs(place), name=str(place), tier_class="cold"), LocalRestorer()
    raise NotFound(
        f"{str(place)!r:.300} is no tier: it has neither lakemark/records nor .lakemark/sealed",
        advice="Give the directory that `path` of the tier was, with its disk mounted.",
    )


def _require_unsigned(settings: Settings) -> None:
    """Whoever asks for signed decisions must not get unsigned ones."""
    if settings.approval.allowed_signers is not None:
        raise Misconfigured(
            f"`approval.allowed_signers` is {settings.approval.allowed_signers}, and this version checks no signatures",
            advice="Set `approval: {allowed_signers: null}`, and say in your own rules who may approve.",
        )


def init_ledger(parts: Parts) -> str:
    """Makes the node's ledger where there is none, and answers its id. Raises Conflict where something else is there."""
    from lakemark.adapters.git.make import init

    return init(parts.settings.ledger.path)


def mend_ledger(parts: Parts, *, dry_run: bool = False) -> list[str]:
    """Makes what lies at `ledger: path` a ledger that can be opened, empty where nothing of it is left. What it did.

    Its id is what this node's hot and the other tiers name as their owner. Raises NotFound where none of them does.
    """
    from lakemark.adapters.git.mend import mend

    if parts.reads_only:
        raise Misconfigured("this machine only mirrors a ledger", advice="Recover it on a node of the site.")

    def identity() -> str | None:
        for store in Stores(parts).values():
            try:
                found = store.identity()
            except LakemarkError:
                continue
            if found is not None:
                return found.ledger
        return None

    return mend(parts.settings.ledger.path, identity, dry_run=dry_run)


def damaged_objects(settings: Settings) -> list[str]:
    """Of what lies damaged in the ledger, beside its packs, whose it is, in words. Loads Git only where there is any.

    Raises Corrupt, Denied where it can't be looked at.
    """
    from lakemark.adapters.disk.files import os_errors
    from lakemark.adapters.git.damage import damaged_loose

    path = settings.ledger.path
    with os_errors(path):
        damaged = damaged_loose(path)
    if not damaged:
        return []
    from lakemark.adapters.git.owners import owners

    return sorted({owner.shown for owner in owners(path, damaged).values()})


def refresh_mirror(parts: Parts) -> str | None:
    """Brings a reader's mirror up to date; what is wrong where the one from before must do. Of others: nothing.

    Raises what `git_mirror.refresh` does where there is no mirror yet, and Refused for a history that was replaced.
    """
    remote = parts.settings.ledger.remote
    if not parts.reads_only or remote is None:
        return None
    from lakemark.adapters.git.mirror import refreshed

    return refreshed(parts.settings.ledger.path, remote)


def mirrored(path: Path, ledger: str, *, base: Path) -> tuple[str, Mapping[str, Mapping[str, str]]]:
    """Makes the mirror of a ledger named by URL or path.

    Answers its name as the configuration keeps it, without a password, and the tiers it tells how to reach: name -> keys.
    """
    from lakemark.adapters.git.mirror import refresh, tiers

    remote = str((base / ledger).absolute()) if (base / ledger).is_dir() else ledger
    refresh(path, remote)
    return without_secrets(remote), tiers(path)


def ledger_tips(settings: Settings) -> Mapping[str, str]:
    """The newest commit of each branch of the node's ledger, read without Git. Raises NotFound where `init` never ran."""
    from lakemark.adapters.disk.files import os_errors
    from lakemark.adapters.git.refs import tips

    path = settings.ledger.path
    with os_errors(path):
        there = path.is_dir()
    if not there:
        raise NotFound(f"there is no ledger at {path}", advice="Make it with `lakemark init`.")
    return tips(path)


def known_tips(settings: Settings) -> tuple[Seen, ...]:
    """What this node knows of its ledger's tips, read without writing or waiting. Raises StoreUnavailable, Corrupt."""
    from lakemark.adapters.node.journal import seen_at

    return seen_at(settings.ledger.path.with_suffix(".journal.sqlite"))


def identity_at(path: Path) -> str | None:
    """The id in the tier file of a place on this machine's disks; None where there is none. Loads no store."""
    from lakemark.adapters.disk import tier_file
    from lakemark.adapters.disk.files import as_ours_of_place
    from lakemark.adapters.disk.rooted import Below

    try:
        with os.fdopen(Below(path).open(tier_file.NAME), "rb") as stream:
            return tier_file.from_bytes(stream.read(), where=str(path)).id
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise Denied(
            f"{path / tier_file.NAME} may not be read", advice="Give this user the right to read it."
        ) from None
    except OSError as error:
        raise as_ours_of_place(error, path) from error  # a stale mount, a broken disk


def inodes_stay(path: Path) -> bool:
    """Whether the mount that `path` is on gives it the same number at each look."""
    from lakemark.adapters.disk import file_identity as marks

    return marks.inodes_stay(str(path), os.lstat(path))


def require_keepable(path: Path, members: Sequence[Path] = ()) -> None:
    """Raises Refused where no tier could keep what lies there; also NotFound, Denied. Needs no site."""
    from lakemark.adapters.disk.files import os_errors
    from lakemark.adapters.disk.scan import place_of, scan

    with os_errors(path):
        scan(*place_of(path, members))


def recogniser() -> Recogniser:
    """Tells checkpoints by file rules. Raises Misconfigured for a format of a third party that can't be loaded."""
    from lakemark import formats

    return formats.recogniser()


def digests_of(content: bytes, part_size_bytes: int) -> tuple[str, tuple[str, ...]]:
    """A file's digest and those of its parts, as manifests have them."""
    from lakemark.adapters.disk.digests import Digester

    digester = Digester(part_size_bytes)
    digester.update(memoryview(content))
    found = digester.finish()
    return found.digest, found.parts


def remotes(settings: Settings) -> dict[str, Remote]:
    """The DVC tiers as a clone of the ledger reaches them."""
    from lakemark.adapters.git.pointer import Remote

    found: dict[str, Remote] = {}
    for name, tier in settings.tiers.items():
        if isinstance(tier, DirectoryTier):
            found[name] = Remote(name=name, url=str(tier.path), directory=True)
        elif isinstance(tier, S3Tier):
            found[name] = Remote(name=name, url=str(tier.url), endpoint=tier.endpoint, region=tier.region)
    return found


def s3_blobs(
    tier: S3Tier,
    keys: Mapping[str, str],
    *,
    journal: Path,
    limits: LimitSettings,
    heard: Callable[[str | None], None] | None = None,
) -> Blobs:
    """The blobs of an S3 tier. journal: where unfinished uploads are noted. limits: how slow it may be. heard: told its time."""
    from lakemark.adapters.s3.objects import S3Blobs
    from lakemark.adapters.s3.place import Credentials, S3Place

    place = S3Place(
        bucket=tier.url.bucket,
        prefix=tier.url.prefix,
        endpoint=tier.endpoint,
        region=tier.region,
        path_style=tier.path_style,
        ca_bundle=tier.ca_bundle,
        storage_class=tier.storage_class,
        retain_until=tier.retain_until,
        never_expires=tier.expires == "never",
        minimum_rate=limits.minimum_rate,
        stall_seconds=limits.stall.total_seconds(),
    )
    if tier.credentials is None:
        return S3Blobs(place, None, journal=journal, heard=heard)
    pair = credentials(tier.credentials, environ=keys)
    token = pair.session_token.reveal() if pair.session_token else None
    keypair = Credentials(pair.access_key_id, pair.secret_access_key.reveal(), token)
    return S3Blobs(place, keypair, journal=journal, heard=heard)


def ask_s3(
    tier: S3Tier, keys: Mapping[str, str], *, url: str, at: datetime, within_seconds: float
) -> tuple[int, bytes]:
    """What the store answers, with the tier's keys, when its identity file is asked for; loads no SDK.

    at: the real time, with which the store compares that of the signature. Unsigned where the tier names no keys of its own.
    Raises OSError or HTTPException where no answer comes, Misconfigured.
    """
    from lakemark.adapters.disk.tier_file import NAME
    from lakemark.adapters.s3.question import Asked, get

    pair = None if tier.credentials is None else credentials(tier.credentials, environ=keys)
    token = pair.session_token if pair is not None else None
    asked = Asked(
        endpoint=url,
        bucket=tier.url.bucket,
        key=f"{tier.url.prefix}/{NAME}".lstrip("/"),
        region=tier.region,
        access_key_id=None if pair is None else pair.access_key_id,
        secret_access_key="" if pair is None else pair.secret_access_key.reveal(),
        session_token=None if token is None else token.reveal(),
        ca_bundle=tier.ca_bundle,
    )
    return get(asked, at=at, within_seconds=within_seconds)
