"""`lakemark.yaml` and the environment, as one frozen `Settings`.

Reads no global state but the clock (`clock`): environment, working directory and
host name are arguments. Knows nothing of stores; `lakemark.site` does.
"""

from lakemark.settings.clock import clock_from, is_simulated
from lakemark.settings.keypairs import (
    KeyPair,
    Secret,
    credentials,
    is_loopback,
    lakefs_credentials,
    with_sandbox,
)
from lakemark.settings.load import Loaded, ShownSetting, load, loads, schema
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
    WatchSettings,
)
from lakemark.settings.policies import (
    AdmitSettings,
    BestSettings,
    PolicySettings,
    ResidenceSettings,
    RetentionSettings,
)
from lakemark.settings.schema import Settings
from lakemark.settings.search import find
from lakemark.settings.templates import PROFILES, render
from lakemark.settings.tiers import DirectoryTier, HotTree, S3Tier, Tier, TierSettings
from lakemark.settings.units import bytes_of
from lakemark.settings.unused import half_used, unused

__all__ = [
    "PROFILES",
    "AdmitSettings",
    "ApprovalSettings",
    "BestSettings",
    "DataSettings",
    "DirectoryTier",
    "DrillSettings",
    "FlowSettings",
    "HotTree",
    "KeyPair",
    "LedgerSettings",
    "LimitSettings",
    "Loaded",
    "NotifySettings",
    "ObjectiveSettings",
    "PolicySettings",
    "ResidenceSettings",
    "RetentionSettings",
    "S3Tier",
    "SandboxSettings",
    "Secret",
    "ServeSettings",
    "Settings",
    "ShownSetting",
    "Tier",
    "TierSettings",
    "WatchSettings",
    "bytes_of",
    "clock_from",
    "credentials",
    "find",
    "half_used",
    "is_loopback",
    "is_simulated",
    "lakefs_credentials",
    "load",
    "loads",
    "render",
    "schema",
    "unused",
    "with_sandbox",
]
