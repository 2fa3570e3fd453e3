"""SQLite, derived from the ledger: fast answers for readers, and the ledger's memory from process to process.

Disposable: of another schema, or damaged, it is made anew from the ledger. Nothing is stored here that the ledger lacks,
but for the alarms.
"""

from lakemark.index.passing import passing_index
from lakemark.index.reading import Page, Selection
from lakemark.index.whole import Index, Source

__all__ = ["Index", "Page", "Selection", "Source", "passing_index"]
