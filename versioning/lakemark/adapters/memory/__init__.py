"""Every port in memory, as faithful as the real ones: for trying policies and for tests, gone with the process.

    now = lambda: clock                                   # any function that answers an aware instant
    disk = MemoryDisk(now)
    hot = MemoryHot(disk, name="hot", node="node-a", domain="node-a")
    warm = MemoryStore(MemoryShelf(), name="warm", tier_class="warm", domain="array")
    ledger, data, workspace, journal = MemoryLedger(), MemoryData(now), MemoryWorkspace(disk), MemoryJournal()

What outlives a process in the real adapters outlives `restarted()` here; what does not is lost in it.
"""

from lakemark.adapters.memory.data import MemoryData
from lakemark.adapters.memory.disk import MemoryDisk
from lakemark.adapters.memory.hot import MemoryHot
from lakemark.adapters.memory.ledger import MemoryEntryCache, MemoryLedger
from lakemark.adapters.memory.recogniser import MemoryRecogniser
from lakemark.adapters.memory.stores import MemoryShelf, MemoryStore
from lakemark.adapters.memory.workspace import MemoryJournal, MemoryWorkspace

__all__ = [
    "MemoryData",
    "MemoryDisk",
    "MemoryEntryCache",
    "MemoryHot",
    "MemoryJournal",
    "MemoryLedger",
    "MemoryRecogniser",
    "MemoryShelf",
    "MemoryStore",
    "MemoryWorkspace",
]
