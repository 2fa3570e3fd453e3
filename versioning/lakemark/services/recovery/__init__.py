"""A ledger that is behind, damaged or lost."""
