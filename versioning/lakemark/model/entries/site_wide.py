"""What people decide for the whole site: names for records, what is kept, what is not to be told again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Final

from lakemark.model.entries.kind import EntryBody, Kind, OnBranch
from lakemark.model.ledger.entry import Entry, Means
from lakemark.model.ledger.site import Muted, PolicySet, SiteState
from lakemark.model.values.outside import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasSetBody(EntryBody):
    alias: str = ""
    run: str = ""
    record: Annotated[str | None, "null: taken away"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySetBody(EntryBody):
    policy: Annotated[str | None, "sha256 of the text, 64 hex"] = None
    text: Annotated[str, "what retention keeps from now on, as canonical JSON"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutedBody(EntryBody):
    problem: Annotated[str, "the id that `status` shows"] = ""
    until: datetime | None = None


def _alias_set(state: SiteState, entry: Entry, body: AliasSetBody) -> None:
    named = (entry.recorded_at, body.run, body.record or "")
    state.aliases[body.alias] = [*state.aliases.get(body.alias, ()), named]


def _policy_set(state: SiteState, entry: Entry, body: PolicySetBody) -> None:
    policy = digest(body.policy)
    # Raised as for any entry that can't be read: retention then deletes nothing.
    if sha256(body.text.encode()).hexdigest() != policy:
        raise ValueError(f"a policy's text is not that of its digest {policy[:12]}")
    state.policies.append(PolicySet(policy=policy, text=body.text, set_at=entry.recorded_at, sequence=entry.sequence))


def _muted(state: SiteState, entry: Entry, body: MutedBody) -> None:
    if body.until is None:
        raise ValueError("until: it is missing")
    state.muted[body.problem] = Muted(until=body.until, by=entry.actor, reason=entry.reason, muted_at=entry.recorded_at)


ALIAS_SET: Final = Kind(name="alias_set", body=AliasSetBody, branch=OnBranch.SITE, on_site=_alias_set)
POLICY_SET: Final = Kind(name="policy_set", body=PolicySetBody, branch=OnBranch.SITE, on_site=_policy_set)
MUTED: Final = Kind(name="muted", body=MutedBody, branch=OnBranch.SITE, on_site=_muted, unknown_means=Means.IGNORE)

KINDS: Final = (ALIAS_SET, POLICY_SET, MUTED)
