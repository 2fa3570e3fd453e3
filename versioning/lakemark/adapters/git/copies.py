"""Copies of the ledger: what a bundle holds, taken into the repository without a branch moving; what a branch lacks of it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import pygit2

from lakemark.adapters.disk.files import fsync_directory, make_directories, os_errors, write_atomic
from lakemark.adapters.git import pack as git_pack, trees as git_tree
from lakemark.adapters.git.damage import place_aside, set_damaged_aside
from lakemark.adapters.git.refs import RUNS, SITE
from lakemark.errors import Corrupt, quoted
from lakemark.model.values.names import is_run

_SIGNATURES: Final = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_LINE: Final = re.compile(rb"([0-9a-f]{40}) (refs/heads/[\x21-\x7e]+)\n")
_NEEDED: Final = re.compile(rb"-([0-9a-f]{40})(?: [^\n]*)?\n")
_SHA1_BYTES: Final = 20
# A bundle comes from a tier, so from outside: no line of its head may fill the memory.
_LONGEST_LINE: Final = 4096
_STEP_BYTES: Final = 2**20
_COPY: Final = "a copy of the ledger"
"""What errors call a stream: it has no name here."""


def heads_of(copy: BinaryIO) -> dict[str, str]:
    """Branch -> commit, from the head of a bundle. Raises Corrupt, also where its disk can't read it."""
    found: dict[str, str] = {}
    for line in _head(copy):
        read = _LINE.fullmatch(line)
        branch = None if read is None else _branch(read[2].decode())
        if read is not None and branch is not None:
            found[branch] = read[1].decode()
    return found


def needs_of(copy: BinaryIO) -> tuple[str, ...]:
    """Commits that a bundle goes on from. Raises Corrupt."""
    return tuple(read[1].decode() for line in _head(copy) if (read := _NEEDED.fullmatch(line)) is not None)


def reads_whole(copy: BinaryIO) -> bool:
    """Whether the pack after the head is as it was made: a pack ends with the SHA-1 of all before it."""
    try:
        for _ in _head(copy):
            pass
    except Corrupt:
        return False
    digest, last = hashlib.sha1(usedforsecurity=False), b""
    while step := _read(copy):
        digest.update(last[:-_SHA1_BYTES])
        last = last[-_SHA1_BYTES:] + step
    digest.update(last[:-_SHA1_BYTES])
    return digest.digest() == last[-_SHA1_BYTES:]


def _head(copy: BinaryIO) -> Iterator[bytes]:
    """The lines before the pack; the empty one that ends them is read."""
    if _line(copy) not in _SIGNATURES:
        raise _no_bundle("it does not begin as one")
    while (line := _line(copy)) != b"\n":
        if not line.endswith(b"\n"):
            raise _no_bundle("its head ends early")
        yield line


def _line(copy: BinaryIO) -> bytes:
    with os_errors(_COPY):
        return copy.readline(_LONGEST_LINE)


def _read(copy: BinaryIO) -> bytes:
    with os_errors(_COPY):
        return copy.read(_STEP_BYTES)


def take(path: Path, copy: BinaryIO) -> dict[str, str]:
    """As `ports.Ledger.take`, for the repository at `path`. Raises Corrupt for what is no whole bundle."""
    with os_errors(path):
        make_directories(path / "lakemark")
        place = Path(tempfile.mkdtemp(prefix="taking.", dir=path / "lakemark"))
        try:
            bundle = place / "bundle"
            # Onto the disk first: Git wants a file, and a tier's answer can be read only once.
            with bundle.open("wb") as file:
                shutil.copyfileobj(copy, file, _STEP_BYTES)
            with bundle.open("rb") as file:
                heads = heads_of(file)
                file.seek(0)
                needs = needs_of(file)
            # In a repository of its own: beside damaged objects of the same names Git would not take the sound ones.
            aside = place / "git"
            _git(place, "init", "--quiet", "--bare", str(aside))
            if needs:  # what it goes on from is read here, once the damaged are out of the way
                set_damaged_aside(path)
                (aside / "objects" / "info" / "alternates").write_text(f"{path.absolute() / 'objects'}\n")
                # Git takes one for missing that no reference leads to.
                rows = (f"{revision} refs/needed/{number}\n" for number, revision in enumerate(needs))
                (aside / "packed-refs").write_text("".join(rows))
            # Flushed as it is written: `_move_packs` only renames.
            _git(place, "-c", "core.fsync=all", "--git-dir", str(aside), "bundle", "unbundle", str(bundle))
            set_damaged_aside(path)
            _move_packs(aside / "objects" / "pack", path / "objects" / "pack")
            git_pack.set_packs_aside(path)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return heads


def holds(repository: pygit2.Repository, tip: str, revision: str) -> bool:
    """Whether `tip` is `revision` or descends from it, by any parent. A revision that is not here is held by none."""
    if tip == revision:
        return True
    if repository.get(revision) is None:
        return False
    # By any parent: where two copies of a ledger were joined, the other's entries hang on a second one.
    try:
        return repository.descendant_of(tip, revision)
    except KeyError as error:  # on the way back an entry is missing
        raise git_tree.unread(repository, f"the object {error}") from error


def beyond(repository: pygit2.Repository, tip: str | None, revision: str) -> list[str]:
    """Commits from the first up to `revision`, by first parents, that `tip` does not hold, the oldest first."""
    chain = git_tree.commits_after(repository, revision, None) or []
    if tip is None:
        return chain
    low, high = 0, len(chain)
    # What a tip holds is a beginning of the chain: an entry comes with all that were before it.
    while low < high:
        middle = (low + high) // 2
        if holds(repository, tip, chain[middle]):
            low = middle + 1
        else:
            high = middle
    return chain[low:]


def is_whole(path: Path) -> bool:
    """Whether Git finds nothing wrong with what references lead to."""
    command = ["git", "--git-dir", str(path), "fsck", "--full", "--no-dangling", "--no-progress", "--no-reflogs"]
    with os_errors("git"):
        return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def reads(repository: pygit2.Repository, tip: str) -> bool:
    """Whether every entry up to `tip` can be read, so that the branch can be folded; manifests may be missing."""
    try:
        return all(
            git_tree.read_row(repository, commit) for commit in git_tree.commits_after(repository, tip, None) or []
        )
    except (Corrupt, pygit2.GitError, KeyError, ValueError):
        return False


def set_reference_aside(path: Path, name: str) -> None:
    """Takes a reference away, durably; what it said is kept beside the repository's damaged objects."""
    with os_errors(path):
        if (path / name).exists():
            os.rename(path / name, place_aside(path, name))
            fsync_directory((path / name).parent)
        # The file first, then its packed line: that would come to light as an older state once the file is gone.
        packed = path / "packed-refs"
        if packed.exists():
            lines = packed.read_bytes().splitlines(keepends=True)
            write_atomic(
                packed, b"".join(line for line in lines if line.rstrip(b"\n").partition(b" ")[2] != name.encode())
            )


def _branch(reference: str) -> str | None:
    """The branch a full reference name stands for; None for others' references, which a bundle may hold too."""
    if reference == SITE:
        return "site"
    name = reference.removeprefix(RUNS)
    return name if name != reference and is_run(name) else None


def _move_packs(source: Path, target: Path) -> None:
    make_directories(target)
    # The index last: a pack is seen by it.
    for suffix in (".pack", ".rev", ".idx"):
        for file in sorted(source.glob(f"pack-*{suffix}")):
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(file, target / file.name)
        fsync_directory(target)


def _git(place: Path, *arguments: str) -> None:
    """Runs git in `place`. Raises Corrupt with what it said."""
    # GIT_DIR and the like, as a hook that called us has them, would turn these commands to another repository.
    environ: Mapping[str, str] = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    made = subprocess.run(
        ["git", *arguments], check=False, stdin=subprocess.DEVNULL, capture_output=True, env=environ, cwd=place
    )
    if made.returncode:
        raise _no_bundle(quoted(made.stderr.decode(errors="replace"), limit=300))


def _no_bundle(why: str) -> Corrupt:
    return Corrupt(f"this is no whole copy of a ledger: {why}", advice="Try the copy of another tier.")
