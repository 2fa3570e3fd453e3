"""The ledger as one file: a Git bundle, from which `git fetch` brings every branch and tag back."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from lakemark.adapters.disk.files import make_directories, os_errors
from lakemark.adapters.git import objects as git_objects
from lakemark.adapters.git.nodes import NODES
from lakemark.errors import Corrupt, quoted

_SIGNATURE: Final = b"# v2 git bundle\n"
_STEP_BYTES: Final = 2**20


@contextmanager
def bundled(path: Path, *, since: Collection[str] = ()) -> Iterator[BinaryIO]:
    """All references but heartbeats, and what they reach, in a file on the ledger's file system.

    Raises Corrupt for damaged objects.

    since: commits; what they reach is left out, with the references that lead no further.

    Not by `git bundle create`: what it takes over from packs it does not look at, and a copy with a damaged object in it
    would replace the sound one that a tier has. Git compares checksums where it packs into a file.
    """
    with os_errors(path):
        git_objects.put_back(path)  # what a git program pruned: this one knows of no copies
        make_directories(path / "lakemark")
    with os_errors(path), tempfile.TemporaryDirectory(dir=path / "lakemark", prefix="bundling.") as folder:
        every = _git(path, ["show-ref", "--head"]).decode().splitlines()
        references = [line for line in every if not line.partition(" ")[2].startswith(NODES)]
        wanted = "".join(f"{line.partition(' ')[0]}\n" for line in references)
        needed: list[str] = []
        if since:
            wanted += "".join(f"^{revision}\n" for revision in sorted(since))
            # Boundary commits, which have a minus before them, are what the copy goes on from: its head says so in the same form.
            new = _git(path, ["rev-list", "--boundary", "--stdin"], given=wanted.encode()).decode().split()
            needed = [line for line in new if line.startswith("-")]
            references = [line for line in references if line.partition(" ")[0] in set(new)]
        command = ["pack-objects", "--revs", "--quiet", "--delta-base-offset", f"{folder}/all"]
        name = _git(path, command, given=wanted.encode()).decode().strip()
        pack = Path(folder) / f"all-{name}.pack"
        with tempfile.TemporaryFile(dir=folder) as file:
            # The head as `git bundle` writes it: needed commits, references, an empty line; then the pack.
            file.write(_SIGNATURE + "".join(f"{line}\n" for line in (*needed, *references)).encode() + b"\n")
            with pack.open("rb") as packed:
                shutil.copyfileobj(packed, file, _STEP_BYTES)
            file.seek(0)
            yield file


def _git(path: Path, arguments: list[str], *, given: bytes = b"") -> bytes:
    """What git answers. Raises Corrupt with what it said."""
    made = subprocess.run(["git", "--git-dir", str(path), *arguments], check=False, input=given, capture_output=True)
    if made.returncode:
        raise Corrupt(
            f"the ledger {path} can't be bundled: {quoted(made.stderr.decode(errors='replace'), limit=300)}",
            advice="Run `git fsck` there.",
        )
    return made.stdout
