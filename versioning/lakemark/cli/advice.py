"""Advice for a machine that only reads: without the commands that it refuses."""

from __future__ import annotations

import re
from typing import Final

from lakemark.cli.registry import READING, named

# Advice is made of clauses, each of which may name a command: a reader is shown those that it can follow.
_CLAUSE: Final = re.compile(r"(?<=[.;])\s+")
_COMMAND: Final = re.compile(r"\blakemark ([a-z-]+(?: [a-z-]+)?)", re.ASCII)


def for_readers(advice: str) -> str:
    """What of it a reader can do; where that is nothing, that a node of the site can."""
    clauses = _CLAUSE.split(advice)
    left = [clause for clause in clauses if not _refused(clause)]
    if len(left) == len(clauses):
        return advice
    # The clause before the one that was left out ends with `;`, which would point at nothing.
    return " ".join(left).removesuffix(";") or f"On a node of the site: {advice}"


def _refused(clause: str) -> bool:
    commands = (named(words.split()) for words in _COMMAND.findall(clause))
    return any(command is not None and command not in READING for command in commands)
