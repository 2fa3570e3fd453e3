"""Prefect flows: parameters, retries, concurrency, artifacts. What they do is in `lakemark.services`.

Prefect loads them by dotted entrypoint (`flows.rollback.roll_back`); they import Prefect and lakemark, never each other.
"""
