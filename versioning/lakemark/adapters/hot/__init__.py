"""A hot tier: sealed directory trees on a node's fast disk."""
