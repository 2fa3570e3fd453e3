"""Entries, and what they add up to."""
