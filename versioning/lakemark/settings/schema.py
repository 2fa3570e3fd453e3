"""The whole configuration, `Settings`, and the rules that hold between its parts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from lakemark.settings.document import Key, Value
from lakemark.settings.kinds import Copies, LocalPath, Name, NodeName
from lakemark.settings.overlaps import overlaps
from lakemark.settings.parts import (
    ApprovalSettings,
    DataSettings,
    DrillSettings,
    FlowSettings,
    LedgerSettings,
    LimitSettings,
    NotifySettings,
    ObjectiveSettings,
    SandboxSettings,
    ServeSettings,
    VerifySettings,
    WatchSettings,
)
from lakemark.settings.policies import RESIDENCE, ResidenceSettings, RetentionSettings
from lakemark.settings.section import (
    Default,
    Section,
    SettingProblem,
    ValueKind,
    invalid,
    nearest,
    read_section,
    section_schema,
    shown_section,
)
from lakemark.settings.tiers import Tier


def _data(value: Value, base: Path) -> DataSettings | None:
    if value == "none":
        return None
    # An empty `data:` may be a deleted line; that there is none has to be said.
    if value is None:
        raise invalid("is empty; write `data: none` where there is no data versioning")
    return read_section(DataSettings, value, base)


_DATA = ValueKind(
    read=_data,
    schema=lambda: {"anyOf": [section_schema(DataSettings), {"const": "none"}]},
    show=lambda data: "none" if data is None else shown_section(data),
)


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """A valid `lakemark.yaml`, environment applied: frozen, paths absolute, every default filled in.

    `profile: reader` is a machine that only restores: `ledger.path` is a mirror of `ledger.remote`.
    `data` is None where there is no data versioning. `copies` counts failure
    domains. `residence` has every tier.
    """

    site: Name
    node: NodeName
    profile: Annotated[Literal["reader"] | None, Default(None)]
    ledger: Annotated[LedgerSettings, Default({})]
    data: Annotated[DataSettings | None, _DATA]
    tiers: Mapping[Name, Tier]
    copies: Annotated[Copies, Default(1)]
    residence: Annotated[Mapping[Name, ResidenceSettings], Default({})]
    retention: Annotated[RetentionSettings, Default({})]
    objectives: Annotated[ObjectiveSettings, Default({})]
    watch: Annotated[tuple[WatchSettings, ...], Default([])]
    approval: Annotated[ApprovalSettings, Default({})]
    verify: Annotated[VerifySettings, Default({})]
    drill: Annotated[DrillSettings, Default({})]
    flows: Annotated[FlowSettings, Default({})]
    serve: Annotated[ServeSettings, Default({})]
    limits: Annotated[LimitSettings, Default({})]
    notify: Annotated[NotifySettings, Default({})]
    restore_root: Annotated[LocalPath, Default("restores")]
    sandbox: Annotated[SandboxSettings, Default({})]
    simulated_clock: Annotated[bool, Default(value=False)]

    def problems(self) -> Iterator[SettingProblem]:
        """What parts ask of one another."""
        if self.profile == "reader" and self.ledger.remote is None:
            yield SettingProblem(("ledger",), "names no `remote`; a reader reads a site's ledger from there")
        if not any(tier.tier_class == "hot" for tier in self.tiers.values()):
            yield SettingProblem(("tiers",), "has no tier of class hot; a checkpoint lands in one first")
        # A tier without a domain is one of its own; a pair can't be any tier's domain by name.
        domains = {tier.domain or ("own", name) for name, tier in self.tiers.items()}
        # Else every record would wait for a copy that can't come, and nothing would ever be released.
        if self.tiers and self.copies > len(domains):
            yield SettingProblem(
                ("copies",),
                f"asks for {self.copies} failure domains, but the tiers have {len(domains)}: "
                "no record would ever count as safe",
            )
        for first, second in overlaps(self.tiers, places=self._places(), watched=[one.path for one in self.watch]):
            other = ".".join(map(str, second))
            yield SettingProblem(first, f"overlaps with `{other}`; each needs a place of its own")

    def _places(self) -> dict[Key, Path]:
        """What lies on this disk beside tiers and trainers' directories, by key."""
        places: dict[Key, Path] = {("ledger", "path"): self.ledger.path, ("restore_root",): self.restore_root}
        if self.sandbox.s3 or self.sandbox.lakefs or self.sandbox.prefect:
            places["sandbox", "dir"] = self.sandbox.dir
        return places


def read_settings(value: Mapping[str, Value], base: Path) -> Settings:
    """`value` as Settings; InvalidError with everything that is wrong. Relative paths count from `base`."""
    return read_section(Settings, {**value, **_residence(value)}, base)


def _residence(value: Mapping[str, Value]) -> dict[str, Value]:
    """Each tier's residence: what its class usually has, key by key where the file says less."""
    tiers, given = value.get("tiers"), value.get("residence", {})
    # What is wrong with these is said where they are read.
    if not isinstance(tiers, dict) or not isinstance(given, dict):
        return {}
    for name in given:
        if name not in tiers:
            like = f"; the nearest one is `{nearest(name, tuple(tiers))}`" if tiers else ""
            raise invalid(f"is not a tier{like}", "residence", name)
    whole = dict(given)
    for name, tier in tiers.items():
        tier_class = tier.get("class") if isinstance(tier, dict) else None
        mine = given.get(name, {})
        # As above: the tier's own reading names it.
        if not isinstance(tier_class, str) or tier_class not in RESIDENCE or not isinstance(mine, dict):
            continue
        if tier_class == "hot" and mine.get("admit", "all") != "all":
            raise invalid("must be all for class hot, where every save lands", "residence", name, "admit")
        whole[name] = {**RESIDENCE[tier_class], **mine}
    return {"residence": whole}
