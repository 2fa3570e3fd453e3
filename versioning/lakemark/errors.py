"""Every error that lakemark raises on purpose, grouped by what a handler does.

::

    LakemarkError             1  anything else on purpose; never raised itself
    ├── NotFound              3  say what there is instead; ask again with it
    │   ├── NoRecordAsOf         no record at or before that time or step
    │   ├── NoReplica            no replica of it can be reached or exists
    │   └── DataGone             the data's bytes were collected; names what is lost
    ├── Conflict              5  the ledger moved, or other bytes under the same name: re-read
    ├── Incomplete            4  cannot be resumed from, or still changing: names what is missing
    │   └── Unsteady             it looks whole and is still being written: it may be taken later
    ├── Corrupt               4  bytes differ from the manifest: try another replica
    │   ├── SourceDamaged        what was read from differs: that replica is not to be trusted
    │   ├── TargetDamaged        what was written reads back otherwise: write it again, the source is as it was
    │   └── AnswerDamaged        the reading itself lied or broke off: read again before blaming anybody
    ├── Refused               7  policy, hold, cap, tier identity, clock, approval: a person decides
    │   ├── RunClosed            the run was closed before that save was made
    │   ├── NameTaken            a place keeps other bytes under the name ours would have there
    │   ├── NoRoom               a disk is full, or at its limit: it can be done once there is room
    │   ├── PinReleased          somebody let a data pin go by its marker: another name keeps the data
    │   └── InDistress           the ledger lacks entries that somebody knows: they are brought back first
    ├── Misconfigured         2  names the file and the key: mend the configuration
    │   └── Usage             2  an argument or variable that does not parse, or is ambiguous
    ├── Denied                8  EACCES, EPERM, or another owner's repository or file
    └── StoreUnavailable      6  transient: the only class that flows retry

The numbers are the exit codes of the command line; a class without one has its
parent's. A program that ends well exits with 0, on an error that is none of
these with 1, interrupted with 130.

Messages are one line: they name the value and the rule it broke. Put foreign
values through `quoted`, which makes control characters harmless. Addresses in
them are without passwords and tokens, whoever put them there (`without_secrets`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "EXIT_INTERRUPTED",
    "EXIT_OK",
    "EXIT_UNEXPECTED",
    "AnswerDamaged",
    "Conflict",
    "Corrupt",
    "DataGone",
    "Denied",
    "ErrorDetail",
    "ErrorDocument",
    "InDistress",
    "Incomplete",
    "LakemarkError",
    "Misconfigured",
    "NameTaken",
    "NoRecordAsOf",
    "NoReplica",
    "NoRoom",
    "NotFound",
    "PinReleased",
    "Refused",
    "RunClosed",
    "SourceDamaged",
    "StoreUnavailable",
    "TargetDamaged",
    "Unsteady",
    "Usage",
    "quoted",
    "raised_in",
    "without_secrets",
]

EXIT_OK = 0
EXIT_UNEXPECTED = 1
EXIT_INTERRUPTED = 130

_ADDRESS: Final = re.compile(
    r"""(?P<scheme>[a-z][a-z0-9+.-]*)://
        # All up to the last @ of what names the server; what is no port after a colon is a password with a / in it.
        (?:(?P<user>[^\s'"/?\#:@]*)(?:(?:[^\s'"/?\#]*)|(?::(?!\d+(?:[/?\#\s'"]|$))[^\s'"]*))@)?
        (?P<rest>[^\s'"?\#]*)
        (?P<mark>[?\#])?(?P<more>(?:[^\s'"]*[^\s'".,;:)])?)""",
    re.VERBOSE | re.IGNORECASE,
)


class _Required(TypedDict):
    kind: str
    message: str
    advice: str
    exit_code: int


class ErrorDetail(_Required, total=False):
    """What `--json` prints of an error; `lost` only where data is gone."""

    lost: list[str]


class ErrorDocument(TypedDict):
    """The one line on stderr under `--json`."""

    error: ErrorDetail


class LakemarkError(Exception):
    """Root of the tree; catch it to handle everything lakemark raises on purpose.

    `message` is one line that names the value and the rule. `advice` is one
    sentence for the person on call: what to do now. Copies and pickles keep both.
    """

    exit_code: ClassVar[int] = EXIT_UNEXPECTED
    shown_as: ClassVar[str | None] = None
    """The kind that scripts see of a class which only our own handlers tell from its parent."""

    def __init__(self, message: str, *, advice: str) -> None:
        super().__init__(without_secrets(message))
        self.advice = without_secrets(advice)

    @property
    def kind(self) -> str:
        """The class's name, as in `--json` and in docs; never changes for a class."""
        return self.shown_as or type(self).__name__

    @property
    def message(self) -> str:
        """What `str()` gives: one line, without the advice."""
        return str(self)

    def as_json(self) -> ErrorDocument:
        """`{"error": {"kind", "message", "advice", "exit_code"}}`, ready for `json.dumps`."""
        return {
            "error": {
                "kind": self.kind,
                "message": self.message,
                "advice": self.advice,
                "exit_code": self.exit_code,
            }
        }

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild without `__init__`, whose `advice` the default would leave out."""
        return _rebuilt, (type(self), self.args), dict(self.__dict__)


def _rebuilt(cls: type[LakemarkError], args: tuple[object, ...]) -> LakemarkError:
    return cls.__new__(cls, *args)


class NotFound(LakemarkError):
    """What was asked for does not exist, as far as this node's ledger knows."""

    exit_code = 3


class NoRecordAsOf(NotFound):
    """The lineage has no record at or before the time or step asked for."""


class NoReplica(NotFound):
    """The record exists, but no replica of it does, or none within reach."""


class DataGone(NotFound):
    """The data version's bytes were collected; what it names cannot be read again.

    `lost` are the paths found missing: possibly a sample, empty where unknown.
    Raised only where the command asked for that data itself; a plan that finds
    its data unreadable is `Refused`.
    """

    def __init__(self, message: str, *, advice: str, lost: Iterable[str] = ()) -> None:
        super().__init__(message, advice=advice)
        self.lost = tuple(lost)

    def as_json(self) -> ErrorDocument:
        """The document of every error, with `lost` where paths are known."""
        document = super().as_json()
        if self.lost:
            document["error"]["lost"] = list(self.lost)
        return document


class Conflict(LakemarkError):
    """The ledger moved on, or the same name holds other bytes: re-read and decide again."""

    exit_code = 5


class Incomplete(LakemarkError):
    """A checkpoint that cannot be resumed from, or a file that changed while hashed."""

    exit_code = 4


class Unsteady(Incomplete):
    """What looks whole changed while it was taken, or is open for writing: somebody is at it. Its kind is Incomplete's."""

    shown_as = "Incomplete"


class Corrupt(LakemarkError):
    """Bytes that differ from the manifest's digest; whose they are, the classes below say where it is known."""

    exit_code = 4


class SourceDamaged(Corrupt):
    """Bytes of the side that was read from are not the manifest's: read twice, and different both times."""


class TargetDamaged(Corrupt):
    """What was just written reads back otherwise, or could not be written durably. It says nothing of the source."""


class AnswerDamaged(Corrupt):
    """One reading gave wrong, short or garbled bytes; what lies there may be sound. Read again before it counts against it."""


class Refused(LakemarkError):
    """Possible, but against a rule: policy, hold, cap, identity, clock, space, approval."""

    exit_code = 7


class NoRoom(Refused):
    """A place is full, or would be beyond its limit; the same can be done once there is room. Its kind is Refused's."""

    shown_as = "Refused"


class RunClosed(Refused):
    """The run is closed, and the save was made after that: it is nobody's until the run is reopened. Its kind is Refused's."""

    shown_as = "Refused"


class NameTaken(Refused):
    """Two files with different bytes would have one name in a place (equal MD5s, say): what lies there is never replaced.

    Trying again does not help; the checkpoint can be kept anywhere else. Its kind is Refused's.
    """

    shown_as = "Refused"


class PinReleased(Refused):
    """A pin's guard was opened by a release marker: under that name nothing keeps the data again. Its kind is Refused's."""

    shown_as = "Refused"


class InDistress(Refused):
    """The ledger lacks entries that this node, a tier or hot knows: nothing is recorded, dropped or overwritten on it.

    A save is sealed all the same, and waits for the recovery. Its kind is Refused's.
    """

    shown_as = "Refused"


class Misconfigured(LakemarkError):
    """The configuration cannot be used; the message names the file and the key."""

    exit_code = 2


class Usage(Misconfigured):
    """An argument or variable that does not parse, is ambiguous, or not allowed here."""


class Denied(LakemarkError):
    """The operating system or the store says no: rights, or another owner."""

    exit_code = 8


class StoreUnavailable(LakemarkError):
    """A store, remote or server does not answer; the same call may work later."""

    exit_code = 6


def quoted(value: object, *, limit: int = 120) -> str:
    """`repr` in at most `limit` characters, safe on a terminal and in one line.

    Line breaks, control characters, bidirectional overrides and lone surrogates
    come out as escapes.
    """
    # First: what is cut off may lack what tells where a password ends.
    text = repr(without_secrets(value) if isinstance(value, str) else value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def raised_in(error: BaseException, package: str) -> bool:
    """Whether `error` came out of `package` or of what that called.

    Vendors let AttributeError, KeyError, TypeError and ValueError pass where a server's answer is not what they expect. The
    same exceptions out of our own lines are mistakes of ours, and no advice about somebody's server mends those.
    """
    trace = error.__traceback__
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if name == package or name.startswith(package + "."):
            return True
        trace = trace.tb_next
    return False


def without_secrets(text: str) -> str:
    """The text with every address (`scheme://…`) in it as it may be shown: without password, token, query and fragment.

    Over SSH the user stays, who is no secret. The same again changes nothing. Whatever shows an address that somebody gave
    uses this: in an answer, a log, an entry, a file that others read.
    """
    return _ADDRESS.sub(_shown, text) if "://" in text else text


def _shown(found: re.Match[str]) -> str:
    user = found["user"] if found["user"] and found["scheme"].lower().endswith("ssh") else None
    end = f"{found['mark']}…" if found["mark"] and found["more"] else f"{found['mark'] or ''}{found['more']}"
    return f"{found['scheme']}://{f'{user}@' if user else ''}{found['rest']}{end}"
