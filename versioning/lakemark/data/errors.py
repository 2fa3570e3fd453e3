"""What reading data raises: errors of the operating system's kind, as loaders expect of a file."""

from __future__ import annotations


class DataError(OSError):
    """The server can't be reached after several tries, refuses, or answers what it should not."""


class DataGone(DataError):
    """The object is in the commit, and its bytes were collected: this data version can't be read any more."""
