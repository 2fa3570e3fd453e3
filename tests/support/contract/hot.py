"""What `Landings` and `SealedTrees` guarantee, as checks. They want a store of their own, and a folder trainers could save in."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lakemark.contract import Check, raises, require
from lakemark.contract.store import contents_of, require_bytes
from lakemark.errors import Conflict, Incomplete, NotFound, Refused
from lakemark.model.checkpoints.record import Record, record_for
from lakemark.model.values.canonical import JSON
from lakemark.ports import Checkpoint, HotStore, Landed, Progress, Quiet


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """store: claimed. folder: where the checks save like a trainer, on the file system landings come from."""

    store: HotStore
    folder: Path
    run: str = field(default_factory=lambda: f"probe-{secrets.token_hex(6)}")
    now: datetime = datetime(2026, 11, 26, 12, tzinfo=UTC)

    def save(self, contents: Mapping[str, bytes]) -> Path:
        """A checkpoint as a trainer leaves it, with a link and an empty directory."""
        path = self.folder / f"step-{secrets.token_hex(6)}"
        for name, content in contents.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
            (path / name).chmod(0o755 if name.startswith("bin/") else 0o640)
        (path / "void" / "deep").mkdir(parents=True)
        (path / "link").symlink_to(min(contents))
        return path

    def land(self, path: Path, *, progress: Progress | None = None, members: Sequence[Path] = ()) -> Landed:
        roles = {"weights.bin": "weights"}
        return self.store.land(path, quiet_seconds=0, roles=roles, progress=progress or Quiet(), members=members)

    def record(self, landed: Landed, *, step: int = 1) -> Record:
        return record_for(landed.manifest, run=self.run, timeline=1, step=step, saved_at=self.now, node="node-a")

    def commit(self, path: Path) -> tuple[Checkpoint, Landed]:
        landed = self.land(path)
        record = self.record(landed)
        entry: dict[str, JSON] = {"source": str(path), "notes": ["one"]}
        new = self.store.adopt(landed, record, entry=entry)
        require(new, "adopting a new record says that it was there")
        return Checkpoint(record=record, manifest=landed.manifest, entry=entry), landed

    def sound(self, checkpoint: Checkpoint) -> bool:
        return not self.store.changed(checkpoint.record.id) and not self.store.verify(checkpoint, progress=Quiet())


class Meddler(Quiet):
    """Does something to the trainer's files in the middle of a landing, once."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self._deed: Callable[[], object] | None = deed

    @property
    def done(self) -> bool:
        return self._deed is None

    def expect(self, what: str, size_bytes: int) -> None:
        if self._deed is not None:
            deed, self._deed = self._deed, None
            deed()


def _lands_whole(bench: Bench) -> None:
    contents = contents_of()
    path = bench.save(contents)
    before = _looks(path)
    checkpoint, landed = bench.commit(path)
    files = {file.path: file for file in checkpoint.manifest.files}
    require(files.keys() == {*contents, "link", "void/deep"}, f"the manifest has {sorted(files)}")
    require(files["bin/run"].executable and not files["twin"].executable, "the manifest has wrong executable bits")
    require(files["link"].target == min(contents), "the manifest lacks the link's target")
    require(files["weights.bin"].role == "weights", "the manifest lacks the role")
    require_bytes(bench.store, checkpoint, contents)
    require(bench.sound(checkpoint), "what was just landed is not sound")
    newest = max(look[2] for look in before.values())
    require(abs(landed.newest_mtime.timestamp() - newest / 1e9) < 1, f"newest_mtime is {landed.newest_mtime}")
    require(_looks(path) == before, "landing changed the trainer's files")
    require(bench.store.load(checkpoint.record.id) == checkpoint, "load answers another record, manifest or entry")
    tree = bench.store.path(checkpoint.record)
    require(
        (tree / "link").is_symlink() and (tree / "void/deep").is_dir(), "the sealed tree lacks the link or directory"
    )
    bench.store.drop(checkpoint, now=bench.now)
    require(_looks(path) == before, "dropping changed the trainer's files")
    raises(lambda: bench.store.path(checkpoint.record), NotFound, "the path of what was dropped")
    raises(lambda: bench.store.changed(checkpoint.record.id), NotFound, "a look at what was dropped")
    raises(lambda: bench.store.load(checkpoint.record.id), NotFound, "loading what was dropped")
    require(not bench.store.full(), "a store that just landed something says that it is full")


def _names_once(bench: Bench) -> None:
    path = bench.save(contents_of())
    checkpoint, _ = bench.commit(path)
    again = bench.land(path)
    require(not bench.store.adopt(again, checkpoint.record), "adopting a record that is there says that it is new")
    require(bench.sound(checkpoint), "adopting it twice damaged it")
    instead = bench.land(path)
    require(bench.store.adopt(instead, checkpoint.record, instead=True), "what landed did not take the tree's place")
    require(bench.sound(checkpoint), "a tree that took another's place is not sound")
    third = bench.land(path)
    bench.store.discard(third)
    raises(lambda: bench.store.adopt(third, bench.record(third, step=2)), NotFound, "adopting what was discarded")
    other = bench.land(bench.save(contents_of()))
    raises(lambda: bench.store.adopt(other, checkpoint.record), Conflict, "adopting under a record of other contents")
    bench.store.discard(other)
    require(bench.store.clean() == 0, "landings of this process are left over")
    bench.store.drop(checkpoint, now=bench.now)


def _tells_who_names(bench: Bench) -> None:
    with bench.store.naming(), bench.store.naming(), bench.store.settled() as settled:
        require(not settled, "a tree is being named, and nobody can tell")
    with bench.store.settled() as settled:
        require(settled, "nobody names a tree any more, and it is said that somebody does")


def _takes_one_file(bench: Bench) -> None:
    path = bench.save({"model.pt": b"weights"}) / "model.pt"
    checkpoint, _ = bench.commit(path)
    require(
        [file.path for file in checkpoint.manifest.files] == ["model.pt"], "a single file is not a tree of one file"
    )
    bench.store.drop(checkpoint, now=bench.now)


def _takes_members(bench: Bench) -> None:
    folder = bench.save(
        {"50.index": b"index", "weights.bin": b"w" * 5000, "50_gda/a/b": b"array", "51.index": b"other"}
    )
    members = [folder / name for name in ("weights.bin", "50.index", "50_gda", "link", "void")]
    before = _looks(folder)
    landed = bench.land(folder / "50", members=members)
    files = {file.path: file for file in landed.manifest.files}
    wanted = {"50.index", "weights.bin", "50_gda/a/b", "link", "void/deep"}
    require(files.keys() == wanted, f"of members, the manifest has {sorted(files)}")
    require(files["weights.bin"].role == "weights", "the manifest lacks a member's role")
    require(len(landed.taken) == len(landed.manifest.regular), "`taken` is not of the files that landed")
    record = bench.record(landed)
    bench.store.adopt(landed, record)
    checkpoint = Checkpoint(record=record, manifest=landed.manifest)
    require(bench.sound(checkpoint), "what was landed of members is not sound")
    bench.store.drop(checkpoint, now=bench.now)
    require(_looks(folder) == before, "landing members changed the trainer's files")
    other = Meddler(lambda: (folder / "52.index").write_bytes(b"another save"))
    bench.store.discard(bench.land(folder / "50", members=members, progress=other))
    late = Meddler(lambda: (folder / "50_gda/late").write_bytes(b"late"))
    raises(lambda: bench.land(folder / "50", members=members, progress=late), Incomplete, "a member that grew")
    nested = bench.land(folder / "50", members=[folder / "50.index", folder / "50_gda/a"])
    paths = {file.path for file in nested.manifest.files}
    require(paths == {"50.index", "50_gda/a/b"}, f"of members in several folders, the manifest has {sorted(paths)}")
    bench.store.discard(nested)
    (folder / "weights.bin").unlink()
    raises(lambda: bench.land(folder / "50", members=members), Incomplete, "a member that is gone")
    apart = [folder / "50.index", bench.save({"51.index": b"elsewhere"}) / "51.index"]
    raises(lambda: bench.land(folder / "50", members=apart), Refused, "members of two folders")
    require(bench.store.clean() == 0, "a failed landing of members left something behind")


def _notices_changes(bench: Bench) -> None:
    contents = contents_of()
    deeds: dict[str, Callable[[Path], object]] = {
        "overwritten": lambda path: (path / "weights.bin").write_bytes(b"x" * 5120),
        "shortened": lambda path: os.truncate(path / "weights.bin", 10),
        "deleted": lambda path: (path / "weights.bin").unlink(),
        "joined by a new one": lambda path: (path / "new").write_bytes(b"late"),
        "replaced": lambda path: _replace(path / "twin", contents["twin"]),
    }
    before = bench.store.records()
    for name, deed in deeds.items():
        path = bench.save(contents)
        meddler = Meddler(lambda path=path, deed=deed: deed(path))  # type: ignore[misc]
        raises(lambda path=path, who=meddler: bench.land(path, progress=who), Incomplete, f"landing a file {name}")  # type: ignore[misc]
        require(meddler.done, "landing tells its progress nothing, so this can't be checked")
    raises(lambda: bench.land(bench.folder / "nowhere"), NotFound, "landing what is not there")
    require(bench.store.records() == before, "a failed landing is listed")
    require(bench.store.clean() == 0, "a failed landing left something behind")


def _refuses_what_it_cannot_keep(bench: Bench) -> None:
    deeds: dict[str, Callable[[Path], object]] = {
        "a FIFO": lambda path: os.mkfifo(path / "pipe"),
        "a link that leads outside": lambda path: (path / "out").symlink_to("../elsewhere"),
        "an absolute link": lambda path: (path / "out").symlink_to("/etc/passwd"),
        "a reserved name": lambda path: (path / "deep" / ".git").mkdir(),
        "a name that is not UTF-8": lambda path: (path / "\udcff").mkdir(),
    }
    for name, deed in deeds.items():
        path = bench.save(contents_of())
        deed(path)
        raises(lambda path=path: bench.land(path), Refused, f"landing {name}")  # type: ignore[misc]
    require(bench.store.clean() == 0, "a refused landing left something behind")


def _knows_linked_files(bench: Bench) -> None:
    contents = contents_of()
    deeds: dict[str, tuple[Callable[[Path], object], bool]] = {
        "deleted": (lambda path: (path / "weights.bin").unlink(), True),
        "renamed": (lambda path: (path / "weights.bin").rename(path / "moved"), True),
        "given other rights": (lambda path: (path / "weights.bin").chmod(0o600), True),
        "overwritten in place": (lambda path: _overwrite(path / "weights.bin"), False),
        "overwritten with its times put back": (lambda path: _overwrite(path / "weights.bin", hide=True), False),
    }
    for name, (deed, healthy) in deeds.items():
        path = bench.save(contents)
        checkpoint, landed = bench.commit(path)
        deed(path)
        expected = healthy or not landed.linked
        found = bench.store.changed(checkpoint.record.id)
        require(not found if expected else found, f"after the trainer's file was {name}, changed answers {found}")
        damage = bench.store.verify(checkpoint, progress=Quiet())
        require(not damage if expected else damage, f"after the trainer's file was {name}, verify answers {damage}")
        for one in (*found, *damage):
            require(one.path == "weights.bin" and one.suspect, f"{one} is not that file as suspect")
        bench.store.drop(checkpoint, now=bench.now)


def _unshares(bench: Bench) -> None:
    contents = contents_of()
    path = bench.save(contents)
    checkpoint, landed = bench.commit(path)
    require(
        bench.store.unshare(checkpoint.record.id, progress=Quiet()) == landed.linked,
        "unshare does not say what it found",
    )
    require(not bench.store.unshare(checkpoint.record.id, progress=Quiet()), "unsharing twice finds linked files twice")
    _overwrite(path / "weights.bin")
    require(bench.sound(checkpoint), "an unshared checkpoint is damaged by the trainer's write")
    require_bytes(bench.store, checkpoint, contents)
    bench.store.drop(checkpoint, now=bench.now)


def _lands_alone(bench: Bench) -> None:
    contents = contents_of()
    path = bench.save(contents)
    landed = bench.store.land(path, quiet_seconds=0, roles={}, progress=Quiet(), share=False)
    require(not landed.linked, "what was to be the tier's own shares files with the trainer")
    checkpoint = Checkpoint(record=bench.record(landed), manifest=landed.manifest)
    bench.store.adopt(landed, checkpoint.record)
    _overwrite(path / "weights.bin")
    require(bench.sound(checkpoint), "a tree of the tier's own is damaged by the trainer's write")
    bench.store.drop(checkpoint, now=bench.now)


CHECKS: Final = (
    Check("lands", "A tree is landed whole, and the trainer's files stay as they are.", _lands_whole, probe=False),
    Check("names", "A landed tree gets its name once; one that got none is dropped.", _names_once, probe=False),
    Check("file", "A checkpoint of one file is a tree with that file.", _takes_one_file, probe=False),
    Check("naming", "Whoever gives a tree its name can be told.", _tells_who_names, probe=False),
    Check("members", "Files that lie beside others are a tree of just these.", _takes_members, probe=False),
    Check("changes", "A tree that changes or vanishes while landed is Incomplete.", _notices_changes, probe=False),
    Check("refuses", "What can't be kept is Refused at once.", _refuses_what_it_cannot_keep, probe=False),
    Check(
        "linked",
        "A linked file overwritten in place is suspect; unlinked or renamed, sound.",
        _knows_linked_files,
        probe=False,
    ),
    Check("alone", "What lands without a link stays as it was, whatever is written next.", _lands_alone, probe=False),
    Check("unshares", "Unshared files are the tier's own.", _unshares, probe=False),
)


def _looks(path: Path) -> dict[str, tuple[int, ...]]:
    """Mode, owner, mtime, inode and size of every file."""
    found: dict[str, tuple[int, ...]] = {}
    for folder, _, names in os.walk(path):
        for name in names:
            look = os.lstat(Path(folder) / name)
            if stat.S_ISREG(look.st_mode):
                found[str(Path(folder) / name)] = (
                    look.st_mode,
                    look.st_uid,
                    look.st_mtime_ns,
                    look.st_ino,
                    look.st_size,
                )
    return found


def _overwrite(path: Path, *, hide: bool = False) -> None:
    """Other bytes of the same length into the same inode, as a trainer that reopens its file does."""
    before = path.stat()
    with path.open("r+b") as file:
        old = file.read(3)
        file.seek(0)
        file.write(bytes(byte ^ 1 for byte in old))
    if hide:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.replace(path)
