"""Doctor: run checks one by one, and say of each whether it holds and what to do where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lakemark.errors import LakemarkError


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """A check: `run` answers what it saw, or raises what is wrong. advice: what to do where the error says nothing better."""

    name: str
    run: Callable[[], str]
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found. advice is empty where it holds."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


def examine(examinations: Iterable[Examination]) -> Iterator[Finding]:
    """A finding for each, in order. A check that fails never keeps the next one from running.

    Guarantees that do not hold (`contract.Broken`), errors of ours and of the operating system are findings; any other
    error is raised.
    """
    for one in examinations:
        try:
            yield Finding(name=one.name, ok=True, detail=one.run())
        except LakemarkError as error:
            yield Finding(name=one.name, ok=False, detail=str(error), advice=error.advice or one.advice)
        except (AssertionError, OSError) as error:
            yield Finding(name=one.name, ok=False, detail=str(error), advice=one.advice)
