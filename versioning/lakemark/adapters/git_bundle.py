"""The ledger as one file: a Git bundle, from which `git fetch` brings every branch and tag back."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lakemark.adapters import git_objects
from lakemark.adapters.files import os_errors
from lakemark.errors import Corrupt, quoted


@contextmanager
def bundled(path: Path) -> Iterator[BinaryIO]:
    """All references and what they reach, in a file without a name on the ledger's own file system. Changes nothing there."""
    with os_errors(path):
        git_objects.put_back(path)  # what a git program pruned: this one knows of no copies
    command = ["git", "--git-dir", str(path), "bundle", "create", "--quiet", "-", "--all"]
    with os_errors(path), tempfile.TemporaryFile(dir=path) as file:
        made = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE)
        if made.returncode:
            raise Corrupt(
                f"the ledger {path} can't be bundled: {quoted(made.stderr.decode(errors='replace'), limit=300)}",
                advice="Run `git fsck` there.",
            )
        file.seek(0)
        yield file
