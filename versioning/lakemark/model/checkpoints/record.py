"""A record: what binds a checkpoint's manifest to the data it was trained with, its code and its parent.

`lakemark.record/1`. The id is sha256 over the canonical JSON of (run, timeline, step, content digest): committing the
same bytes again is the same record, and binding data to it later does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Self

from lakemark.errors import Corrupt
from lakemark.model.checkpoints.manifest import HEX64, Manifest
from lakemark.model.values.canonical import JSON, digest
from lakemark.model.values.codec import LEFT_OUT, REQUIRED, Coded, Digest, Number, Size, read, write
from lakemark.model.values.fields import shared
from lakemark.model.values.outside import digest as digest_of, object_name, run_name

FORMAT: Final = "lakemark.record/1"


class DataKind(StrEnum):
    """Where a data version lives. A `fingerprint` detects, and can't bring back. Nothing writes it or `dvc` yet."""

    LAKEFS = "lakefs"
    DVC = "dvc"
    FINGERPRINT = "fingerprint"
    NONE = "none"


class Evidence(StrEnum):
    """How a data reference is known, strongest first.

    read: the process read it through our reader. opened: the process that saved had it open. declared: somebody said so.
    ambiguous: the run changed data around this save and nobody knows which side it was on; no rollback target.
    """

    READ = "read"
    OPENED = "opened"
    DECLARED = "declared"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRef(Coded, what="a data reference"):
    """One data version a checkpoint was trained with, over the steps [from_step, to_step] (None: open end).

    commit: the 64 hex digits a branch resolved to before the process read, never a branch or tag name.
    branch: the branch asked for then; what it points to now does not matter.

    `dvc`: repository and commit of Git, the path of the output there, its md5. `fingerprint`: the path of a local directory,
    the digest of all its files (64 hex), how many there are and their bytes. Of other kinds these are None, and not written.
    """

    kind: str = field(default=DataKind.LAKEFS, metadata=REQUIRED)
    repository: str = ""
    branch: str | None = None
    commit: str = ""
    evidence: str = Evidence.DECLARED
    from_step: Size | None = None
    to_step: Size | None = None
    # Not as null: a lakeFS reference has none of them, and most references are that.
    path: str | None = field(default=None, metadata=LEFT_OUT)
    digest: str | None = field(default=None, metadata=LEFT_OUT)
    md5: str | None = field(default=None, metadata=LEFT_OUT)
    files: Size | None = field(default=None, metadata=LEFT_OUT)
    size_bytes: Size | None = field(default=None, metadata=LEFT_OUT)
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        # They become parts of paths and keys: what is no digest is refused before anybody builds one.
        if self.digest is not None:
            digest_of(self.digest)
        if self.md5 is not None:
            object_name(self.md5)
        if self.kind == DataKind.LAKEFS and not HEX64.fullmatch(self.commit):
            message = f"{self.commit!r} is not a lakeFS commit id: 64 lower-case hex digits"
            raise ValueError(message)

    @property
    def uri(self) -> str:
        """`lakefs://repository/commit/`, what a trainer reads from."""
        return f"lakefs://{self.repository}/{self.commit}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code(Coded, what="a code reference"):
    """The code that trained: a Git repository's address or path, its commit, and whether the tree had other changes."""

    repository: str
    commit: str
    dirty: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Coded, what="a record", document=FORMAT):
    """One checkpoint of one run at one step in one timeline. See the module for the id.

    content: the manifest's content digest. saved_at: when the trainer finished it, by its node's clock.
    parent: the record training went on from. supersedes: the record this one replaces (it was taken too early).
    announced: its own process said what it is; else that was worked out.
    """

    # A run's name becomes a folder and a branch. `shared`: thousands of records say the same.
    run: Annotated[str, run_name, shared]
    timeline: Number
    step: Size
    content: Digest
    saved_at: datetime
    node: Annotated[str, shared]
    size_bytes: Size
    files: Size
    framework: Annotated[str, shared] = "generic"
    roles: Annotated[tuple[str, ...], shared] = ()
    resumable: bool | None = None
    gaps: Annotated[tuple[str, ...], shared] = ()
    data: Annotated[tuple[DataRef, ...], shared] = ()
    code: Annotated[Code, shared] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    parent: Digest | None = None
    attempt: Annotated[str, shared] | None = None
    supersedes: Digest | None = None
    announced: bool = field(default=False, metadata=LEFT_OUT)
    extra: Mapping[str, JSON] = field(default_factory=dict)
    _id: str = field(default="", init=False, repr=False, compare=False)

    @property
    def id(self) -> str:
        if not self._id:
            # Worked out once: it is asked for thousands of times in a pass.
            object.__setattr__(self, "_id", record_id(self.run, self.timeline, self.step, self.content))
        return self._id

    @property
    def bound(self) -> bool:
        """Whether the data it was trained with is known: only then it can be a rollback target."""
        # Of several data versions each must be known: half of them brought back is the wrong data.
        return bool(self.data) and all(
            ref.evidence != Evidence.AMBIGUOUS and ref.kind != DataKind.NONE for ref in self.data
        )

    def with_data(self, data: tuple[DataRef, ...]) -> Self:
        return replace(self, data=data)

    def with_metrics(self, metrics: Mapping[str, float]) -> Self:
        return replace(self, metrics=metrics)

    def as_json(self) -> dict[str, JSON]:
        return {"format": FORMAT, "record": self.id} | write(self)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt for anything that is not a record of this format, or whose id is not that of its fields."""
        fields = dict(value) if isinstance(value, Mapping) else {}
        said = fields.pop("record", None)
        try:
            record = read(cls, fields)
        except ValueError as error:
            raise Corrupt(f"a record can't be read: {error}", advice=_DAMAGED) from error
        # The id is over the fields: a record that was edited, or filed under another's name, is nobody's.
        if record.id != said:
            raise Corrupt(f"the record {said!s:.12} has fields of another ({record.id[:12]})", advice=_DAMAGED)
        return record


def require_own(record: Record, manifest: Manifest) -> Manifest:
    """`manifest`, if it is the one that `record` is named after. Raises Corrupt.

    The id is derived from the run, timeline, step and content digest; so whoever has the id from somebody else has the
    files, sizes and digests proven by it, wherever both were read.
    """
    if record_id(record.run, record.timeline, record.step, manifest.content) != record.id:
        raise Corrupt(
            f"the manifest beside {record.run}@{record.step} is not that of the record {record.id[:12]}",
            advice="No byte was used. Take the checkpoint from a tier, a node or a ledger that has the right one.",
        )
    return manifest


_DAMAGED: Final = "Every tier keeps a copy of each record: run `lakemark verify`."


def record_id(run: str, timeline: int, step: int, content: str) -> str:
    """64 hex digits. `content` is `Manifest.content`."""
    return digest({"run": run, "timeline": timeline, "step": step, "content": content})


def record_for(manifest: Manifest, *, run: str, timeline: int, step: int, saved_at: datetime, node: str) -> Record:
    """A record of `manifest`, yet without data, code, metrics, parent and attempt (`dataclasses.replace` adds them)."""
    return Record(
        run=run,
        timeline=timeline,
        step=step,
        content=manifest.content,
        saved_at=saved_at,
        node=node,
        size_bytes=manifest.size_bytes,
        files=len(manifest.files),
        framework=manifest.framework,
        roles=manifest.roles,
        resumable=manifest.resumable,
        gaps=manifest.gaps,
    )
