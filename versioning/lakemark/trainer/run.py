"""A trainer's view of its run: what data to read, where to go on from, and a word for each save."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self, TypedDict

from lakemark.trainer.code import code_version
from lakemark.trainer.identity import identity_of
from lakemark.trainer.together import make_folders, share

SPOOL_FORMAT: Final = "lakemark.spool/1"
_REMOTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Names that `run_for` of `model.values.names` leaves as they are; training code does not load that module.
_RUN: Final = re.compile(r"(?=.{1,63}\Z)(?!site\Z)(?!x-[0-9a-f]+\Z)(?!.*\.lock\Z)[a-z0-9]+([._-][a-z0-9]+)*", re.ASCII)


class RunNotOpened(RuntimeError):
    """There is no run file to read, or it can't be used. Raised before the training loop, never in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Ranks that leave files of their own in a checkpoint, at their own pace: it is whole once all of these are there.

    files: paths inside the checkpoint, with `{rank}` for each of 0 to world - 1.
    """

    world: int
    files: tuple[str, ...]


class Resume(TypedDict):
    """Where training goes on: a complete checkpoint at `path`, of `step`."""

    path: str
    step: int
    record: str
    timeline: int


@dataclass(slots=True, kw_only=True)
class Run:
    """One training run, as its run file described it when this process opened it. Later changes of the file don't show.

    name: the run's name in the ledger. data: what to read, each with `repository`, `branch`, `commit` and `uri`.
    """

    name: str
    timeline: int
    attempt: str
    data: tuple[Mapping[str, Any], ...]
    _spool: str
    _resume: Resume | None
    _code: Mapping[str, Any] | None
    _clock: str | None = None
    _resume_was_read: bool = field(default=False, init=False)
    _warned: bool = field(default=False, init=False)
    _announced: int = field(default=0, init=False)

    @classmethod
    def open(cls, name: str, *, environ: Mapping[str, str] = os.environ) -> Self:
        """Reads $LAKEMARK_RUN_FILE, else <site>/runs/<run>.json. Raises RunNotOpened.

        The site is $LAKEMARK_HOME, else where $LAKEMARK_CONFIG lies, else the nearest folder upwards from the working
        directory that has a lakemark.yaml.
        """
        path = _run_file(name, environ)
        found = _read(path)
        # LAKEMARK_RUN_FILE names one file for all that a shell starts: saves would land in another run.
        if found["run"] not in (name, _mapped(name)):
            raise RunNotOpened(
                f"{path} is of the run {found['run']!r}, not of {name!r}; set LAKEMARK_RUN_FILE to its own"
            )
        return cls(
            name=found["run"],
            timeline=found["timeline"],
            attempt=found["attempt"],
            data=tuple(found["data"]),
            _spool=_nearest(found["spool"], path),
            _resume=found.get("resume"),
            # Once, before the loop: no save waits for Git's files.
            _code=code_version(),
            _clock=environ.get("LAKEMARK_CLOCK") if found.get("clock") == "simulated" else None,
        )

    @property
    def resume(self) -> Resume | None:
        """Where to go on from, or None: start afresh. Reading it makes this process's saves part of that timeline."""
        self._resume_was_read = True
        return None if self._resume is None else self._resume.copy()

    def data_uri(self, name: str | None = None) -> str:
        """`lakefs://repository/commit/` of the data to read: pinned, it stays what it is.

        name: a repository, or repository/branch; needed where the run has several. Raises RunNotOpened.
        """
        fitting = [
            str(data["uri"])
            for data in self.data
            if name in (None, data.get("repository"), f"{data.get('repository')}/{data.get('branch')}")
        ]
        if len(fitting) != 1:
            known = ", ".join(f"{data.get('repository')}/{data.get('branch')}" for data in self.data) or "none"
            asked = "without a name" if name is None else f"by {name!r}"
            raise RunNotOpened(f"{len(fitting)} data versions of {self.name} are meant {asked}; it has {known}")
        return fitting[0]

    @property
    def read_log(self) -> str:
        """Where `lakemark.data` notes what the processes of this attempt have read."""
        return os.path.join(self._spool, "reads", self.attempt.replace("/", "-"))

    def saved(
        self,
        path: str | os.PathLike[str],
        *,
        step: int,
        metrics: Mapping[str, Any] | None = None,
        roles: Mapping[str, str] | None = None,
        present: Collection[str] = (),
        ranks: Ranks | None = None,
        seconds: float | None = None,
    ) -> None:
        """Announces that the checkpoint at `path` (a directory or a file) is whole and closed.

        Writes one small file, waits for nothing and never raises: what goes wrong is one line on stderr, once.
        roles: file path inside the checkpoint -> weights, optimizer, scheduler, rng, dataloader, config or other.
        present: roles it is known to hold, where one file holds several. ranks: None: this speaks for every rank.
        seconds: how long writing it took, where that was measured: what saving costs is planned by it.
        """
        with self.guarded(step):
            about: dict[str, Any] = {
                "metrics": self._finite(metrics or {}),
                "roles": {str(key): str(value) for key, value in (roles or {}).items()},
                "code": self._code,
            }
            took = _number(seconds)
            if took is not None and took >= 0:
                about["saved_seconds"] = round(took, 3)
            if present:
                about["present"] = sorted({str(role) for role in present})
            if ranks is not None:
                about["ranks"] = {"world": int(ranks.world), "files": [str(name) for name in ranks.files]}
            # The other ranks may still be writing: only the first one's files are told.
            rank_files = about["ranks"]["files"] if ranks is not None and ranks.world > 1 else ()
            self._announce(path, step, about, rank_files=rank_files)

    @contextmanager
    def guarded(self, step: object) -> Iterator[None]:
        """What fails inside is said once on stderr and ends there: a save must never fail because of us."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever a framework's object or a full disk raises
            self._warn("the save of step {!r} was not announced ({!r})", step, error)

    def _announce(
        self, path: str | os.PathLike[str], step: int, about: Mapping[str, Any], *, rank_files: Collection[str]
    ) -> None:
        """Writes the announcement. Raises ValueError for what is no step or no path of this node, OSError."""
        number = int(step)
        if number < 0 or number != step:
            raise ValueError("a step is a whole number, not negative")
        place = os.fsdecode(path)
        if not place:
            raise ValueError("its path is empty")
        if _REMOTE.match(place):
            raise ValueError("it was saved to an object store, not to a file system of this node")
        place = os.path.abspath(place)
        # Taken now: what is written over the checkpoint before the node takes it is found by this.
        identity = identity_of(place, rank_files=rank_files)
        # Who never asked where to go on from began afresh, whatever the run file said.
        resumed = self._resume["timeline"] if self._resume is not None and self._resume_was_read else None
        announcement = {
            "format": SPOOL_FORMAT,
            "run": self.name,
            "path": place,
            "step": number,
            "saved_at": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "attempt": self.attempt,
            "timeline": resumed,
            "data": [self._reference(data) for data in self.data],
            **about,
            **({} if identity is None else {"identity": identity}),
        }
        self._announced += 1
        # With time and number: no announcement meets another in its name, whichever thread or process makes it.
        writer = f"{os.getpid()}-{threading.get_ident()}"
        self._put(f"{number}-{writer}-{time.time_ns()}-{self._announced}", json.dumps(announcement))

    def _reference(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Its evidence is `read` once a process of this attempt has read of it through `lakemark.data`."""
        said = {key: value for key, value in data.items() if key not in ("uri", "endpoint")}
        noted = os.path.join(self.read_log, f"{data.get('repository')}@{data.get('commit')}")
        return {**said, "evidence": "read"} if os.path.isdir(noted) else said

    def _put(self, name: str, text: str) -> None:
        """By atomic rename, without fsync.

        A reader sees the whole file or none, also after kill -9. An fsync would wait for the checkpoint's own gigabytes
        in the file system's journal; after a power cut the checkpoint is found without it, by its directory.
        """
        temporary = os.path.join(self._spool, f".{name}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            # Nobody has announced anything in this run yet.
            make_folders(self._spool)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            share(temporary)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(temporary, os.path.join(self._spool, f"{name}.json"))
        except BaseException:
            os.unlink(temporary)
            raise

    def _now(self) -> datetime:
        """The machine's clock; LAKEMARK_CLOCK (an instant, or @FILE) only where the run file says it is simulated."""
        if not self._clock:
            return datetime.now(UTC)
        text = self._clock
        if text.startswith("@"):
            with open(text[1:], encoding="utf-8") as file:
                text = file.read().strip()
        return datetime.fromisoformat(text).astimezone(UTC)

    def _finite(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        kept: dict[str, float] = {}
        for name, value in metrics.items():
            number = _number(value)
            if number is None:
                self._warn("the metric {!r} is no finite number and was left out", name)
            else:
                kept[str(name)] = number
        return kept

    def _warn(self, text: str, *about: object) -> None:
        if self._warned:
            return
        self._warned = True
        try:
            said = text.format(*about)
        except Exception:  # noqa: BLE001 - what a caller's value says of itself may fail, too
            said = text
        try:
            # In ASCII: a trainer's stderr may have any encoding, and one that can't say a letter raises.
            line = f"lakemark: {said[:500]}; training goes on, and this is said once\n"
            sys.stderr.write(line.encode("ascii", "backslashreplace").decode())
        except Exception:  # noqa: BLE001, S110 - a closed stderr must not end a training run
            pass


def _number(value: Any) -> float | None:  # noqa: ANN401 - anything that float() takes, such as a tensor of one element
    try:
        number = float(value)
    except Exception:  # noqa: BLE001 - whatever a framework's scalar raises
        return None
    # JSON has neither NaN nor infinity.
    return number if math.isfinite(number) else None


def _run_file(name: str, environ: Mapping[str, str]) -> str:
    """Where the run file lies. Raises RunNotOpened where nothing says it."""
    named = environ.get("LAKEMARK_RUN_FILE")
    if named:
        return named
    home = environ.get("LAKEMARK_HOME") or _site(environ)
    if not home:
        raise RunNotOpened(
            "neither LAKEMARK_RUN_FILE nor LAKEMARK_HOME is set, and no lakemark.yaml lies in this directory or above; "
            f"`lakemark run open {name}` prints the line to set: export LAKEMARK_RUN_FILE=…"
        )
    return os.path.join(home, "runs", f"{_mapped(name)}.json")


def _site(environ: Mapping[str, str]) -> str | None:
    """Where lakemark.yaml lies, as the command line finds it."""
    named = environ.get("LAKEMARK_CONFIG")
    if named:
        return os.path.dirname(os.path.abspath(named))
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        return None
    while not os.path.isfile(os.path.join(folder, "lakemark.yaml")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def _read(path: str) -> dict[str, Any]:
    """The run file. Raises RunNotOpened."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        raise RunNotOpened(f"there is no run file {path}; make it with `lakemark run open`") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunNotOpened(f"the run file {path} can't be read: {error}") from error
    wrong = "it is not an object" if not isinstance(found, dict) else _wrong(found)
    if wrong:
        raise RunNotOpened(f"the run file {path} can't be used: {wrong}; make it again with `lakemark run open`")
    return dict(found)


def _wrong(found: Mapping[str, Any]) -> str | None:
    """What is wrong with it, in words; None where nothing is."""
    resume = found.get("resume")
    rules: dict[str, Callable[[], bool]] = {
        "run": lambda: isinstance(found.get("run"), str),
        "timeline": lambda: isinstance(found.get("timeline"), int),
        "attempt": lambda: isinstance(found.get("attempt"), str),
        "spool": lambda: isinstance(found.get("spool"), str),
        "data": lambda: (
            isinstance(found.get("data"), list)
            and all(isinstance(data, dict) and isinstance(data.get("uri"), str) for data in found["data"])
        ),
        "resume": lambda: (
            resume is None
            or (
                isinstance(resume, dict)
                and all(isinstance(resume.get(key), str) for key in ("path", "record"))
                and all(isinstance(resume.get(key), int) for key in ("step", "timeline"))
            )
        ),
    }
    broken = [name for name, holds in rules.items() if not holds()]
    return f"{', '.join(broken)} is missing or not what it should be" if broken else None


def _nearest(spool: str, run_file: str) -> str:
    """The spool as this process sees it: inside a container the same folder may be mounted elsewhere."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(run_file)))
    beside = os.path.join(home, "spool", os.path.basename(spool.rstrip("/")))
    return beside if not os.path.isdir(spool) and os.path.isdir(beside) else spool


def _mapped(name: str) -> str:
    """A name that is none of a run becomes one by its hex digits: any two stay different, and it is a file's name."""
    return name if _RUN.fullmatch(name) else "x-" + name.encode().hex()
