"""This node's own disk outside the tiers: where trainers save, where checkpoints are brought back, what the node remembers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import DataRef
from lakemark.model.checkpoints.survey import Survey
from lakemark.model.ledger.run import Place
from lakemark.model.ledger.soundness import Seen
from lakemark.model.values.canonical import JSON
from lakemark.model.values.names import is_log
from lakemark.ports.work import Progress


class Verdict(StrEnum):
    """What a recogniser says of a path."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    TEMPORARY = "temporary"
    POINTER = "pointer"
    MARKER = "marker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checkpoint, or something that belongs to one, at `path`.

    members: the files and directories it consists of where that is not `path` itself (TensorFlow's `ckpt-50` is a prefix
    of names); all lie beneath the parent of `path`. step: None where neither name nor content says.

    roles: path inside it (beneath `path`, or beneath the parent of members) -> the role of that file.
    present: roles it is known to hold; in formats that keep several in one file these are more than `roles` says.
    possible: roles that it may hold and neither names nor headers tell. resumable, gaps: as in a manifest.

    ranks: name of a per-rank set of files -> how many ranks it has. ranks_told: its own headers say how many model and data
    ranks there are, and it has them. unfinished: temporary files inside it.
    counted: its framework names no step, and `step` is the number of the save, report or epoch.
    unlisted: nothing in it says which files it has: no index, no marker written last, no count.
    metrics: what its framework itself wrote of that very step, in names or texts.
    target: what a pointer names, as it is written there. notes: findings that do not change the verdict.
    """

    path: Path
    framework: str
    step: int | None
    verdict: Verdict
    why: str
    members: tuple[Path, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    present: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()
    resumable: bool | None = None
    gaps: tuple[str, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)
    ranks_told: bool = False
    unfinished: tuple[str, ...] = ()
    counted: bool = False
    unlisted: bool = False
    target: str | None = None
    notes: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where its bytes lie: its members, else `path`."""
        return self.members or (self.path,)


Skip: TypeAlias = Callable[[tuple[Path, ...]], bool]
"""Asked with the paths of a candidate before anything in it is read; True: it is passed over."""

Unreadable: TypeAlias = Callable[[Path, str], object]
"""Told of a directory that can't be listed, and why."""


class Recogniser(Protocol):
    """Tells checkpoints by file rules only: it reads names and headers, never imports a framework, never unpickles."""

    def find(self, root: Path, *, skip: Skip = ..., unreadable: Unreadable | None = None) -> Iterator[Found]:
        """What lies in `root`, at any depth, in order of step then path; checkpoints themselves are not entered.

        unreadable: told of each directory that can't be listed, but for checkpoints, which say so themselves. Nothing is
        followed out of `root`, and `.lakemark-aside` is passed over. Never raises for unreadable things.
        """

    def judge(self, path: Path) -> Found:
        """What `path` itself is, compared with the earlier steps beside it. Raises NotFound where there is nothing."""

    def pointers(self, placed: Placed) -> tuple[Pointer, ...]:
        """The framework's own pointers as they must be once `placed` is what training goes on from, changed or not."""

    def baked(self, placed: Placed) -> tuple[Baked, ...]:
        """Places written into files of the checkpoint, or beside it, that no pointer repairs. Pickles are not read."""

    def ranges(self, tree: Path, manifest: Manifest, roles: Collection[str]) -> Mapping[str, tuple[Range, ...]]:
        """Which bytes of the files that mix roles are of `roles`, by path, as the manifest's `index_files` say.

        tree: a folder where the manifest's `index_files` lie; nothing else of it need be there. Raises Corrupt for an
        index that can't be read or names what is not there, NotFound where nothing in it is of `roles`.
        """

    def index_files(self, manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
        """Files that say which bytes of others are of which role -> those others; empty where its format has none."""


class PointerKind(StrEnum):
    """text: a file that says `content`. symlink: a link to `content`. copy: the same bytes as `content`.

    gone: nothing may be there.
    """

    TEXT = "text"
    SYMLINK = "symlink"
    COPY = "copy"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """How the thing at `path` must be. content: the text, the link's target as written, or the path to be copied."""

    path: Path
    kind: PointerKind
    content: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A checkpoint in the directory that is resumed into. path: as a trainer names it; of members it may be a prefix.

    root: that directory. aside: where this job moves things of it, under the same relative paths.
    """

    path: Path
    framework: str
    root: Path
    aside: Path
    members: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.members or (self.path,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baked:
    """A place, as `file` says it; `now`: where what it means lies, if it came along."""

    file: Path
    path: str
    now: Path


Range: TypeAlias = tuple[int, int]
"""Offset and length, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """A save the trainer announced (`Run.saved`). `file`: the spool file; it goes once the save is committed.

    data: what the process had open. timeline: of `run.resume` if the process read it, else None.
    present: roles it is known to hold, where one file holds several; it may hold more.
    world, rank_files: how many ranks each leave files of their own, and the paths of those, with `{rank}` for the rank's
    number; when this was announced, only the announcing rank's were known to be there. None: every rank was done.
    identity: path inside it (`.` for the one file that it is) -> inode, size in bytes and mtime in ns when it was announced, of
    as many of its files as were looked at; an inode of 0 is not known. Empty: nothing lay there yet. None: nobody looked.
    """

    file: Path
    run: str
    path: Path
    step: int
    saved_at: datetime
    attempt: str | None
    timeline: int | None
    data: tuple[DataRef, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    present: tuple[str, ...] = ()
    world: int | None = None
    rank_files: tuple[str, ...] = ()
    code: Mapping[str, JSON] | None = None
    identity: Mapping[str, tuple[int, int, int]] | None = None

    def written_over(self, files: Iterable[OnDisk]) -> str | None:
        """Why these are not the files it was announced of; None where they are, as far as that was said. Logs may grow."""
        # A file that is a checkpoint by itself was announced under `.`, as nobody knew what it would be called in a manifest.
        here = {one.path: (one.file.inode, one.file.size_bytes, one.file.mtime_ns) for one in files}
        if "." in (self.identity or {}) and len(here) == 1:
            here = {".": next(iter(here.values()))}
        for path, then in (self.identity or {}).items():
            now = here.get(path)
            # A log inside a save goes on growing after it; the same inode shows that it is the same log.
            if now is not None and now[1] > then[1] and then[0] in (0, now[0]) and is_log(path):
                continue
            # An inode of 0 was not known, as on mounts that give no lasting numbers: size and time have to do.
            if now is None or now[1:] != then[1:] or then[0] not in (0, now[0]):
                name = self.path.name if path == "." else path
                return f"{name} was written again" if path in here else f"{name} is gone"
        return None

    def awaited(self, paths: Container[str]) -> Iterator[str]:
        """Of the files that ranks leave, those not among `paths` (inside the checkpoint). None left: it may be whole."""
        # Lazily: a spool file may say any number of ranks, and the first file that is missing is enough.
        for rank in range(self.world or 0):
            for file in self.rank_files:
                path = file.replace("{rank}", str(rank))
                if path not in paths:
                    yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """What a trainer reads before its loop. `resume`: path, step, record, timeline; None: start afresh.

    simulated: saves are stamped with LAKEMARK_CLOCK, as everything of such a site is.
    """

    run: str
    timeline: int
    attempt: str
    spool: Path
    data: tuple[DataRef, ...]
    resume: Mapping[str, JSON] | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """files_by_place: how many regular files came from where ("kept": they lay there already, verified).

    sparse: path -> bytes of it that are there, of files that were restored in part; the rest are holes.
    """

    path: Path
    size_bytes: int
    files_by_place: Mapping[str, int]
    damaged: tuple[tuple[Place, str], ...] = ()
    sparse: Mapping[str, int] = field(default_factory=dict)


Fetch: TypeAlias = Callable[[File], Iterable[tuple[Place, AbstractContextManager[BinaryIO]]]]
"""Candidates for one file's bytes, nearest first. Entering one may raise: then the next is tried."""

FetchPart: TypeAlias = Callable[[File, int, int], Iterable[tuple[Place, AbstractContextManager[BinaryIO]]]]
"""The same for bytes of it: offset and length; the reader takes no more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparse:
    """Files that are wanted in part, or not at all.

    wanted: asked once, with a tree where all other files are: path -> bytes wanted; what it does not name is left out.
    """

    paths: frozenset[str]
    wanted: Callable[[Path], Mapping[str, tuple[Range, ...]]]
    fetch: FetchPart


class Workspace(Protocol):
    """Files of the user. Guarantees, each a check of `contract.workspace`.

    - `restore` shows the target whole or not at all, durably; every file's bytes were compared with the manifest. An
      interrupted one goes on when called again with the same checkpoint; a non-empty target that is not ours is Refused.
    - Every name is written beneath the target; a link is made as a link and never followed.
    - `restore_parts` does the same with holes in some files; every part that is there was compared with its own digest.
    - `write_run_file` and spool files appear by atomic rename. So do pointers: at every moment there is the old or the new.
    """

    def restore(self, target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
        """Writes the checkpoint into `target`, which must be absent, empty, or our own interrupted restore of `tag`.

        A candidate whose bytes are wrong or that fails is noted in `damaged`, and the next one tried for that file; `fetch`
        may offer one again. None left: StoreUnavailable where one may come back, SourceDamaged where one gave other bytes,
        else NoReplica. Refused: no space, target not empty.
        """

    def restore_parts(
        self, target: Path, manifest: Manifest, sparse: Sparse, *, fetch: Fetch, tag: str, progress: Progress
    ) -> Restored:
        """As `restore`, but the files of `sparse` get their full size and only the parts that hold what is wanted.

        A part is `part_size_bytes` of the manifest, as its digests are.
        """

    def matches(self, path: Path, manifest: Manifest, *, progress: Progress) -> bool:
        """Whether `path` holds exactly the manifest's files, every byte compared; `path` may be the one file itself."""

    def move_aside(self, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
        """Renames each of `paths` into the directory `into` (made if need be), durably; answers where they are now."""

    def alone(self, directory: Path) -> AbstractContextManager[None]:
        """Held by one process at a time, which others wait for; the directory is made if need be."""

    def points(self, pointer: Pointer) -> bool:
        """Whether what lies at its path is so already."""

    def draft(self, pointer: Pointer, at: Path) -> None:
        """Makes at `at` what the pointer must be, durably; an earlier draft there is replaced. Not of the kind gone."""

    def swap(self, draft: Path, path: Path, *, keep: Path) -> Path | None:
        """Shows the draft as `path`, durably; what lay there is afterwards in the directory `keep`, where this answers.

        Where the file system can exchange names, `path` is never absent in between.
        """

    def tidy(self, path: Path) -> None:
        """Removes the directory `path` if it is empty, and then parents of it as far as `.lakemark-aside`."""

    def identities(self, path: Path) -> tuple[KnownFile, ...]:
        """Of the regular files at or under `path`."""

    def is_gone(self, file: KnownFile) -> bool:
        """Whether it is proven that `file` lies at its place no more.

        The folder of that place, or the nearest above it that is there, is on the file's device and has no such name, or has
        another file by it. False where that can't be told, as of a disk that is not mounted.
        """

    def files(self, path: Path, members: Sequence[Path] = ()) -> tuple[OnDisk, ...]:
        """The regular files of a checkpoint, in order of path: of `path`, or of `members` where it consists of these.

        A `path` that is a link is what it names, as it is where it lands. Raises NotFound, Denied.
        """

    def require_keepable(self, path: Path, members: Sequence[Path] = ()) -> None:
        """Raises Refused where no tier could keep what lies there, however long one waits. Reads no bytes.

        For names, for links that lead out, for anything that is no file, directory or link. Also NotFound, Denied.
        """

    def last_change(self, paths: Iterable[Path]) -> datetime | None:
        """When anything at or under `paths`, directories too, was written last; None where nothing is there."""

    def survey(self, root: Path) -> Survey | None:
        """All directories at or under `root`, and the regular files in them, as they are. Nothing is followed below `root`.

        None where that could not tell what changes: something can't be read, there are a million of them, or the file system
        is one whose directories' times tell nothing.
        """

    def same(self, before: Survey) -> bool:
        """Whether all that `before` names is as it was. No directory is listed for it."""

    def digest(self, path: Path) -> str:
        """Of one regular file, as a manifest has it. Reads all of it. Raises NotFound, Denied."""

    def write_run_file(self, path: Path, run_file: RunFile) -> None: ...

    def read_run_file(self, path: Path) -> RunFile | None: ...

    def spooled(self, spool: Path) -> Iterator[Spooled]:
        """In order of step. A malformed spool file is moved to `rejected/` beside it, never lost, never in the way."""

    def announcing(self, spools: Path) -> tuple[str, ...]:
        """Names of runs, sorted, of which anything lies in the folder of that name in `spools`; others are passed over."""

    def unspool(self, spooled: Spooled) -> None: ...

    def with_reads(self, spool: Path, attempt: str, data: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
        """The references with what the attempt's processes noted that they read of each; the evidence is `read` then."""

    def exists(self, path: Path) -> bool: ...

    def not_to_take(self, announcement: Path, paths: Sequence[Path], *, inside: Sequence[Path]) -> str | None:
        """Why what the spool file `announcement` names is not taken; None where it is.

        It lies in one of the directories `inside`, links resolved, where there are any; and all files at `paths` belong to the
        user who owns the spool file, or may be read by him by their modes: else anybody who may announce could have any file
        of this machine copied to where others read it.
        """

    def save_json(self, path: Path, value: JSON) -> None:
        """By atomic rename, durable."""

    def load_json(self, path: Path) -> JSON:
        """What `save_json` wrote there; None where there is nothing, or nothing that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A regular file's identity. A file keeps it under any name until it is written.

    inode: 0 where the mount gives no lasting numbers. mark: what another file can't have though it got the inode's number
    and was given the same size and times: its birth time, else a hash of its ends. Empty: nobody looked.

    What follows is of the look at it, no part of who it is. ctime_ns: as it was before its bytes were read; 0: not known. It
    can't be set: while it stands nothing was written, and where it moved on, only the bytes tell whether something was.
    place: its path. digest: of its bytes as a manifest has it; empty: they were not read.
    """

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    mark: str = ""
    ctime_ns: int = field(default=0, compare=False)
    place: str = field(default="", compare=False)
    digest: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDisk:
    """A regular file of a checkpoint as it lies there. path: as its manifest would say. names: hard links to it."""

    path: str
    file: KnownFile
    names: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What was last resumed or opened in a directory: whose saves are found there."""

    run: str
    timeline: int
    attempt: str
    sequence: int


class Journal(Protocol):
    """What this node remembers of its own disk; not history. Durable before it returns. Losing it loses no checkpoint."""

    def remember(self, files: Iterable[KnownFile], *, record: str, why: str) -> None:
        """These files are of a record: committed, restored, its pointer or a copy (`why`). They are never committed again.

        Never of files that are in no record: whoever remembered those would make them be lost. Other files that had an inode's
        number before are forgotten: there is one at a time.
        """

    def known(self, file: KnownFile) -> str | None:
        """The record a file belongs to, or None. None, too, of one that is `doubtful`, unless it comes with the digest it had."""

    def all_known(self, files: Iterable[KnownFile], *, at: datetime | None = None) -> bool:
        """Whether every one belongs to a record; True of none. Cheap for many. at: notes that they were seen then."""

    def doubtful(self, files: Iterable[KnownFile]) -> tuple[KnownFile, ...]:
        """Those that a record had, and whose ctime moved on since their bytes were read: they may have been written in place.

        One that was remembered without a digest is never among them.
        """

    def confirm(self, file: KnownFile) -> None:
        """`file` was read just now, and comes with its digest: it is known as it is now, or forgotten where the bytes differ."""

    def unseen_files(self, before: datetime) -> Iterator[KnownFile]:
        """Files that no look came upon since, with the place where they were last. Drawn from while others write."""

    def forget_files(self, files: Iterable[KnownFile]) -> None:
        """They are proven to be gone. One that was seen or remembered since it was answered by `unseen_files` stays."""

    def note_digest(self, file: KnownFile, digest: str) -> None:
        """Its digest, so that it need not be read again. Of very many, those of the oldest files may be forgotten."""

    def digest(self, file: KnownFile) -> str | None:
        """What `note_digest` was told of this very file, its ctime included."""

    def bind_directory(self, path: Path, directory: Directory) -> None:
        """From now on finds in `path` belong to this attempt. Links are followed: it is the same under another name."""

    def directory(self, path: Path) -> Directory | None: ...

    def looked(self, key: str, *, at: datetime) -> datetime | None:
        """Notes a look at `key` (a branch, a tier) and answers when the previous one was."""

    def last_looked(self, key: str) -> datetime | None: ...

    def forget_looks(self, prefix: str, *, before: datetime) -> None:
        """Of keys that begin with `prefix` those looked at last before then: what was found out by these is found out anew."""

    def saw(self, source: str, tips: Mapping[str, str]) -> None:
        """That `source` knows these tips of the ledger: branch -> revision, each in place of what it knew of that branch.

        Survives kill -9 at once and power loss a moment later: it stands in the way of no append.
        """

    def seen(self, branch: str | None = None) -> tuple[Seen, ...]:
        """All that `saw` was told, of one branch or of all."""

    def forget_seen(self, seen: Iterable[Seen]) -> None:
        """What is known to be lost for good, or to be part of the ledger by now."""
