"""A PyTorch DCP checkpoint, alone or as a part of another framework's: in a folder of it, or beside its own files."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from lakemark.formats.readers import dcp_metadata
from lakemark.formats.readers.dcp_metadata import DcpMetadata
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.pickle_stream import Unfit
from lakemark.formats.roles import BESIDE_WEIGHTS, EVERYTHING, of_file
from lakemark.formats.rules import sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.copies import APART_NS, copied_ns
from lakemark.model.checkpoints.manifest import Role

DATA: Final = re.compile(r"__(\d{1,7})_\d{1,7}\.distcp", re.ASCII)
RANKS_METADATA: Final = re.compile(r"__(\d{1,7})\.metadata", re.ASCII)
_TORCH: Final = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
# Of a file per rank and part there may be thousands, and opening one takes a round trip on a network file system.
_MOST_FILES: Final = 64
_SHOWN: Final = 5


def add(contents: Contents, inside: str = "", *, role: Role | None = None) -> DcpMetadata | None:
    """Judges the DCP files in the folder `inside` of a checkpoint. role: what they all are; None: what `.metadata` says.

    None where there is no one metadata to be read; unless each rank has its own, that is a problem then.
    """
    # Listed here and not taken from the whole's list: hidden names and temporary ones count.
    folder = Folder(f"{contents.folder.at}/{inside}") if inside else contents.folder
    prefix = f"{inside}/" if inside else ""
    data = [name for name in folder.files if DATA.fullmatch(name)]
    ranks = {int(match[1]) for name in data if (match := DATA.fullmatch(name))}
    if ranks:
        contents.ranks[inside or "distcp"] = len(ranks)
    read = list(_read(contents, folder, prefix, ranks))
    if role is not None:
        names = [*data, *(name for name, _ in read)]
        contents.roles.update({f"{prefix}{name}": role for name in names})
    named: set[str] = set()
    for name, metadata in read:
        if metadata is not None:
            # Where each rank has its own metadata, a data file is named by one of them.
            named.update(metadata.needed_bytes)
            contents.present.update({role} if role is not None else metadata.present)
            if role is None:
                contents.roles.update({f"{prefix}{path}": said for path, said in _of_files(metadata).items()})
            contents.problems.extend(_wrong(folder, prefix, name, metadata.needed_bytes))
    # An earlier save to this place by more ranks leaves files that no loader reads.
    if named and (rest := [name for name in data if name not in named]):
        contents.notes.append(
            f"{prefix}{rest[0]}{_more(rest)}: no .metadata names it, it may be left from another save"
        )
    return read[0][1] if len(read) == 1 else None


def look_beside(contents: Contents) -> None:
    """What files of `torch.save` hold that a training script keeps beside the data: by their names, else by their keys."""
    files = [name for name in contents.files if name.endswith(_TORCH) and name not in contents.roles]
    contents.roles.update({name: role for name in files if (role := of_file(name)) in BESIDE_WEIGHTS})
    files = [name for name in files if name not in contents.roles]
    if files:
        contents.look_into(files[:_MOST_FILES])
    contents.possible.update(EVERYTHING if len(files) > _MOST_FILES else ())


def _read(contents: Contents, folder: Folder, prefix: str, ranks: set[int]) -> Iterator[tuple[str, DcpMetadata | None]]:
    """The metadata of all, else those that ranks wrote without collectives: then each rank must have its own."""
    own = {int(match[1]): match[0] for name in folder.files if (match := RANKS_METADATA.fullmatch(name))}
    # A whole `.metadata` wins: ranks' own beside it are left from a save without collectives.
    if folder.has_file(dcp_metadata.NAME):
        names = [dcp_metadata.NAME]
    elif own:
        names = [own[rank] for rank in sorted(own)]
        lacking = sorted(ranks.difference(own))
        contents.problems.extend(f"no {prefix}__{rank}.metadata" for rank in lacking[:_SHOWN])
        # Of a rank that has written nothing at all, neither data nor metadata.
        hole = sets.holes(f"{prefix}__<rank>.metadata", {*own, *ranks})
        contents.problems.extend([hole] if hole else [])
    else:
        half = f"{dcp_metadata.NAME}.tmp" in folder.kinds
        contents.problems.append(f"{prefix}.metadata.tmp only" if half else f"no {prefix}.metadata")
        return
    for name in names:
        yield name, _metadata(contents, folder, prefix, name)


def _metadata(contents: Contents, folder: Folder, prefix: str, name: str) -> DcpMetadata | None:
    try:
        metadata = dcp_metadata.read(folder, name)
    # Not a fault of the checkpoint: it is taken as whole by its names, and may hold any role.
    except dcp_metadata.TooLarge as error:
        contents.notes.append(f"{prefix}{name}: {error}")
        contents.possible.update(EVERYTHING)
        return None
    except (Unreadable, Unfit, OSError) as error:
        contents.problems.append(f"{prefix}{name}: {error}")
        return None
    if not len(metadata):
        contents.problems.append(f"{prefix}{name}: it names no data")
    return metadata


def _of_files(metadata: DcpMetadata) -> dict[str, str]:
    """Data file -> role, of those that hold one alone."""
    return {path: role for path, said in metadata.roles_of_paths.items() if len(said) == 1 for role in said}


def _wrong(folder: Folder, prefix: str, name: str, needed: Mapping[str, int]) -> Iterator[str]:
    missing, short, newer = [], [], []
    try:
        written = folder.stat(name).st_mtime_ns
    except Unreadable as error:
        yield f"{prefix}{name}: {error}"
        return
    newest, rewritten_bytes = 0, 0
    for path, least in needed.items():
        # A `.metadata` of a stranger must not make this look at files elsewhere.
        if path.startswith("/") or ".." in path.split("/"):
            yield f"{prefix}{name} names {path[:200]!r}, which lies outside of it"
            return
        try:
            found = folder.stat(path)
        except Unreadable:
            missing.append(path)
            continue
        if not stat.S_ISREG(found.st_mode):
            yield f"{prefix}{path} is no regular file"
        elif found.st_size < least:
            short.append(f"{prefix}{path} {found.st_size} < {least} needed by {name}")
        # A save to the same place keeps the old `.metadata` until its end: newer data are then half of another step.
        if found.st_mtime_ns > written + APART_NS:
            newer.append(path)
            rewritten_bytes += found.st_size
            newest = max(newest, found.st_mtime_ns)
    yield from (f"{prefix}{path} missing, {name} names it" for path in missing[:_SHOWN])
    yield from short[:_SHOWN]
    lacking = len(missing[_SHOWN:]) + len(short[_SHOWN:])
    if lacking:
        yield f"and {lacking} more of {len(needed)}"
    # A copy that keeps no times is allowed the time that it takes; cut files beside newer ones are no copy's.
    if newer and (short or newest - written > copied_ns(rewritten_bytes)):
        yield f"{prefix}{newer[0]}{_more(newer)} newer than {name} (overwrite in place?)"


def _more(names: Iterable[str]) -> str:
    count = len(list(names)) - 1
    return f" and {count} more" if count else ""
