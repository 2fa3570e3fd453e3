"""Runs: opened, closed, told which data to read."""
