"""Starts: which start of a scheduler's job somebody speaks of. All nodes of one start share one attempt and one decision.

A job that is requeued keeps its id, so the id alone does not tell its starts apart: the count that schedulers give does,
and where there is none, what the job did since: a save *written* after its decision ends that decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Final, Self

from lakemark.model.ledger.run import Attempt, RunState
from lakemark.model.runs.timeline import usable

_SCHEDULERS: Final = (
    ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"),
    ("AWS_BATCH_JOB_ID", "AWS_BATCH_JOB_ATTEMPT"),
    ("LSB_JOBID", "LSB_RESTART"),
    ("PBS_JOBID", None),
    ("FLUX_JOB_ID", None),
)
"""Variables that a scheduler sets in a job's environment: its id, and how often it was started again."""
# What each counter says in a job's first start. LSF: Y or N.
_FIRST: Final = {"AWS_BATCH_JOB_ATTEMPT": ("", "1"), "SLURM_RESTART_COUNT": ("", "0"), "LSB_RESTART": ("", "N")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """job: its id; None: no job. restart: what tells this start of it from the first, as its scheduler says; None: the first."""

    job: str | None = None
    restart: str | None = None

    @classmethod
    def of(cls, job: str | None, environ: Mapping[str, str]) -> Self:
        """`job` as somebody gave it, else as the environment has it; how often it was restarted is of the environment always."""
        for name, counter in _SCHEDULERS:
            found = environ.get(name, "").strip()
            if found:
                restart = environ.get(counter, "").strip() if counter else ""
                first = not counter or restart in _FIRST[counter]
                return cls(job=found if job is None else job, restart=None if first else restart)
        return cls(job=job)

    def attempt(self, state: RunState) -> str | None:
        """The id of the attempt that this start is, sixteen hex digits; None where there is no job, and every start is new."""
        if self.job is None:
            return None
        # Ends: an id that no attempt has has not ended.
        ids = (self._id(state.run, number) for number in count())
        return next(one for one in ids if not _ended(state, state.attempts.get(one)))

    def folder(self, run: str, attempt: str) -> str | None:
        """What to call a folder of this attempt by; None where it has no job. The job's first start has its very id."""
        if self.job is None:
            return None
        number = next(number for number in count() if self._id(run, number) == attempt)
        return ".".join([self.job, *([f"r{self.restart}"] if self.restart else []), *([str(number)] if number else [])])

    def _id(self, run: str, number: int) -> str:
        """number: 0 is the start's first attempt, 1 the one after a save ended that, and so on."""
        parts = [run, str(self.job)]
        if self.restart or number:
            parts += [self.restart or "", str(number)]
        return sha256("\0".join(parts).encode()).hexdigest()[:16]


def _ended(state: RunState, attempt: Attempt | None) -> bool:
    """Whether what was decided for it no longer serves: its process saved since, or its record went out of use."""
    if attempt is None:
        return False
    # A rollback since was decided against what the start was given, or had begun in.
    begun = max(attempt.decided, attempt.sequence)
    if any(one.rollback is not None and one.sequence > begun for one in state.timelines.values()):
        return True
    if attempt.record is None:
        return False
    found = state.records.get(attempt.record)
    # Quarantined or pruned since: no node may go on from it, also not the last one of the start.
    if found is None or not usable(found):
        return True
    # Both: recorded after it, and written after it. What lay there before, and was found late, is no sign of a process.
    return any(
        one.record.attempt == attempt.id
        and one.sequence > attempt.decided
        and attempt.decided_at is not None
        and one.record.saved_at > attempt.decided_at
        for one in state.records.values()
    )
