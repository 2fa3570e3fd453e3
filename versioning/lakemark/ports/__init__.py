"""What lakemark asks of the world, and what each answer guarantees.

Services see these and nothing else; `adapters` implement them; `contract` checks every guarantee written here, on our own
adapters in the tests and on a user's own stores in `lakemark doctor`.
"""

from lakemark.ports.data import DataCommit, DataDiff, DataVersions, HeadAt, MadePin, Strength
from lakemark.ports.ledger import EntryCache, Ledger
from lakemark.ports.local import (
    Directory,
    Fetch,
    Found,
    Journal,
    KnownFile,
    Recogniser,
    Restored,
    RunFile,
    Spooled,
    Verdict,
    Workspace,
)
from lakemark.ports.site import Approval, Policies, Site, Watched
from lakemark.ports.store import (
    Checkpoint,
    CheckpointStore,
    Damage,
    HotStore,
    Identity,
    Landed,
    Listing,
    Source,
    Stored,
    Usage,
)
from lakemark.ports.work import Clock, Progress, Quiet

__all__ = [
    "Approval",
    "Checkpoint",
    "CheckpointStore",
    "Clock",
    "Damage",
    "DataCommit",
    "DataDiff",
    "DataVersions",
    "Directory",
    "EntryCache",
    "Fetch",
    "Found",
    "HeadAt",
    "HotStore",
    "Identity",
    "Journal",
    "KnownFile",
    "Landed",
    "Ledger",
    "Listing",
    "MadePin",
    "Policies",
    "Progress",
    "Quiet",
    "Recogniser",
    "Restored",
    "RunFile",
    "Site",
    "Source",
    "Spooled",
    "Stored",
    "Strength",
    "Usage",
    "Verdict",
    "Watched",
    "Workspace",
]
