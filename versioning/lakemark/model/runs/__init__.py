"""Runs: attempts, timelines, and whose a save is."""
