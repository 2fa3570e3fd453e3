"""`ledger recover`: what the ledger lost, merged from what tiers and hot keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakemark.cli.output import plain
from lakemark.cli.session import Answer, session
from lakemark.errors import Corrupt, LakemarkError, StoreUnavailable

if TYPE_CHECKING:
    from lakemark.services.recovery.recover import Recovered


def recover(*, dry_run: bool = False) -> Answer:
    """Merge what the ledger lacks from the tiers' copies of it, their records of checkpoints, hot's trees and waiting saves.

    Makes the ledger's folder one that can be opened first, where it is damaged, copied or gone. Exits with 6 while a tier is
    away, whose part is brought in by the same command again, and with 4 where what must hold does not.

    Parameters
    ----------
    dry_run: bool
        Say what would be brought back, and from where; change nothing.
    """
    from lakemark.services.health.invariants import next_of, violations
    from lakemark.services.recovery.recover import recover as recover_ledger
    from lakemark.site import mend_ledger

    here = session()
    # Before the ledger is opened: what is damaged in its folder would refuse that.
    mended = mend_ledger(here.parts, dry_run=dry_run)
    try:
        found = recover_ledger(here.site, dry_run=dry_run)
    except LakemarkError:
        if not dry_run or not mended:
            raise
        # As it is it can't be read: what the copies have beyond it shows when that is mended.
        done = [*mended, "then merge into it what the tiers and hot know"]
        return _answer(None, mended=done, broken=[], dry_run=True)
    broken: list[str] = []
    advice: list[str] = []
    if not dry_run:
        # What was alarming is in the ledger again, or named as missing here.
        here.parts.index.forget_alarms()
        # A store out of reach is named as `away`, and breaks no rule.
        found_broken = [one for one in violations(here.site) if one.rule != "reachable"]
        broken = [f"{one.rule}: {one.what} {one.why}" for one in found_broken]
        advice = next_of(one.rule for one in found_broken)
    return _answer(found, mended=mended, broken=broken, dry_run=dry_run, advice=advice)


def _answer(
    found: Recovered | None, *, mended: list[str], broken: list[str], dry_run: bool, advice: Sequence[str] = ()
) -> Answer:
    missing, away = (found.missing, found.away) if found else ([], [])
    document: dict[str, Any] = {
        "recovered": {"entries": found.entries if found else 0, "records": found.records if found else 0},
        "from": list(dict.fromkeys(found.sources)) if found else [],
        "missing": missing,
        "away": away,
        "mended": [] if dry_run else mended,
        "violations": broken,
        "next": list(advice),
    }
    would = [*mended, *(found.would if found else [])]
    if dry_run:
        document |= {"dry_run": True, "would": would}
    code = StoreUnavailable.exit_code if away else 0
    if broken:
        # Graver than a tier that is away: the same command again would not help.
        code = Corrupt.exit_code
    return Answer(document=document, lines=_lines(document, would), exit_code=0 if dry_run else code)


def _lines(document: dict[str, Any], would: list[str]) -> list[str]:
    if document.get("dry_run"):
        lines = [f"would {one}" for one in would] or ["the ledger lacks nothing that anybody in reach knows"]
    else:
        got = document["recovered"]
        lines = [*document["mended"], f"brought back {got['entries']} entries, {got['records']} of them records"]
        lines += [f"from {one}" for one in document["from"]]
    lines += [f"missing: {one}" for one in document["missing"]]
    lines += [f"not asked: {one}; give the command again when it is back" for one in document["away"]]
    lines += [f"VIOLATED {one}" for one in document["violations"]]
    lines += [f"next: {one}" for one in document["next"]]
    return [plain(line) for line in lines]
