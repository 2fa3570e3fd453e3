"""Every port in memory, as faithful as the real ones: for trying policies and for tests, gone with the process.

    now = lambda: clock                                   # any function that answers an aware instant
    disk = MemoryDisk(now)
    hot = MemoryHot(disk, name="hot", node="node-a", domain="node-a")
    warm = MemoryStore(MemoryShelf(), name="warm", tier_class="warm", domain="array")
    ledger, data, journal, spool, notes = MemoryLedger(), MemoryData(now), MemoryJournal(), MemorySpool(), MemoryNotes()
    files, restorer, pointers = MemoryFiles(disk, notes), MemoryRestorer(disk), MemoryPointers(disk)

What outlives a process in the real adapters outlives `restarted()` here; what does not is lost in it.
"""

from tests.support.memory.data import MemoryData
from tests.support.memory.disk import MemoryDisk
from tests.support.memory.files import MemoryFiles
from tests.support.memory.hot import MemoryHot
from tests.support.memory.journal import MemoryJournal
from tests.support.memory.ledger import MemoryEntryCache, MemoryLedger
from tests.support.memory.notes import MemoryNotes
from tests.support.memory.pointers import MemoryPointers
from tests.support.memory.recogniser import MemoryRecogniser
from tests.support.memory.restorer import MemoryRestorer
from tests.support.memory.spool import MemorySpool
from tests.support.memory.stores import MemoryShelf, MemoryStore

__all__ = [
    "MemoryData",
    "MemoryDisk",
    "MemoryEntryCache",
    "MemoryFiles",
    "MemoryHot",
    "MemoryJournal",
    "MemoryLedger",
    "MemoryNotes",
    "MemoryPointers",
    "MemoryRecogniser",
    "MemoryRestorer",
    "MemoryShelf",
    "MemorySpool",
    "MemoryStore",
]
