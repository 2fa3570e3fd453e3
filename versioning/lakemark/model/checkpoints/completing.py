"""Complete a record: what its trainer's announcement says of a save that was recorded before the announcement came.

What a process says of its own save is stronger than what was worked out for a find. What a process has said once stays, also
where it says otherwise later; another process's word adds nothing. Whatever is not taken is said, with why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from lakemark.model.checkpoints.record import Code, DataKind, DataRef, Evidence, Record

_STRENGTH = tuple(Evidence)
"""Strongest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What an announcement says of its save. data: what the process had open; empty where it said none."""

    attempt: str | None
    data: tuple[DataRef, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    code: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The outcome. record: with what it lacked. bound: whether that is more than metrics. metrics: the added ones.

    notes: what a person should know, a sentence each.
    """

    record: Record
    bound: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def completed(record: Record, word: Word, *, in_files: Mapping[str, float]) -> Completed:
    """The record with what `word` adds. in_files: metrics that the framework wrote itself, which are rounded, or older."""
    if _by_another(record, word):
        return Completed(record=record, notes=tuple(_refused(record, word)))
    data, said = _data(record, word)
    told = replace(record, data=data, attempt=word.attempt or record.attempt, code=record.code or word.code)
    metrics, more = _metrics(record, word, in_files)
    bound = told != record
    if bound or metrics:
        told = replace(told, announced=True, metrics={**record.metrics, **metrics})
    return Completed(record=told, bound=bound, metrics=metrics, notes=(*said, *more))


def _told_by_its_process(record: Record) -> bool:
    # Records of before say it by their evidence alone.
    return record.announced or any(ref.evidence == Evidence.OPENED for ref in record.data)


def _by_another(record: Record, word: Word) -> bool:
    """Whose a find is was worked out, and may be wrong; whose an announced save is was said."""
    return (
        _told_by_its_process(record) and None not in (word.attempt, record.attempt) and word.attempt != record.attempt
    )


def _refused(record: Record, word: Word) -> Iterator[str]:
    other = [name for name, value in word.metrics.items() if record.metrics.get(name) != value]
    if other or (word.data and _commits(word.data) != _commits(record.data)):
        yield (
            f"attempt {word.attempt} announced it, too; what that says of data and metrics is not taken, as "
            f"attempt {record.attempt} saved it"
        )


def _data(record: Record, word: Word) -> tuple[tuple[DataRef, ...], list[str]]:
    """What it was trained with, and what is to be said of that."""
    if not word.data:
        return record.data, []
    if _commits(record.data) == _commits(word.data):
        said_of = {_named(ref): ref for ref in word.data}
        return tuple(_stronger(ref, said_of.get(_named(ref), ref)) for ref in record.data), []
    if _told_by_its_process(record):
        return record.data, [
            f"it was announced once more with other data, {_shown(word.data)}; it stays bound to {_shown(record.data)}"
        ]
    said = f"its process had {_shown(word.data)} open; until now {_shown(record.data)} was declared"
    # Of data of other kinds, which somebody bound by hand, an announcement says nothing.
    others = tuple(ref for ref in record.data if ref.kind not in (DataKind.LAKEFS, DataKind.NONE))
    return (*others, *word.data), [said] if record.bound else []


def _stronger(ref: DataRef, other: DataRef) -> DataRef:
    """The reference, by the stronger evidence of the two."""
    if ref.evidence not in _STRENGTH or other.evidence not in _STRENGTH:
        return ref
    if _STRENGTH.index(Evidence(other.evidence)) >= _STRENGTH.index(Evidence(ref.evidence)):
        return ref
    return replace(ref, evidence=other.evidence, extra={**ref.extra, **other.extra})


def _metrics(record: Record, word: Word, in_files: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    added: dict[str, float] = {}
    said: list[str] = []
    for name, value in word.metrics.items():
        have = record.metrics.get(name)
        if have is None:
            added[name] = value
        elif have != value and in_files.get(name) == have and not _told_by_its_process(record):
            added[name] = value
            said.append(f"{name} is {value:g} by its announcement; {have:g} was read from its files")
        elif have != value:
            said.append(
                f"{name} stays {have:g}, and not {value:g} as it was announced later; lakemark metric changes it"
            )
    return added, said


def _named(ref: DataRef) -> tuple[str, str, str]:
    return ref.kind, ref.repository, ref.commit


def _commits(data: tuple[DataRef, ...]) -> set[tuple[str, str, str]]:
    return {_named(ref) for ref in data if ref.kind == DataKind.LAKEFS}


def _shown(data: tuple[DataRef, ...]) -> str:
    return ", ".join(f"{ref.repository}@{ref.commit[:12]}" for ref in data if ref.commit) or "no data"
