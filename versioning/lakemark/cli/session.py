"""What a command works with: the global options, the site's parts when it asks for them, and where it says what."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lakemark.cli.options import Options
from lakemark.cli.output import instant, plain
from lakemark.errors import EXIT_OK, Refused

if TYPE_CHECKING:
    from lakemark.cli.history import History
    from lakemark.cli.progress import ShownProgress
    from lakemark.ports import Site
    from lakemark.settings import Settings
    from lakemark.site import Parts

# Commands are called by the parser, which hands over only what was typed.
_CURRENT: ContextVar[Session] = ContextVar("lakemark_session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """document: what `--json` prints. lines: the same for people."""

    document: Mapping[str, Any]
    lines: Iterable[str] = ()
    exit_code: int = EXIT_OK


_SAVING: Final = frozenset({"commit", "sweep"})
"""Commands that seal what trainers saved, whatever became of the ledger."""


_PATIENT: Final = frozenset({"sweep", "verify", "watch", "demo", "up"})
"""Commands whose questions grow with what there is to look after: each of their passes has a patience of its own."""


@dataclass(kw_only=True)
class Session:
    """One command line's run. What it has is made at its first use. command: its name; None where that is not known."""

    options: Options
    environ: Mapping[str, str] = field(repr=False)
    command: str | None = None
    _refreshed: bool = field(default=False, init=False, repr=False)

    @cached_property
    def parts(self) -> Parts:
        """The site of the configuration that applies. Raises Misconfigured, Denied."""
        from lakemark.site import PATIENCE_SECONDS, Parts, configuration

        # Handed over with the site: the client of lakeFS is made by it, at its first use.
        patience = None if self.command in _PATIENT else PATIENCE_SECONDS
        loaded = configuration(self.options.config, environ=self.environ)
        return Parts(loaded, self.environ, patience_seconds=patience)

    @property
    def settings(self) -> Settings:
        return self.parts.settings

    @cached_property
    def history(self) -> History:
        """The ledger as readers see it."""
        from lakemark.cli.history import History

        self.refresh()
        return History(self.parts)

    @cached_property
    def progress(self) -> ShownProgress:
        """Where long work is told: bars on a terminal, lines elsewhere, nothing with --quiet or --json."""
        from lakemark.cli.progress import shown

        return shown(silent=self.options.quiet or self.options.json)

    @cached_property
    def site(self) -> Site:
        """What services work with. The actor is user@node. Raises Refused for a command that a reader may not give."""
        from lakemark.cli.registry import READING
        from lakemark.site import site_of

        # Here, and not in each command: whatever writes goes through services, and they need this.
        if self.parts.reads_only and self.command not in READING:
            raise Refused(
                f"this machine only reads (`profile: reader`): no {self.command or 'such command'} here",
                advice="Give the command on a node of the site.",
            )
        self.refresh()
        return site_of(self.parts, progress=self.progress, saving=self.command in _SAVING)

    def refresh(self) -> None:
        """Brings a reader's mirror of its site's ledger up to date, once; says on stderr where it could not."""
        if self._refreshed:
            return
        self._refreshed = True
        if self.parts.reads_only:
            from lakemark.site import refresh_mirror

            # Not an error: an old mirror still answers rightly for what it has.
            said = refresh_mirror(self.parts)
            if said is not None:
                self.warn(said)

    def require_sound(self) -> None:
        """Raises Refused while the ledger lacks entries: what decides is refused then, so its dry run is, too."""
        from lakemark.services.soundness import require_sound

        require_sound(self.site)

    def advised(self, text: str) -> str:
        """The advice, as far as it can be followed on this machine."""
        # Not `self.parts`: advice must not load a configuration, which may be what is wrong.
        made = self.__dict__.get("parts")
        if made is None or not made.reads_only:
            return text
        from lakemark.cli.advice import for_readers

        return for_readers(text)

    def close(self) -> None:
        """Ends progress, and lets go of the files that were opened."""
        if "progress" in self.__dict__:
            self.progress.close()
        made = self.__dict__.get("parts")
        # After the bars are gone, or they would be drawn over it.
        for trouble in made.troubles if made else ():
            self.warn(trouble)
        # Only what was used: asking for it by name would open it.
        opened = [made.__dict__.get(name) for name in ("ledger", "index", "journal")] if made else []
        for one in opened:
            if one is not None:
                one.close()

    @property
    def now(self) -> datetime:
        return self.parts.now()

    def when(self, text: str) -> datetime:
        """The instant WHEN names; it is said on stderr, in UTC. Raises Usage."""
        from lakemark.model.selectors import parse_when

        at = parse_when(text, now=self.now)
        self.note(f"{text} is {instant(at)}")
        return at

    def note(self, text: str) -> None:
        """A line on stderr that is no data, for people."""
        if not self.options.quiet and not self.options.json:
            sys.stderr.write(plain(text) + "\n")

    def warn(self, text: str) -> None:
        """A line on stderr that must be seen; --quiet does not hide it."""
        sys.stderr.write(plain(text) + "\n")


def session() -> Session:
    """The session of the command that is running."""
    return _CURRENT.get()


def begin(started: Session) -> None:
    """Makes `started` the running command's session."""
    _CURRENT.set(started)


def would(*sentences: str, **facts: object) -> Answer:
    """The answer of a dry run: what would be done, a sentence each, and facts it rests on."""
    document = {"dry_run": True, "would": list(sentences), **facts}
    return Answer(document=document, lines=[f"would {plain(one)}" for one in sentences] or ["nothing to do"])
