"""What the API answers when it refuses."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "BAD_REQUEST",
    "CONFLICT",
    "FORBIDDEN",
    "GONE",
    "NOT_FOUND",
    "PRECONDITION_FAILED",
    "SERVER_ERROR",
    "Fault",
    "required",
]

BAD_REQUEST = 400
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
GONE = 410
PRECONDITION_FAILED = 412
SERVER_ERROR = 500


class Fault(Exception):
    """An answer other than success: an HTTP status, the message of its body, and headers if it has any."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers

    def under(self, prefix: str) -> Fault:
        """The same fault, its message preceded by what was being done."""
        # lakeFS wraps messages from the inside out, and clients show them as they are.
        return Fault(self.status, f"{prefix}: {self.message}")


def no_data() -> Fault:
    """A tree, or an object's bytes, that should be there and is not."""
    return Fault(GONE, "No data")


def required(what: str) -> Fault:
    """What lakeFS says where a name that it needs is empty: its own failure, not the caller's."""
    return Fault(SERVER_ERROR, f"argument {what}: required value: validation error")


def invalid_reference() -> Fault:
    return Fault(SERVER_ERROR, "ref: invalid value: validation error")


def no_changes() -> Fault:
    return Fault(BAD_REQUEST, "no changes")


def dirty_branch() -> Fault:
    return Fault(BAD_REQUEST, "uncommitted changes (dirty branch)")
