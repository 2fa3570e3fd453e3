"""Every port in memory, as faithful as the real ones: for trying policies and for tests, gone with the process.

    now = lambda: clock                                   # any function that answers an aware instant
    disk = MemoryDisk(now)
    hot = MemoryHot(disk, name="hot", node="node-a", domain="node-a")
    warm = MemoryStore(MemoryShelf(), name="warm", tier_class="warm", domain="array")
    ledger, data, workspace, journal = MemoryLedger(), MemoryData(now), MemoryWorkspace(disk), MemoryJournal()

What outlives a process in the real adapters outlives `restarted()` here; what does not is lost in it.
"""

from tests.support.memory.data import MemoryData
from tests.support.memory.disk import MemoryDisk
from tests.support.memory.hot import MemoryHot
from tests.support.memory.ledger import MemoryEntryCache, MemoryLedger
from tests.support.memory.recogniser import MemoryRecogniser
from tests.support.memory.stores import MemoryShelf, MemoryStore
from tests.support.memory.workspace import MemoryJournal, MemoryWorkspace

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
