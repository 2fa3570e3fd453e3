"""The Prefect flows of lakemark: thin, not installed, loaded by dotted entrypoints.

What a flow decides and does is in `lakemark.services`; here are parameters,
retries, concurrency and artifacts. Only this package imports Prefect.
"""
