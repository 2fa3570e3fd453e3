"""Which roles of a record are there, may be there, are missing or short; and which gaps somebody accepts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from lakemark.errors import Usage
from lakemark.model.checkpoints.judging import weights_only
from lakemark.model.checkpoints.manifest import NEEDED_TO_RESUME, Manifest, Role
from lakemark.model.checkpoints.record import Record
from lakemark.model.values.canonical import JSON

_MISSING: Final = re.compile(r"no (?P<role>[a-z_-]+)", re.ASCII)
_SHORT: Final = re.compile(r"(?P<name>[\w./-]+) for \d+ of \d+ ranks", re.ASCII)
_RNG: Final = ("rng", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """possible: neither names nor headers tell. missing: for sure. short: in words, such as `rng for 2 of 4 ranks`."""

    present: tuple[str, ...]
    possible: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    short: tuple[str, ...] = ()

    def as_json(self) -> dict[str, JSON]:
        return {
            "present": list(self.present),
            "possible": list(self.possible),
            "missing": list(self.missing),
            "short": list(self.short),
        }


def roles_of(manifest: Manifest, notes: Iterable[str] = ()) -> Roles:
    """notes: what was said of it when it was committed."""
    said = (*manifest.gaps, *notes)
    possible = manifest.extra.get("possible")
    return Roles(
        present=tuple(str(role) for role in manifest.roles),
        possible=tuple(map(str, possible)) if isinstance(possible, list) else (),
        missing=tuple(match["role"] for text in manifest.gaps if (match := _MISSING.fullmatch(text))),
        short=tuple(dict.fromkeys(_told(match) for text in said if (match := _SHORT.search(text)))),
    )


def gaps_beyond(gaps: Iterable[str], without: Collection[str]) -> tuple[str, ...]:
    """Those of a record's gaps that nobody accepted. One that names no role is never accepted."""
    return tuple(gap for gap in gaps if role_of(gap) not in without)


def role_of(gap: str) -> str | None:
    """The role a gap speaks of; None where it speaks of none."""
    match = _MISSING.fullmatch(gap)
    if match:
        return match["role"]
    short = _SHORT.search(gap)
    return _role_of_set(short["name"]) if short else None


def is_weights_only(record: Record) -> bool:
    """Whether it has nothing of the state of training but the weights."""
    needed = {f"no {role}" for role in NEEDED_TO_RESUME if role != Role.WEIGHTS.value}
    return needed <= set(record.gaps) or (record.resumable is False and weights_only(record.roles, ()))


def require_words(words: Iterable[str], *, option: str) -> None:
    """Raises Usage for what is no role."""
    known = {role.value for role in Role}
    wrong = next((word for word in words if word not in known), None)
    if wrong is not None:
        raise Usage(f"{option} {wrong!r} is not a role", advice=f"Roles are {', '.join(Role)}.")


def _told(match: re.Match[str]) -> str:
    name = match["name"]
    return match[0].replace(name, _role_of_set(name), 1)


def _role_of_set(name: str) -> str:
    """Of the name that per-rank files share, such as `rng_state` or `random_states`."""
    return Role.RNG.value if any(word in name for word in _RNG) else name
