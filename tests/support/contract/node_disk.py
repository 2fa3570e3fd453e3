"""What the ports of a node's own disk guarantee, as checks. Each works in a folder of its own below `Scratch.root`.

Of restoring in part and of pointers: `node_disk_parts`.
"""

from __future__ import annotations

import io
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from lakemark.contract import Check, raises, require
from lakemark.errors import NoReplica, NotFound, Refused, SourceDamaged, StoreUnavailable
from lakemark.model.checkpoints.manifest import File, FileType, Manifest
from lakemark.model.checkpoints.record import DataRef
from lakemark.model.ledger.run import Place
from lakemark.model.values.canonical import JSON
from lakemark.ports import Files, Notes, Pointers, Quiet, Restored, Restorer, RunFile, Spool

PART_SIZE_BYTES: Final = 1000
NEAR: Final = Place(tier="near", node="a")
FAR: Final = Place(tier="far")

Digests = Callable[[bytes, int], tuple[str, tuple[str, ...]]]
Opened = AbstractContextManager[BinaryIO]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """digests: (bytes, part size) -> a file's digest and parts, as manifests have them."""

    files: Files
    restorer: Restorer
    pointers: Pointers
    spool: Spool
    notes: Notes
    root: Path
    digests: Digests

    def folder(self) -> Path:
        folder = self.root / f"check-{secrets.token_hex(6)}"
        folder.mkdir(parents=True)
        return folder

    def manifest(self, contents: Mapping[str, bytes]) -> Manifest:
        """These files; those under `bin/` executable, with a link and an empty directory beside them."""
        files = [
            File(path="link", type=FileType.SYMLINK, target=min(contents)),
            File(path="void/deep", type=FileType.DIRECTORY),
        ]
        for path, content in contents.items():
            digest, parts = self.digests(content, PART_SIZE_BYTES)
            size = len(content)
            runs = path.startswith("bin/")
            files.append(File(path=path, size_bytes=size, digest=digest, parts=parts, executable=runs))
        return Manifest(files=tuple(files), part_size_bytes=PART_SIZE_BYTES)

    def restore(
        self, target: Path, fetch: Callable[[File], Iterable[tuple[Place, Opened]]], tag: str = "a"
    ) -> Restored:
        return self.restorer.restore(target, self.manifest(CONTENTS), fetch, tag=tag, progress=Quiet())


CONTENTS: Final[Mapping[str, bytes]] = {
    "weights.bin": bytes(range(256)) * 20,
    "deep/er/optimizer.bin": b"o" * PART_SIZE_BYTES,
    "bin/run": b"#!/bin/sh\n",
    "empty": b"",
    "näme with space": b"n" * 2500,
}


def _from(contents: Mapping[str, bytes]) -> Callable[[File], Iterable[tuple[Place, Opened]]]:
    return lambda file: [(FAR, io.BytesIO(contents[file.path]))]


def _check_target(target: Path) -> None:
    for path, content in CONTENTS.items():
        found = target / path
        require(found.is_file() and not found.is_symlink(), f"{path} is no file")
        require(found.read_bytes() == content, f"{path} has other bytes than those of the manifest")
        runs = bool(found.stat().st_mode & 0o100)
        require(runs == path.startswith("bin/"), f"{path} is {'' if runs else 'not '}executable")
    require((target / "link").is_symlink(), "the link was not made as one")
    require((target / "void/deep").is_dir(), "the empty directory is missing")
    names = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_symlink() or not path.is_dir()}
    require(names == {*CONTENTS, "link"}, f"there are other files than the manifest's: {sorted(names)}")


def _restores(scratch: Scratch) -> None:
    for prepare in (False, True):
        target = scratch.folder() / "deep" / "target"
        if prepare:
            target.mkdir(parents=True)
        done = scratch.restore(target, _from(CONTENTS))
        _check_target(target)
        require(done.files_by_place == {"far": len(CONTENTS)}, f"files_by_place is {dict(done.files_by_place)}")
        require(done.size_bytes == sum(map(len, CONTENTS.values())), f"size_bytes is {done.size_bytes}")
        require(os.listdir(target.parent) == ["target"], f"left beside the target: {os.listdir(target.parent)}")


def _refuses_what_is_not_ours(scratch: Scratch) -> None:
    target = scratch.folder() / "target"
    target.mkdir()
    (target / "mine").write_bytes(b"mine")
    raises(lambda: scratch.restore(target, _from(CONTENTS)), Refused, "restoring into a directory with files")
    require([path.name for path in target.iterdir()] == ["mine"], "the directory was changed all the same")
    file = scratch.folder() / "target"
    file.write_bytes(b"mine")
    raises(lambda: scratch.restore(file, _from(CONTENTS)), Refused, "restoring onto a file")
    require(file.read_bytes() == b"mine", "the file was changed all the same")


def _fails_over(scratch: Scratch) -> None:
    wrong = {**CONTENTS, "weights.bin": b"x" * 5120, "empty": b"more", "näme with space": b"n" * 2499}

    def fetch(file: File) -> Iterable[tuple[Place, Opened]]:
        return [(NEAR, io.BytesIO(wrong[file.path])), (FAR, io.BytesIO(CONTENTS[file.path]))]

    target = scratch.folder() / "target"
    done = scratch.restore(target, fetch)
    _check_target(target)
    noted = sorted(done.damaged, key=lambda pair: pair[1])
    expected = [(NEAR, path) for path in ("empty", "näme with space", "weights.bin")]
    require(noted == expected, f"damaged is {noted}")


def _none_left(scratch: Scratch) -> None:
    target = scratch.folder() / "target"
    raises(
        lambda: scratch.restore(target, _from({**CONTENTS, "bin/run": b"#!/bin/no\n"})),
        SourceDamaged,
        "wrong bytes only",
    )
    raises(lambda: scratch.restore(target, lambda _: []), NoReplica, "no candidate")
    require(not target.exists(), "the target appeared although a file is missing")


def _shows_all_or_nothing(scratch: Scratch) -> None:
    target = scratch.folder() / "target"
    seen: list[str] = []

    def fetch(file: File) -> Iterable[tuple[Place, Opened]]:
        if target.exists():
            seen.append(file.path)
        return [(FAR, io.BytesIO(CONTENTS[file.path]))]

    scratch.restore(target, fetch)
    require(not seen, f"the target was there before {seen} were")


class _Interrupted(Exception):
    """Stands for a process that ends in the middle."""


def _interrupt(scratch: Scratch, target: Path) -> None:
    """A restore that ends in the middle: the source of one file breaks off in a way nobody expects."""

    def fetch(file: File) -> Iterable[tuple[Place, Opened]]:
        if file.path == max(CONTENTS):
            raise _Interrupted
        return [(FAR, io.BytesIO(CONTENTS[file.path]))]

    try:
        scratch.restore(target, fetch)
    except _Interrupted:
        return
    require(holds=False, seen="a restore whose source broke off ended well")


def _goes_on(scratch: Scratch) -> None:
    target = scratch.folder() / "target"
    _interrupt(scratch, target)
    done = scratch.restore(target, _from(CONTENTS))
    _check_target(target)
    require(sum(done.files_by_place.values()) == len(CONTENTS), f"files_by_place is {dict(done.files_by_place)}")


def _other_tag_starts_afresh(scratch: Scratch) -> None:
    target = scratch.folder() / "target"
    _interrupt(scratch, target)
    other = scratch.manifest({"only": b"1"})
    fetch = _from({"only": b"1"})
    done = scratch.restorer.restore(target, other, fetch, tag="b", progress=Quiet())
    require((target / "only").read_bytes() == b"1", "the other checkpoint's file is not right")
    require(not (target / "weights.bin").exists(), "a file of the interrupted restore is in it")
    require(done.files_by_place == {"far": 1}, f"files_by_place is {dict(done.files_by_place)}")


def _transient_is_transient(scratch: Scratch) -> None:
    def fetch(_: File) -> Iterable[tuple[Place, Opened]]:
        raise StoreUnavailable("away", advice="Try again.")

    target = scratch.folder() / "target"
    raises(lambda: scratch.restore(target, fetch), StoreUnavailable, "a tier that is away")
    scratch.restore(target, _from(CONTENTS))
    _check_target(target)


def _matches(scratch: Scratch) -> None:
    target = scratch.folder() / "target"
    scratch.restore(target, _from(CONTENTS))
    manifest = scratch.manifest(CONTENTS)

    def same() -> bool:
        return scratch.restorer.matches(target, manifest, progress=Quiet())

    require(same(), "a restored checkpoint does not match its manifest")
    weights = target / "weights.bin"
    weights.write_bytes(b"x" + CONTENTS["weights.bin"][1:])
    require(not same(), "another byte was not seen")
    weights.write_bytes(CONTENTS["weights.bin"])
    (target / "more").write_bytes(b"")
    require(not same(), "a file too many was not seen")
    (target / "more").unlink()
    (target / "bin/run").chmod(0o644)
    require(not same(), "a lost executable bit was not seen")
    (target / "bin/run").chmod(0o755)
    require(same(), "put right, it does not match again")
    (target / "empty").unlink()
    require(not same(), "a missing file was not seen")


def _moves_aside(scratch: Scratch) -> None:
    folder = scratch.folder()
    files, restorer = scratch.files, scratch.restorer
    for name in ("step-1", "step-2"):
        (folder / name).mkdir()
        (folder / name / "file").write_bytes(name.encode())
    before = files.identities(folder)
    aside = folder / "aside" / "job"
    moved = restorer.move_aside([folder / "step-1"], aside)
    require(moved == (aside / "step-1",), f"move_aside answered {moved}")
    require((aside / "step-1/file").read_bytes() == b"step-1", "the moved file has other bytes")
    require(not files.exists(folder / "step-1"), "it is still where it was")
    now = files.identities(folder)
    require(now == before, "a rename changed a file's identity")
    require(not any(map(files.is_gone, now)), "a file that lies there is said to be gone")
    left = {one.place: files.is_gone(one) for one in before}
    wanted = {str(folder / "step-1/file"): True, str(folder / "step-2/file"): False}
    require(left == wanted, f"of what was moved, gone is said to be {left}")
    require(all(one.ctime_ns for one in now), "a file's ctime is not told")
    require(restorer.move_aside([folder / "step-1"], aside) == moved, "called again, it does not answer the same")
    (folder / "step-1").mkdir()
    again = restorer.move_aside([folder / "step-1"], aside)
    require(again != moved and files.exists(moved[0]), "a second one replaced the first")


def _looks(scratch: Scratch) -> None:
    folder = scratch.folder()
    files = scratch.files
    (folder / "step-1" / "deep").mkdir(parents=True)
    (folder / "step-1" / "deep" / "b").write_bytes(b"bb")
    (folder / "step-1" / "a").write_bytes(b"a")
    (folder / "beside").write_bytes(b"beside")
    (folder / "step-1" / "link").symlink_to("a")
    whole = files.regular(folder / "step-1")
    require([one.path for one in whole] == ["a", "deep/b"], f"the files are {[one.path for one in whole]}")
    require({one.file for one in whole} == set(files.identities(folder / "step-1")), "identities are others")
    (single,) = files.regular(folder / "beside")
    require((single.path, single.file.size_bytes) == ("beside", 6), f"a single file is {single}")
    some = files.regular(folder / "x", [folder / "step-1", folder / "beside"])
    require([one.path for one in some] == ["beside", "step-1/a", "step-1/deep/b"], f"the members are {some}")
    (folder / "step-2").symlink_to("step-1")
    require(files.regular(folder / "step-2") == whole, "a link is not what it names")
    os.link(folder / "beside", folder / "again")
    require(files.regular(folder / "beside")[0].names == 2, "a second name is not counted")
    raises(lambda: files.regular(folder / "nowhere"), NotFound, "looking at what is not there")
    digest, _ = scratch.digests(b"beside", 2**26)
    require(files.digest(folder / "beside") == digest, "a file's digest is another")
    raises(lambda: files.digest(folder / "nowhere"), NotFound, "the digest of what is not there")
    require(files.last_change([folder / "nowhere"]) is None, "what is not there changed")
    for path in (folder / "step-1/deep/b", folder / "step-1/a", folder / "step-1/deep", folder / "step-1"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    os.utime(folder / "step-1" / "link", (1, 1), follow_symlinks=False)
    last = datetime.fromtimestamp(1_700_000_000, UTC)
    require(files.last_change([folder / "step-1"]) == last, "the last change is not that of the files")
    (folder / "step-1" / "empty").mkdir()
    changed = files.last_change([folder / "step-1"])
    require(changed is not None and changed > last, "a new empty directory is no change")


def _run_files(scratch: Scratch) -> None:
    path = scratch.folder() / "runs" / "r.json"
    require(scratch.spool.read_run_file(path) is None, "a run file that is not there was read")
    ref = DataRef(repository="data", branch="main", commit="a" * 64)
    resume: dict[str, JSON] = {"path": "/x", "step": 3, "record": "b" * 64, "timeline": 2}
    written = RunFile(run="r", timeline=2, attempt="t", spool=Path("/spool"), data=(ref,), resume=resume)
    scratch.spool.write_run_file(path, written)
    require(scratch.spool.read_run_file(path) == written, "what was read is not what was written")
    uri = json.loads(path.read_bytes())["data"][0]["uri"]
    require(uri == f"lakefs://data/{'a' * 64}/", f"the data's uri is {uri}")
    require([one.name for one in path.parent.iterdir()] == ["r.json"], "something was left beside the run file")


def _spool(scratch: Scratch) -> None:
    spool = scratch.folder() / "spool"
    require(list(scratch.spool.spooled(spool)) == [], "a spool that is not there has files")
    spool.mkdir()
    text = {
        "format": "lakemark.spool/1",
        "run": "r",
        "path": "/out/x",
        "saved_at": "2026-11-26T12:00:00.000000Z",
        "metrics": {"loss": 1},
        "roles": {"w": "weights"},
    }
    for step in (20, 3):
        (spool / f"{step}.json").write_text(json.dumps({**text, "step": step}))
    (spool / ".half.tmp").write_text("{")
    (spool / "bad.json").write_text('{"run": "r", "step": NaN}')
    found = list(scratch.spool.spooled(spool))
    require([one.step for one in found] == [3, 20], f"the steps are {[one.step for one in found]}")
    require(found[0].saved_at == datetime(2026, 11, 26, 12, tzinfo=UTC), f"saved_at is {found[0].saved_at}")
    require((spool / "rejected/bad.json").exists(), "a malformed file was not moved to rejected/")
    scratch.spool.unspool(found[0])
    scratch.spool.unspool(found[0])
    require([one.step for one in scratch.spool.spooled(spool)] == [20], "unspool took another one, or none")


def _saves_json(scratch: Scratch) -> None:
    path = scratch.folder() / "plans" / "x.json"
    values: tuple[JSON, ...] = ({"a": [1, "ä", None]}, {"b": 2})
    for value in values:
        scratch.notes.save(path, value)
        require(json.loads(path.read_bytes()) == value, "what is there is not what was saved")
    require([one.name for one in path.parent.iterdir()] == ["x.json"], "something was left beside it")


CHECKS: Final[tuple[Check[Scratch], ...]] = (
    Check("restores", "every byte, link, empty directory and executable bit comes back", _restores),
    Check("refuses", "a target that is not empty and not ours stays as it is", _refuses_what_is_not_ours),
    Check("fails-over", "a candidate with wrong bytes is noted, and the next one tried for that file", _fails_over),
    Check("none-left", "without a sound candidate the target does not appear", _none_left),
    Check("all-or-nothing", "the target is shown whole or not at all", _shows_all_or_nothing),
    Check("goes-on", "an interrupted restore goes on when called again", _goes_on),
    Check("other-tag", "an interrupted restore leaves nothing in another one", _other_tag_starts_afresh),
    Check("transient", "a tier that is away is StoreUnavailable, and harms nothing", _transient_is_transient),
    Check("matches", "matches compares every byte and name", _matches),
    Check("moves-aside", "moving aside replaces nothing, changes no file's identity and can be repeated", _moves_aside),
    Check("looks", "files, their digests and their last change are told as a manifest would name them", _looks),
    Check("run-files", "a run file is read as it was written, and appears whole", _run_files),
    Check("spool", "announcements come in order of step; malformed ones go to rejected/", _spool),
    Check("saves-json", "a saved value replaces the old one whole", _saves_json),
)
