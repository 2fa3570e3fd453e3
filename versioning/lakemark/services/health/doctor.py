"""Doctor: run checks one by one, and say of each whether it holds and what to do where it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from lakemark.errors import LakemarkError


class Noted(str):
    """What a check saw where no rule is broken and a person should know all the same."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """A check: `run` answers what it saw (`Noted` where a person should know it), or raises what is wrong.

    advice: what to do where the error says nothing better. part_of: the check without which this one can't be tried.
    """

    name: str
    run: Callable[[], str]
    advice: str = ""
    part_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found. advice is empty where it holds. noted: it holds, and should be known."""

    name: str
    ok: bool
    detail: str
    advice: str = ""
    noted: bool = False


def examine(examinations: Iterable[Examination]) -> tuple[Finding, ...]:
    """A finding for each, in order, but for those that are part of one that failed: it says how many were not tried.

    Guarantees that do not hold (`contract.Broken`), errors of ours and of the operating system are findings; any other
    error is raised.
    """
    # A store that is away would fail every check of it: one finding says so.
    findings: dict[str, Finding] = {}
    untried: Counter[str] = Counter()
    for one in examinations:
        head = findings.get(one.part_of) if one.part_of is not None else None
        if head is not None and not head.ok:
            untried[head.name] += 1
        else:
            findings[one.name] = _found(one)
    return tuple(
        replace(one, detail=f"{one.detail}; {untried[one.name]} more check(s) of it were not tried")
        if untried[one.name]
        else one
        for one in findings.values()
    )


def _found(one: Examination) -> Finding:
    try:
        seen = one.run()
    except LakemarkError as error:
        return Finding(name=one.name, ok=False, detail=str(error), advice=error.advice or one.advice)
    except (AssertionError, OSError) as error:
        return Finding(name=one.name, ok=False, detail=str(error), advice=one.advice)
    noted = isinstance(seen, Noted)
    return Finding(name=one.name, ok=True, detail=str(seen), advice=one.advice if noted else "", noted=noted)
