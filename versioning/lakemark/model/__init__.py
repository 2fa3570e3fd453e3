"""Decides; touches nothing. Standard library only, no I/O, no clock.

Everything here is a value or a function of values: what a checkpoint is, what the ledger says, which replica may go.
Instants are aware UTC datetimes handed in by the caller. Files, stores and Git are the business of `adapters`.
"""
