"""Where the bytes of a role lie in files that mix roles: PyTorch DCP's data files, by the `.metadata` beside them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from lakemark.errors import Corrupt, NotFound, quoted
from lakemark.formats.readers import dcp_metadata
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.pickle_stream import Unfit
from lakemark.model.checkpoints.manifest import File, Manifest, Role
from lakemark.ports import Range

_DATA: Final = ".distcp"


def index_files(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Each `.metadata` with the data files beside it, unless these are all of one role: then there is nothing to take apart."""
    by_folder: dict[str, list[File]] = {}
    for file in manifest.regular:
        if file.path.endswith(_DATA):
            by_folder.setdefault(file.path.rpartition("/")[0], []).append(file)
    there = {file.path for file in manifest.regular}
    named = {f"{folder}/{dcp_metadata.NAME}".lstrip("/"): files for folder, files in by_folder.items()}
    return {
        index: tuple(file.path for file in files)
        for index, files in named.items()
        # Files of one role besides `other` are restored or left out whole.
        if index in there and len({str(file.role) for file in files} - {Role.OTHER.value}) != 1
    }


def ranges(tree: Path, manifest: Manifest, roles: Collection[str]) -> dict[str, tuple[Range, ...]]:
    """Path of each data file -> what of it is of `roles`. Raises Corrupt, NotFound."""
    found: dict[str, tuple[Range, ...]] = {}
    seen: set[str] = set()
    for index, data in index_files(manifest).items():
        folder = index.rpartition("/")[0]
        metadata = _read(tree, index)
        seen |= metadata.present
        named = {f"{folder}/{path}".lstrip("/"): rows for path, rows in dcp_metadata.ranges(metadata, roles).items()}
        # Before any byte is fetched: a range of a file that is not in the manifest can't be verified.
        lost = next((path for path in named if path not in data), None)
        if lost is not None:
            raise Corrupt(
                f"{quoted(index)} names {quoted(lost)}, which the checkpoint does not have",
                advice="Restore another record; this one is not whole.",
            )
        found |= {path: tuple(named.get(path, ())) for path in data}
    if not any(found.values()):
        raise NotFound(
            f"nothing in it is of the role {', '.join(roles)}; there is {', '.join(sorted(seen)) or 'nothing'}",
            advice="Restore the whole checkpoint, or another role.",
        )
    return found


def _read(tree: Path, index: str) -> dcp_metadata.DcpMetadata:
    folder, _, name = index.rpartition("/")
    try:
        return dcp_metadata.read(Folder.of(tree / folder), name)
    except (Unreadable, Unfit) as error:
        raise Corrupt(
            f"{quoted(index)} can't be read: {error}", advice="Restore the whole checkpoint; drill another record."
        ) from error
