"""The flows and prefect.yaml that the wheel carries as data, and writing them beside a site's lakemark.yaml.

Prefect imports flows from a folder and shows people its file: both are the site's to read and to edit. What nobody edited
follows the installed version; what somebody edited stays as it is and is named.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import lakemark
from lakemark.errors import Denied, Misconfigured, NotFound, quoted

__all__ = ["FILE", "Exported", "carried", "edited", "ensure", "export", "left_behind"]

FILE: Final = "prefect.yaml"
_FLOWS: Final = "flows"
_NOTE: Final = Path(_FLOWS, ".exported.json")
"""What an export wrote: how the next one tells its own files from edited ones."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Names below `folder`: `written` now, `same` already, `edited` by somebody and left alone."""

    folder: Path
    written: tuple[str, ...]
    same: tuple[str, ...]
    edited: tuple[str, ...]


def carried() -> Path:
    """The folder with `prefect.yaml` and `flows/` of this version: in the wheel, else in the checkout. Raises NotFound."""
    package = Path(lakemark.__file__).resolve().parent
    places = (package / "carried", package.parents[1])
    found = next((place for place in places if (place / FILE).is_file() and (place / _FLOWS).is_dir()), None)
    if found is None:
        raise NotFound(
            f"this installation of lakemark carries no {FILE}", advice="Install lakemark's wheel or its checkout again."
        )
    return found


def export(folder: Path) -> Exported:
    """Writes the carried files into `folder`, each whole; again after an upgrade, what nobody edited is brought up to date.

    prefect.yaml is written last: where it lies, the flows that it names lie too. Raises Denied, Misconfigured.
    """
    source, noted = carried(), _noted(folder)
    written: list[str] = []
    same: list[str] = []
    kept: list[str] = []
    wanted = {name: (source / name).read_bytes() for name in _names(source)}
    for name, content in wanted.items():
        found = _content(folder / name)
        # Whoever wrote it: also an edited file that came to say the same.
        if found == content:
            same.append(name)
        # It is not what an export wrote: somebody's own.
        elif found is not None and noted.get(name) != _digest(found):
            kept.append(name)
        else:
            _write(folder / name, content)
            written.append(name)
    # Of all files, also of those left alone: what this version would have written, to tell edits by next time.
    ours = {name: _digest(content) for name, content in wanted.items()}
    if ours != noted:
        note = {"lakemark": lakemark.__version__, "files": ours}
        _write(folder / _NOTE, json.dumps(note, indent=1).encode() + b"\n")
    return Exported(folder=folder, written=tuple(written), same=tuple(same), edited=tuple(kept))


def ensure(folder: Path) -> tuple[Path, Exported | None]:
    """The prefect.yaml of `folder`, and what had to be exported for it.

    One that no export wrote is used as it lies. Raises as `export` does.
    """
    file = folder / FILE
    # A site that keeps its own prefect.yaml, in Git for example.
    if file.is_file() and not (folder / _NOTE).is_file():
        return file, None
    return file, export(folder)


def left_behind(folder: Path) -> tuple[str, ...]:
    """Exported files that are an earlier version's, unedited: the next export replaces them."""
    noted, source = _noted(folder), carried()
    return tuple(
        name
        for name in _names(source)
        if noted.get(name) not in (None, _digest((source / name).read_bytes()))
        and noted.get(name) == _digest(_content(folder / name) or b"")
    )


def edited(folder: Path) -> tuple[str, ...]:
    """Exported files that somebody changed since."""
    return tuple(
        name
        for name, digest in _noted(folder).items()
        if (found := _content(folder / name)) is not None and _digest(found) != digest
    )


def _names(source: Path) -> Iterator[str]:
    yield from (f"{_FLOWS}/{path.name}" for path in sorted((source / _FLOWS).glob("*.py")))
    # Last: it names the flows.
    yield FILE


def _noted(folder: Path) -> Mapping[str, str]:
    try:
        files = json.loads((folder / _NOTE).read_bytes())["files"]
        return {str(name): str(digest) for name, digest in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Without a note every file that differs counts as edited: nothing is overwritten.
        return {}


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None


def _write(path: Path, content: bytes) -> None:
    # Beside it, so that the rename is one of the same file system.
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half.write_bytes(content)
        half.replace(path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise _unusable(path, error) from None


def _unusable(path: Path, error: OSError) -> Denied | Misconfigured:
    said = f"{quoted(str(path))} can't be used: {error.strerror or error}"
    advice = (
        "Name a folder of your own: `lakemark flows export DIR`, then `lakemark flows deploy --file DIR/prefect.yaml`."
    )
    return Denied(said, advice=advice) if isinstance(error, PermissionError) else Misconfigured(said, advice=advice)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
