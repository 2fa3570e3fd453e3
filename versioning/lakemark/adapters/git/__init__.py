"""The ledger in a bare Git repository."""
