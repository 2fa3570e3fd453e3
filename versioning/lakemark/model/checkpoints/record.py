"""A record: what binds a checkpoint's manifest to the data it was trained with, its code and its parent.

`lakemark.record/1`. The id is sha256 over the canonical JSON of (run, timeline, step, content digest): committing the
same bytes again is the same record, and binding data to it later does not change it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from lakemark.errors import Corrupt
from lakemark.model.checkpoints.manifest import HEX64, Manifest
from lakemark.model.values.canonical import JSON, digest
from lakemark.model.values.fields import Fields, shared
from lakemark.model.values.instants import to_text
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
class DataRef:
    """One data version a checkpoint was trained with, over the steps [from_step, to_step] (None: open end).

    commit: the 64 hex digits a branch resolved to before the process read, never a branch or tag name.
    branch: the branch asked for then; what it points to now does not matter.

    `dvc`: repository and commit of Git, the path of the output there, its md5. `fingerprint`: the path of a local directory,
    the digest of all its files (64 hex), how many there are and their bytes. Of other kinds these are None, and not written.
    """

    kind: str = DataKind.LAKEFS
    repository: str = ""
    branch: str | None = None
    commit: str = ""
    evidence: str = Evidence.DECLARED
    from_step: int | None = None
    to_step: int | None = None
    path: str | None = None
    digest: str | None = None
    md5: str | None = None
    files: int | None = None
    size_bytes: int | None = None
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

    def as_json(self) -> dict[str, JSON]:
        more = {
            "path": self.path,
            "digest": self.digest,
            "md5": self.md5,
            "files": self.files,
            "size_bytes": self.size_bytes,
        }
        value: dict[str, JSON] = {
            "kind": str(self.kind),
            "repository": self.repository,
            "branch": self.branch,
            "commit": self.commit,
            "evidence": str(self.evidence),
            "from_step": self.from_step,
            "to_step": self.to_step,
        }
        # Not as null: a lakeFS reference has none of them, and most references are that.
        return value | {name: one for name, one in more.items() if one is not None} | dict(self.extra)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        read = Fields(value, "a data reference")
        return cls(
            kind=read.text("kind"),
            repository=read.text("repository", default=""),
            branch=read.optional_text("branch"),
            commit=read.text("commit", default=""),
            evidence=read.text("evidence", default=Evidence.DECLARED.value),
            from_step=read.optional_size("from_step"),
            to_step=read.optional_size("to_step"),
            path=read.optional_text("path"),
            digest=read.optional_text("digest"),
            md5=read.optional_text("md5"),
            files=read.optional_size("files"),
            size_bytes=read.optional_size("size_bytes"),
            extra=read.rest(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The code that trained: a Git repository's address or path, its commit, and whether the tree had other changes."""

    repository: str
    commit: str
    dirty: bool | None = None

    def as_json(self) -> dict[str, JSON]:
        return {"repository": self.repository, "commit": self.commit, "dirty": self.dirty}

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        read = Fields(value, "a code reference")
        return cls(repository=read.text("repository"), commit=read.text("commit"), dirty=read.optional_flag("dirty"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One checkpoint of one run at one step in one timeline. See the module for the id.

    content: the manifest's content digest. saved_at: when the trainer finished it, by its node's clock.
    parent: the record training went on from. supersedes: the record this one replaces (it was taken too early).
    """

    run: str
    timeline: int
    step: int
    content: str
    saved_at: datetime
    node: str
    size_bytes: int
    files: int
    framework: str = "generic"
    roles: tuple[str, ...] = ()
    resumable: bool | None = None
    gaps: tuple[str, ...] = ()
    data: tuple[DataRef, ...] = ()
    code: Code | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    parent: str | None = None
    attempt: str | None = None
    supersedes: str | None = None
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

    def as_json(self) -> dict[str, JSON]:
        value: dict[str, JSON] = {
            "format": FORMAT,
            "record": self.id,
            "run": self.run,
            "timeline": self.timeline,
            "step": self.step,
            "content": self.content,
            "saved_at": to_text(self.saved_at),
            "node": self.node,
            "size_bytes": self.size_bytes,
            "files": self.files,
            "framework": self.framework,
            "roles": list(self.roles),
            "resumable": self.resumable,
            "gaps": list(self.gaps),
            "data": [ref.as_json() for ref in self.data],
            "code": None if self.code is None else self.code.as_json(),
            "metrics": dict(self.metrics),
            "parent": self.parent,
            "attempt": self.attempt,
            "supersedes": self.supersedes,
        }
        return value | dict(self.extra)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt for anything that is not a record of this format, or whose id is not that of its fields."""
        read = Fields(value, "a record")
        try:
            read.format(FORMAT)
            said = read.text("record")
            record = cls._read(read)
        except ValueError as error:
            raise Corrupt(f"a record can't be read: {error}", advice=_DAMAGED) from error
        # The id is over the fields: a record that was edited, or filed under another's name, is nobody's.
        if record.id != said:
            raise Corrupt(f"the record {said[:12]} has fields of another ({record.id[:12]})", advice=_DAMAGED)
        return record

    @classmethod
    def _read(cls, read: Fields) -> Self:
        code = read.optional_mapping("code")
        return cls(
            # A run's name becomes a folder and a branch. `shared`: thousands of records say the same.
            run=shared(run_name(read.text("run"))),
            timeline=read.integer("timeline", least=1),
            step=read.size("step"),
            content=digest_of(read.text("content")),
            saved_at=read.instant("saved_at"),
            node=shared(read.text("node")),
            size_bytes=read.size("size_bytes"),
            files=read.size("files"),
            framework=shared(read.text("framework", default="generic")),
            roles=shared(read.texts("roles")),
            resumable=read.optional_flag("resumable"),
            gaps=shared(read.texts("gaps")),
            data=shared(tuple(DataRef.from_json(item) for item in read.items("data"))),
            code=None if code is None else shared(Code.from_json(code)),
            metrics=metrics(read.mapping("metrics")),
            parent=read.optional_digest("parent"),
            attempt=shared(read.optional_text("attempt")),
            supersedes=read.optional_digest("supersedes"),
            extra=read.rest(),
        )


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


def metrics(value: Mapping[str, JSON]) -> dict[str, float]:
    """Names and finite numbers. Raises ValueError."""
    for name, number in value.items():
        # NaN and infinity have no JSON; a ledger with one could not be written again.
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            message = f"the metric {name} is {number!r}, not a finite number"
            raise ValueError(message)
    return {name: number for name, number in value.items() if isinstance(number, int | float)}
