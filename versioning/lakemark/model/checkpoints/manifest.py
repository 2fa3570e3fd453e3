"""A checkpoint's manifest: which files it has, their digests, and whether training can go on from it.

`lakemark.manifest/1`, as JSON:

    {"format": "lakemark.manifest/1", "part_size_bytes": 67108864, "framework": "generic", "roles": ["weights"],
     "resumable": null, "gaps": [], "files": [{"path": "a/w.npz", "type": "file", "size_bytes": 5, "executable": false,
     "digest": "<64 hex>", "role": "weights"}, {"path": "best", "type": "symlink", "target": "a"}, …]}

Digests are BLAKE3. A file of one part has the digest of its bytes; a larger one the digest of its parts' digests
(binary, concatenated, each part `part_size_bytes` but the last), listed in `parts`, so that parts verify in any order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Final, Self, TypeAlias

from lakemark.errors import Corrupt, Refused
from lakemark.model.values.canonical import JSON, digest
from lakemark.model.values.codec import LEFT_OUT, REQUIRED, As, Coded, Size, read, write
from lakemark.model.values.outside import bounded, permissions

FORMAT: Final = "lakemark.manifest/1"
PART_SIZE_BYTES: Final = 64 * 2**20
_LARGEST_PART_BYTES: Final = 2**30
"""Some readers hold a part in memory."""
NEEDED_TO_RESUME: Final = ("weights", "optimizer", "scheduler", "rng")
HEX64: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
# A checkpoint with a `.git` or `.dvc` in it would be taken for a repository by whoever restores it.
_RESERVED: Final = frozenset({".git", ".dvc", ".dvcignore"})
# ext4, XFS and SeaweedFS take no longer ones.
_LONGEST_NAME_BYTES: Final = 255
# PATH_MAX is 4,096, with room for the directory that it is restored into.
_LONGEST_PATH_BYTES: Final = 4000
# As Linux gives up (MAXSYMLINKS).
_MOST_LINKS: Final = 40


Rights: TypeAlias = Annotated[int, As(permissions, "{:03o}".format)]
"""Of a file or directory; three octal digits in JSON."""
_OF_REGULAR: Final = ("size_bytes", "executable", "digest", "role", "parts", "mode")


def _part_size(value: int) -> int:
    return bounded(value, least=1, most=_LARGEST_PART_BYTES, what="it")


class FileType(StrEnum):
    """What a path of a checkpoint is. Directories are listed only where empty; the others follow from paths."""

    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"


class Role(StrEnum):
    """What a file is to training. Other words, from newer versions, are carried along as text.

    TRAINER: the trainer's own state, such as counters and history.
    """

    WEIGHTS = "weights"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    RNG = "rng"
    DATALOADER = "dataloader"
    TRAINER = "trainer"
    CONFIG = "config"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class File(Coded, what="a manifest's file"):
    """One path of a checkpoint. `size_bytes`, `digest` and `parts` are of regular files; `target` is of symlinks.

    mode: the rights a regular file was saved with, where they are not 0644, of an executable 0755. No part of what makes
    contents equal: the same bytes with other rights are the same checkpoint.
    """

    path: str
    type: FileType = FileType.FILE
    size_bytes: Size = 0
    executable: bool = False
    digest: str | None = None
    role: str = Role.OTHER
    parts: tuple[str, ...] = field(default=(), metadata=LEFT_OUT)
    target: str | None = field(default=None, metadata=LEFT_OUT)
    mode: Rights | None = field(default=None, compare=False, metadata=LEFT_OUT)
    extra: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def rights(self) -> int:
        """The most that somebody who brings it back may grant."""
        if self.mode is not None:
            return self.mode
        return 0o755 if self.executable else 0o644

    def __post_init__(self) -> None:
        check_path(self.path)
        if self.type is FileType.FILE:
            _check_digests(self)
        elif self.type is FileType.SYMLINK:
            check_target(self.path, self.target)

    def as_json(self) -> dict[str, JSON]:
        value = write(self)
        if self.type is not FileType.FILE:
            for name in _OF_REGULAR:
                value.pop(name, None)
        return value

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt."""
        try:
            return read(cls, value)
        except (ValueError, Refused) as error:
            raise Corrupt(f"a manifest's file can't be read: {error}", advice=_DAMAGED) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Coded, what="a manifest", document=FORMAT):
    """All files of a checkpoint, sorted by path, and the judgement made of them once, at the source.

    resumable: True or False where the framework was recognised, None where that is unknown.
    gaps: what is missing to resume, in words.
    folders: rights of directories that were not 0755, by path; `.` is the checkpoint's own. As `File.mode`, no content.
    """

    # Parts are read into memory: a hostile manifest must not ask for more.
    part_size_bytes: Annotated[int, _part_size] = field(default=PART_SIZE_BYTES, metadata=REQUIRED)
    framework: str = "generic"
    roles: tuple[str, ...] = ()
    resumable: bool | None = None
    gaps: tuple[str, ...] = ()
    files: tuple[File, ...]
    folders: Mapping[str, Rights] = field(default_factory=dict, compare=False, metadata=LEFT_OUT)
    extra: Mapping[str, JSON] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = [file.path for file in self.files]
        # Sorted, because the digest goes over the list: any order of a walk must give the same checkpoint.
        if paths != sorted(set(paths)):
            object.__setattr__(self, "files", _sorted_once(self.files))
        # Here, not where it is read: no manifest that leads out of its checkpoint can be made at all.
        _check_tree(self.files)
        if self.folders:
            # Only of directories that these files make: no other path may be reached by it, whoever wrote it down.
            known = {".", *(file.path for file in self.files if file.type is FileType.DIRECTORY)}
            for file in self.files:
                parts = file.path.split("/")
                known.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
            object.__setattr__(self, "folders", {path: mode for path, mode in self.folders.items() if path in known})

    @property
    def size_bytes(self) -> int:
        """Of all regular files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def regular(self) -> tuple[File, ...]:
        return tuple(file for file in self.files if file.type is FileType.FILE)

    @property
    def content(self) -> str:
        """Digest over paths, types, sizes, executable bits, file digests and link targets: what makes contents equal."""
        rows: list[JSON] = [
            # Not roles, modes or the framework: judged anew or copied by another account it stays the same checkpoint.
            [file.path, file.type.value, file.size_bytes, file.executable, file.digest or file.target]
            for file in self.files
        ]
        return digest(rows)

    def below(self, name: str) -> Self:
        """What lies in its directory `name`, as a manifest of its own."""
        inside = f"{name}/"
        files = tuple(
            replace(file, path=file.path[len(inside) :]) for file in self.files if file.path.startswith(inside)
        )
        folders = {"." if path == name else path[len(inside) :]: mode for path, mode in self.folders.items()
                   if path == name or path.startswith(inside)}  # fmt: skip
        return replace(self, files=files, folders=folders)

    def judged(self, *, framework: str, roles: Iterable[str], resumable: bool | None, gaps: Iterable[str]) -> Self:
        """The same files with a recogniser's judgement."""
        found = set(roles)
        # In a fixed order: the same judgement must be the same bytes.
        ordered = (*(role.value for role in Role if role in found), *sorted(found.difference(Role)))
        return replace(self, framework=framework, roles=ordered, resumable=resumable, gaps=tuple(gaps))

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt for anything that is not a manifest of this format."""
        try:
            # Empty is never whole: a list that was lost must not read as a checkpoint of nothing.
            if isinstance(value, Mapping) and not value.get("files"):
                raise ValueError("a manifest without files")
            made = read(cls, value)
            _check_parts(made)
        except (ValueError, Refused) as error:
            raise Corrupt(f"a manifest can't be read: {error}", advice=_DAMAGED) from error
        return made


_DAMAGED: Final = "Another replica or the ledger has this manifest too: run `lakemark verify`."


def check_path(path: str) -> None:
    """Refused unless `path` is relative, UTF-8, `/`-separated, without empty, `.` or `..` parts and reserved names."""
    try:
        # Bytes of a name that are no UTF-8 come from the file system as surrogates.
        encoded = path.encode()
    except UnicodeEncodeError:
        raise Refused(
            f"the name {path!r} is not UTF-8", advice="Rename the file: DVC and S3 can't keep such a name."
        ) from None
    parts = path.split("/")
    rule = None
    # An absolute path has an empty first part.
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        rule = "is not a plain relative path"
    elif _RESERVED.intersection(parts):
        rule = "uses a name that is reserved (.git, .dvc, .dvcignore)"
    elif len(encoded) > _LONGEST_PATH_BYTES or any(len(part.encode()) > _LONGEST_NAME_BYTES for part in parts):
        rule = f"is too long (a name {_LONGEST_NAME_BYTES} bytes, a path {_LONGEST_PATH_BYTES})"
    if rule:
        raise Refused(f"the path {path[:200]!r} {rule}", advice="Save the checkpoint without that file, or rename it.")


def check_target(path: str, target: str | None) -> None:
    """Refused unless a link at `path` to `target` stays inside its checkpoint."""
    depth = path.count("/")
    inside = bool(target) and not str(target).startswith("/") and "\0" not in str(target)
    for part in str(target).split("/") if inside else ():
        # Step by step: `a/../../x/y` ends inside by its count and leads out on the way.
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        inside = inside and depth >= 0
    if not inside:
        raise _leads_out(path, target)


def check_links(links: Mapping[str, str]) -> None:
    """Refused unless every link stays inside, followed as the kernel follows it: through other links, step by step.

    links: path -> target. `a/b -> .` and `a/c -> b/../../x` are each inside as they are written, and lead out together.
    """
    for path, target in links.items():
        # A relative target is read from the folder that the link lies in.
        here = path.split("/")[:-1]
        todo = [part for part in reversed(target.split("/")) if part not in ("", ".")]
        followed = 0
        while todo:
            part = todo.pop()
            if part == "..":
                if not here:
                    raise _leads_out(path, target)
                here.pop()
                continue
            here.append(part)
            onward = links.get("/".join(here))
            if onward is None:
                continue
            followed += 1
            if followed > _MOST_LINKS:  # the kernel gives up as well: nothing is reached through it
                break
            # The link itself is replaced by what it names.
            here.pop()
            todo += [part for part in reversed(onward.split("/")) if part not in ("", ".")]


def _leads_out(path: str, target: str | None) -> Refused:
    return Refused(
        f"the symlink {path!r} -> {target!r} leads outside its checkpoint",
        advice="Replace the link by the file it names, or make it relative to the checkpoint.",
    )


def _check_digests(file: File) -> None:
    if file.size_bytes < 0:
        message = f"{file.path!r} has the size {file.size_bytes}"
        raise ValueError(message)
    for text in (file.digest, *file.parts):
        if text is None or not HEX64.fullmatch(text):
            message = f"{file.path!r} has the digest {text!r}, not 64 lower-case hex digits"
            raise ValueError(message)


def _check_parts(manifest: Manifest) -> None:
    """As many part digests as the size has parts: whoever reads part by part goes by both."""
    for file in manifest.regular:
        # An empty file is one part, and a file of one part lists none.
        count = max(1, -(-file.size_bytes // manifest.part_size_bytes))
        if len(file.parts) != (count if count > 1 else 0):
            message = f"{file.path!r} has {file.size_bytes} bytes and {len(file.parts)} part digests"
            raise ValueError(message)


def _check_tree(files: tuple[File, ...]) -> None:
    check_links({file.path: str(file.target) for file in files if file.type is FileType.SYMLINK})
    leaves = {file.path for file in files}
    for path in leaves:
        parent = path
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            # Restoring it would write through whatever came first, a link for example.
            if parent in leaves:
                raise Refused(
                    f"{parent!r} is both a file and a directory", advice="The manifest is damaged: verify it."
                )


def _sorted_once(files: tuple[File, ...]) -> tuple[File, ...]:
    by_path = {file.path: file for file in files}
    if len(by_path) != len(files):
        message = "a path is listed twice"
        raise ValueError(message)
    return tuple(by_path[path] for path in sorted(by_path))
