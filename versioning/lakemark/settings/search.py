"""Which file is the configuration, and reading it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakemark.errors import Denied, Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE: Final = "lakemark.yaml"
SYSTEM: Final = Path("/etc/lakemark")
_MOST_BYTES: Final = 1 << 20


def find(explicit: Path | None, *, environ: Mapping[str, str], cwd: Path, system: Path = SYSTEM) -> Path:
    """The configuration's absolute path; relative ones count from `cwd`, a directory means the file in it.

    `explicit` > `$LAKEMARK_CONFIG` > the nearest upwards from `cwd` > `$LAKEMARK_HOME`
    > the user's configuration folder > `system`. The first two must exist. A file
    found upwards that another user owns is Denied: it could name programs to run.
    """
    for given, origin in ((explicit, "--config"), (environ.get("LAKEMARK_CONFIG"), "LAKEMARK_CONFIG")):
        if given:
            return _named(cwd / given, origin)
    # As Git looks for its repository; what is nearer is meant.
    for folder in (cwd, *cwd.parents):
        # A broken link counts as one: to pass over it would silently take another site's file.
        if os.path.lexists(folder / FILE):
            return _owned(folder / FILE)
    for folder in _folders(environ, cwd=cwd, system=system):
        if os.path.lexists(folder / FILE):
            return folder / FILE
    raise Misconfigured(
        f"found no {FILE} in {cwd} or above it, nor in the user's or the system's configuration folder",
        advice="Write one with `lakemark init`, or name one with --config or LAKEMARK_CONFIG.",
    )


def read(file: Path) -> str:
    """The file's text; Denied without the right to read, Misconfigured if it is no regular UTF-8 file of 1 MiB."""
    try:
        with file.open("rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise Misconfigured(f"{file} is not a regular file", advice="Name a file with --config.")
            content = stream.read(_MOST_BYTES + 1)
    except PermissionError:
        raise Denied(f"{file} may not be read by this user", advice="Give this user the right to read it.") from None
    except OSError as error:
        raise Misconfigured(
            f"{file} cannot be read: {error.strerror}", advice="Check the path, or name another with --config."
        ) from None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Misconfigured(f"{file}:{line} is not UTF-8 text", advice="Save the file as UTF-8.") from None


def _named(path: Path, origin: str) -> Path:
    file = path
    try:
        file = path / FILE if path.is_dir() else path
        found = os.path.lexists(file)
        if not found:
            file.lstat()  # what may not be looked for is not what does not exist
    except PermissionError:
        raise Denied(
            f"{origin} names {path}, which this user may not look at",
            advice="Give this user the right, or name another.",
        ) from None
    except (FileNotFoundError, NotADirectoryError):
        found = False
    except OSError as error:
        raise _unseen(file, error) from None
    if not found:
        raise Misconfigured(
            f"{origin} names {file}, which does not exist", advice="Mend the path, or write one with `lakemark init`."
        )
    return file


def _owned(file: Path) -> Path:
    # As Git's safe.directory: in a shared folder anybody could put a file that names commands.
    try:
        owner = file.lstat().st_uid
    except OSError as error:
        raise _unseen(file, error) from None
    if owner not in {0, os.geteuid()}:
        raise Denied(
            f"{file}, found by looking upwards, belongs to another user",
            advice=f"If you trust it, say so: --config {file}",
        )
    return file


def _unseen(file: Path, error: OSError) -> Misconfigured:
    return Misconfigured(
        f"{file} cannot be looked at: {error.strerror}", advice="Check its disk, or name another with --config."
    )


def _folders(environ: Mapping[str, str], *, cwd: Path, system: Path) -> Iterator[Path]:
    if home := environ.get("LAKEMARK_HOME"):
        yield cwd / home
    if user := environ.get("XDG_CONFIG_HOME"):
        yield Path(user) / "lakemark"
    elif home := environ.get("HOME"):
        yield Path(home) / ".config" / "lakemark"
    yield system
