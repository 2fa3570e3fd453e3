"""What a lakeFS server's refusals mean here: the one place where its statuses become our errors."""

from __future__ import annotations

import json
from typing import Final

from lakemark.errors import (
    Conflict,
    DataGone,
    Denied,
    LakemarkError,
    Misconfigured,
    NotFound,
    Refused,
    StoreUnavailable,
    Usage,
    quoted,
)

BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
GONE: Final = 410
PRECONDITION_FAILED: Final = 412
RANGE_NOT_SATISFIABLE: Final = 416
RACES: Final = (429, 500)
"""What the slower of two that change one branch is told."""
_TRANSIENT: Final = frozenset({408, 423, 429})
_SERVER_ERRORS: Final = 500

_NAMES: Final = (
    "A repository's name is 3 to 63 lower-case letters, digits or -; "
    "a branch's is letters, digits, _ and -, and does not begin with -."
)
_LATER: Final = "The same call may work in a moment; if it does not, look at the lakeFS server."


def said(body: str | bytes | None) -> str:
    """The `message` of an error's body; the body itself, shortened, where there is none."""
    if not body:
        return "nothing more"
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    try:
        value = json.loads(text)
    except ValueError:
        return quoted(text)
    message = value.get("message") if isinstance(value, dict) else None
    return quoted(message, limit=300) if isinstance(message, str) else quoted(text)


def error_for(status: int, message: str, *, about: str) -> LakemarkError:
    """Our error for an answer nobody asked to see. `message`: what `said` gives; `about`: what was asked for."""
    seen = f"{about}: lakeFS answered {status}, {message}"
    if status == NOT_FOUND:
        return _not_found(message, about)
    if status == GONE:
        return DataGone(seen, advice="Its bytes were collected: restore what needs it from another data version.")
    if status in {UNAUTHORIZED, FORBIDDEN}:
        return _forbidden(seen, message, known=status == FORBIDDEN)
    if status == CONFLICT:
        return Conflict(seen, advice="Look at what is there now, then ask again.")
    if status == PRECONDITION_FAILED:
        return Refused(seen, advice="A hook of the data repository refused it: see its actions in lakeFS.")
    if may_pass(status):
        return _failed(seen, message)
    return Usage(seen, advice=_NAMES)


def may_pass(status: int) -> bool:
    """Whether the same request may be answered otherwise in a moment."""
    return status in _TRANSIENT or status >= _SERVER_ERRORS


def silent(endpoint: str, seconds: float) -> StoreUnavailable:
    """It was asked a moment ago, and said nothing: nobody waits for that again so soon."""
    return StoreUnavailable(
        f"the lakeFS server {endpoint} said nothing for {seconds:g} s a moment ago", advice="It is asked again soon."
    )


def too_slow(endpoint: str, about: str) -> StoreUnavailable:
    """All that one call asks took longer than a call may."""
    return StoreUnavailable(
        f"the lakeFS server {endpoint} answers too slowly: given up before {about}",
        advice="The same call may work later; see what keeps the server busy.",
    )


def not_asked(endpoint: str, about: str) -> StoreUnavailable:
    """What the pass has asked already took all the time it has for the server."""
    return StoreUnavailable(
        f"not asked: {about}: the lakeFS server {endpoint} answered the same pass too slowly before",
        advice="The next pass asks again; see what keeps the server busy.",
    )


def unreachable(endpoint: str, error: Exception) -> StoreUnavailable:
    """The server gave no answer, or broke off in the middle of one."""
    return StoreUnavailable(
        f"the lakeFS server {endpoint} does not answer: {_cause(error)}",
        advice="Is it running, and is `data.endpoint` right? The same call may work later.",
    )


def _cause(error: Exception) -> str:
    """What the system said, where it said something: the client's own words are wrapped around it, layer by layer."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        seen = getattr(seen, "reason", None) or seen.__cause__ or seen.__context__
    return quoted(str(error), limit=300)


def not_lakefs(endpoint: str, error: Exception) -> Misconfigured:
    """Something answered, but not as lakeFS does."""
    return Misconfigured(
        f"{endpoint} does not answer as a lakeFS server: {quoted(str(error), limit=300)}",
        advice="Check `data.endpoint`: it is the server's address, without a path.",
    )


def _not_found(message: str, about: str) -> NotFound:
    if "repository not found" in message:
        return NotFound(
            f"{about}: lakeFS has no such data repository",
            advice="`data.repository` names it; see lakeFS for its name.",
        )
    return NotFound(f"{about}: there is none ({message})", advice="Check the name against the data repository.")


def _failed(seen: str, message: str) -> LakemarkError:
    # An action file that can't be read makes lakeFS answer 500 to every commit on its branch: no server trouble.
    if "_lakefs_actions" in message:
        return Refused(seen, advice="Mend that action file in the data repository: it stops everything on its branch.")
    if "validation error" in message:
        return Usage(seen, advice=_NAMES)
    return StoreUnavailable(seen, advice=_LATER)


def _forbidden(seen: str, message: str, *, known: bool) -> LakemarkError:
    if not known:
        return Denied(seen, advice="Check LAKEFS_ACCESS_KEY_ID and LAKEFS_SECRET_ACCESS_KEY.")
    # 403 says both "not you" and "nobody": only the words tell.
    if "protected" in message or "read-only" in message or "default branch" in message:
        return Refused(seen, advice="The repository protects it: choose another branch, or ask who owns the rule.")
    return Denied(seen, advice="The lakeFS user has no right to do this: ask who runs the server.")
