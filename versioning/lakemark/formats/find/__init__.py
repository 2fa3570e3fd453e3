"""Finds checkpoints in a tree, and asks each framework's family in turn."""
