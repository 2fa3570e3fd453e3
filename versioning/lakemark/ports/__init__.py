"""What lakemark asks of the world, and what each answer guarantees.

Services see these and nothing else; `adapters` implement them; `contract` checks every guarantee written here, on our own
adapters in the tests and on a user's own stores in `lakemark doctor`.
"""

from lakemark.ports.data import (
    DataCommit,
    DataDiff,
    DataVersions,
    HeadAt,
    MadePin,
    Patience,
    PinAsked,
    PinSeen,
    Sampled,
    Strength,
)
from lakemark.ports.files import Files, KnownFile, OnDisk
from lakemark.ports.hot import HotStore, Landed, Landings, SealedTrees
from lakemark.ports.journal import BoundDirectories, Directory, Journal, KnownFiles, Mark, MarkKind, Marks, SeenTips
from lakemark.ports.ledger import EntryCache, Ledger
from lakemark.ports.notes import Notes
from lakemark.ports.pointers import Pointer, PointerKind, Pointers
from lakemark.ports.recogniser import Baked, Found, Placed, Range, Recogniser, Skip, Unreadable, Verdict
from lakemark.ports.restorer import Fetch, FetchPart, Restored, Restorer, Sparse
from lakemark.ports.site import Approval, Drills, Objectives, Policies, ReadBack, Site, Watched, WaterMarks
from lakemark.ports.spool import RunFile, Spool, Spooled
from lakemark.ports.store import (
    Checkpoint,
    CheckpointStore,
    Damage,
    Expiry,
    Garbage,
    Identity,
    LedgerCopy,
    Listing,
    Named,
    Replicas,
    Source,
    Stored,
    TierPlace,
    TierUsage,
)
from lakemark.ports.work import Clock, Progress, Quiet

__all__ = [
    "Approval",
    "Baked",
    "BoundDirectories",
    "Checkpoint",
    "CheckpointStore",
    "Clock",
    "Damage",
    "DataCommit",
    "DataDiff",
    "DataVersions",
    "Directory",
    "Drills",
    "EntryCache",
    "Expiry",
    "Fetch",
    "FetchPart",
    "Files",
    "Found",
    "Garbage",
    "HeadAt",
    "HotStore",
    "Identity",
    "Journal",
    "KnownFile",
    "KnownFiles",
    "Landed",
    "Landings",
    "Ledger",
    "LedgerCopy",
    "Listing",
    "MadePin",
    "Mark",
    "MarkKind",
    "Marks",
    "Named",
    "Notes",
    "Objectives",
    "OnDisk",
    "Patience",
    "PinAsked",
    "PinSeen",
    "Placed",
    "Pointer",
    "PointerKind",
    "Pointers",
    "Policies",
    "Progress",
    "Quiet",
    "Range",
    "ReadBack",
    "Recogniser",
    "Replicas",
    "Restored",
    "Restorer",
    "RunFile",
    "Sampled",
    "SealedTrees",
    "SeenTips",
    "Site",
    "Skip",
    "Source",
    "Sparse",
    "Spool",
    "Spooled",
    "Stored",
    "Strength",
    "TierPlace",
    "TierUsage",
    "Unreadable",
    "Verdict",
    "Watched",
    "WaterMarks",
]
