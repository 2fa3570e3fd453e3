"""Tiers as configured: which keys each class and kind may have."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from lakemark.errors import quoted
from lakemark.settings.document import Value
from lakemark.settings.kinds import (
    Amount,
    Credentials,
    Endpoint,
    Instant,
    LocalPath,
    Name,
    Region,
    S3Url,
    Size,
    StorageClass,
    Url,
)
from lakemark.settings.section import (
    Default,
    Section,
    SettingProblem,
    ValueKind,
    invalid,
    read_section,
    section_schema,
    shown_section,
)


@dataclass(frozen=True, kw_only=True)
class TierSettings(Section):
    """What every tier may have.

    `domain` is the failure domain it shares with others of the same name; None
    means one of its own: the node's for a hot tree, else the tier's. `capacity`
    is bytes the tier may use. `high_water` and `low_water` are shares or bytes of
    the capacity (of the file system where that is None): above the first it is
    red and releases what policy allows, down to the second.
    """

    names: ClassVar[Mapping[str, str]] = {"tier_class": "class"}

    domain: Annotated[Name | None, Default(None)]
    capacity: Annotated[Size | None, Default(None)]
    high_water: Annotated[Amount | None, Default(None)]
    low_water: Annotated[Amount | None, Default(None)]

    def problems(self) -> Iterator[SettingProblem]:
        """Water marks the wrong way round."""
        high, low = self.high_water, self.low_water
        if low is not None and high is None:
            yield SettingProblem(("low_water",), "is given without `high_water`, from which it would start")
        # A share and a size are compared only once the capacity is known.
        elif low is not None and high is not None and type(high) is type(low) and low >= high:
            yield SettingProblem(("low_water",), "must be below `high_water`")


@dataclass(frozen=True, kw_only=True)
class HotTree(TierSettings):
    """Sealed directory trees on the node's own disk.

    `min_free` is of the *file system*, a share or bytes; below it nothing new
    lands. `ephemeral`: its place is empty at each start by design (an emptyDir, a
    wiped SSD): an empty one gets a new identity, and what lay in the old one is
    recorded as gone. `peers` are URLs under which other nodes publish their hot,
    read-only.
    """

    what: ClassVar[str] = "a hot tree"

    tier_class: Literal["hot"]
    kind: Literal["tree"]
    path: LocalPath
    landing: Annotated[Literal["auto", "reflink", "link", "copy"], Default("auto")]
    min_free: Annotated[Amount, Default("10%")]
    when_full: Annotated[Literal["thin", "stop"], Default("thin")]
    ephemeral: Annotated[bool, Default(value=False)]
    peers: Annotated[tuple[Url, ...], Default([])]


@dataclass(frozen=True, kw_only=True)
class SunkTier(TierSettings):
    """What warm and cold tiers have in common; `shared` means identified but never deleted from."""

    tier_class: Literal["warm", "cold"]
    shared: Annotated[bool, Default(value=False)]


@dataclass(frozen=True, kw_only=True)
class DirectoryTier(SunkTier):
    """DVC's layout in a directory; a `removable` one may be away without being red.

    `access` is who may enter the root where lakemark makes it, and so read what
    lies in it: objects are 0444. A root that is there already keeps its mode.
    """

    what: ClassVar[str] = "a directory tier"

    kind: Literal["directory"]
    path: LocalPath
    min_free: Annotated[Amount, Default("0%")]
    removable: Annotated[bool, Default(value=False)]
    access: Annotated[Literal["owner", "group", "all"], Default("owner")]


@dataclass(frozen=True, kw_only=True)
class S3Tier(SunkTier):
    """DVC's layout under an S3 prefix.

    Without `endpoint` it is AWS; without `credentials` the AWS SDK's own chain.
    `path_style` None leaves the choice to the SDK. `retain_until` asks the store's
    object lock to keep what is written until that instant. `expires: never` is the
    site's own word where it may not read the bucket's lifecycle rules.
    """

    what: ClassVar[str] = "an s3 tier"

    kind: Literal["s3"]
    url: S3Url
    endpoint: Annotated[Endpoint | None, Default(None)]
    region: Annotated[Region, Default("us-east-1")]
    credentials: Annotated[Credentials | None, Default(None)]
    storage_class: Annotated[StorageClass | None, Default(None)]
    ca_bundle: Annotated[LocalPath | None, Default(None)]
    path_style: Annotated[bool | None, Default(None)]
    retain_until: Annotated[Instant | None, Default(None)]
    expires: Annotated[Literal["never"] | None, Default(None)]


_MODELS: Final[Mapping[str, Mapping[str, type[TierSettings]]]] = {
    "hot": {"tree": HotTree},
    "warm": {"s3": S3Tier, "directory": DirectoryTier},
    "cold": {"s3": S3Tier, "directory": DirectoryTier},
}


def _read(value: Value, base: Path) -> TierSettings:
    """Class and kind first: they decide which other keys there may be."""
    if not isinstance(value, dict):
        raise invalid(f"must be a mapping such as {{class: hot, kind: tree, path: hot}}, not {quoted(value)}")
    # The class decides what kinds there are, the kind which keys.
    tier_class = _one_of(value, "class", tuple(_MODELS))
    models = _MODELS[tier_class]
    kind = _one_of(value, "kind", tuple(models), of=f" for class {tier_class}")
    return read_section(models[kind], value, base)


def _one_of(value: Mapping[str, Value], key: str, names: tuple[str, ...], *, of: str = "") -> str:
    words = " or ".join(names)
    if key not in value:
        raise invalid(f"is missing; it is {words}", key)
    found = value[key]
    if not isinstance(found, str) or found not in names:
        raise invalid(f"must be {words}{of}, not {quoted(found)}", key)
    return found


Tier = Annotated[
    HotTree | DirectoryTier | S3Tier,
    ValueKind(
        read=_read,
        schema=lambda: {"oneOf": [section_schema(model) for model in (HotTree, DirectoryTier, S3Tier)]},
        show=shown_section,
    ),
]
