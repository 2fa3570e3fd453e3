"""What `Restorer` guarantees of files restored in part, and `Pointers`, as checks: `node_disk` has the others."""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from lakemark.contract import Check, require
from lakemark.model.checkpoints.manifest import File
from lakemark.model.ledger.run import Place
from lakemark.ports import Pointer, PointerKind, Quiet, Sparse
from tests.support.contract.node_disk import CONTENTS, FAR, NEAR, Opened, Scratch


def _restores_parts(scratch: Scratch) -> None:
    contents = {
        **CONTENTS,
        "big": bytes(range(250)) * 30,
        "small": b"s" * 10,
        "never": b"n" * 3000,
        "deep/er/unasked": b"u" * 5,
    }
    manifest = scratch.manifest(contents)
    wanted = {"big": ((2100, 10), (4999, 2)), "small": ((3, 1),), "never": ()}
    asked: list[tuple[str, int, int]] = []

    def fetch(file: File, start: int, length: int) -> Iterable[tuple[Place, Opened]]:
        asked.append((file.path, start, length))
        right = contents[file.path][start : start + length]
        return [(NEAR, io.BytesIO(b"x" * length)), (FAR, io.BytesIO(right))]

    def told(tree: Path) -> Mapping[str, tuple[tuple[int, int], ...]]:
        require(
            (tree / "weights.bin").read_bytes() == CONTENTS["weights.bin"], "it was asked before the rest was there"
        )
        return wanted

    sparse = Sparse(paths=frozenset({"big", "small", "never", "deep/er/unasked"}), wanted=told, fetch=fetch)
    target = scratch.folder() / "target"
    done = scratch.restorer.restore_parts(
        target, manifest, sparse, fetch=lambda file: [(FAR, io.BytesIO(contents[file.path]))], tag="p", progress=Quiet()
    )
    expected = bytearray(7500)
    expected[2000:3000], expected[4000:6000] = contents["big"][2000:3000], contents["big"][4000:6000]
    require((target / "big").read_bytes() == expected, "what is there of a file in part is not its wanted parts alone")
    require((target / "never").read_bytes() == bytes(3000), "a file of which nothing is wanted is no hole of its size")
    require((target / "small").read_bytes() == contents["small"], "a file of one part is not whole")
    require(not (target / "deep/er/unasked").exists(), "a file nobody asked for is there")
    for name in CONTENTS:
        require((target / name).read_bytes() == contents[name], f"{name} is not whole")
    require(done.sparse == {"big": 3000, "small": 10, "never": 0}, f"sparse is {dict(done.sparse)}")
    require(done.size_bytes == sum(map(len, CONTENTS.values())) + 3010, f"size_bytes is {done.size_bytes}")
    require({path for _, path in done.damaged} == {"big", "small"}, f"damaged is {done.damaged}")
    parts = {("big", 2000, 1000), ("big", 4000, 1000), ("big", 5000, 1000), ("small", 0, 10)}
    require(set(asked) == parts, f"it fetched {sorted(asked)}")


def _swaps_pointers(scratch: Scratch) -> None:
    folder, pointers, exists = scratch.folder(), scratch.pointers, scratch.files.exists
    (folder / "one").write_bytes(b"1" * 3000)
    (folder / "tree").mkdir()
    (folder / "tree/file").write_bytes(b"deep")
    wanted = (
        Pointer(path=folder / "a", kind=PointerKind.TEXT, content="step-1"),
        Pointer(path=folder / "b", kind=PointerKind.SYMLINK, content="one"),
        Pointer(path=folder / "c", kind=PointerKind.COPY, content=str(folder / "one")),
        Pointer(path=folder / "t", kind=PointerKind.COPY, content=str(folder / "tree")),
    )
    for before in ("nothing", "a file", "a link", "a folder"):
        for number, pointer in enumerate(wanted):
            keep = folder / f"keep-{before}-{number}"
            _prepare(before, pointer.path)
            require(not pointers.points(pointer), f"{before} is said to be right for {pointer.path.name}")
            draft = folder / "drafts" / pointer.path.name
            pointers.draft(pointer, draft)
            pointers.draft(pointer, draft)
            kept = pointers.swap(draft, pointer.path, keep=keep)
            require(pointers.points(pointer), f"after a swap {pointer.path.name} is not what it must be")
            require(not exists(draft), "the draft is still there")
            require((kept is None) == (before == "nothing"), f"with {before} there the swap answered {kept}")
            require(kept is None or (kept.parent == keep and exists(kept)), f"{before} was not kept")
    require((folder / "c").stat().st_ino != (folder / "one").stat().st_ino, "the copy is the file itself")
    gone = Pointer(path=folder / "nowhere", kind=PointerKind.GONE)
    require(pointers.points(gone), "what is gone is said not to be")
    require(not pointers.points(replace(gone, path=folder / "a")), "what is there is said to be gone")


def _prepare(before: str, path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        path.rename(path.with_name(f"{path.name}.{secrets.token_hex(3)}"))
    if before == "a file":
        path.write_bytes(b"old")
    elif before == "a link":
        path.symlink_to("elsewhere")
    elif before == "a folder":
        path.mkdir()
        (path / "old").write_bytes(b"old")


def _tidies(scratch: Scratch) -> None:
    folder, restorer = scratch.folder(), scratch.restorer
    inside = folder / ".lakemark-aside" / "job" / "deep"
    inside.mkdir(parents=True)
    (inside / "file").write_bytes(b"")
    restorer.tidy(inside)
    require((inside / "file").exists(), "tidy took a file away")
    (inside / "file").unlink()
    restorer.tidy(inside)
    require(not (folder / ".lakemark-aside").exists(), "an empty folder of ours stays")
    require(folder.exists(), "tidy took a folder that is not ours")


CHECKS: Final[tuple[Check[Scratch], ...]] = (
    Check("parts", "files in part have their size, the wanted parts, each compared, and holes", _restores_parts),
    Check("pointers", "a pointer is shown whole, and what it replaces is kept", _swaps_pointers),
    Check("tidies", "only empty folders of ours go", _tidies),
)
