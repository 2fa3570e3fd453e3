"""What an operation works on: one repository, seen through one transaction."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import Final

from lakemark.sandbox.lakefs.blobs import ObjectFiles
from lakemark.sandbox.lakefs.faults import BAD_REQUEST, NOT_FOUND, Fault

__all__ = ["NAME", "Repository", "Scope", "find_repository"]

NAME: Final = "^[a-z0-9][a-z0-9-]{2,62}$"


@dataclass(frozen=True, slots=True)
class Repository:
    """`created_s` counts from the Unix epoch."""

    id: str
    namespace: str
    default_branch: str
    created_s: int


@dataclass(frozen=True, slots=True)
class Scope:
    """A repository within a transaction."""

    db: sqlite3.Connection
    blobs: ObjectFiles
    repository: Repository


def find_repository(db: sqlite3.Connection, name: str) -> Repository:
    """Raise Fault 400 for a name that no repository can have, 404 where there is none of that name."""
    if not re.fullmatch(NAME, name):
        raise Fault(BAD_REQUEST, "argument repository: repository id: invalid value: validation error")
    row = db.execute("SELECT id, namespace, default_branch, created_s FROM repository WHERE id = ?", (name,)).fetchone()
    if row is None:
        raise Fault(NOT_FOUND, "repository not found")
    return Repository(*row)
