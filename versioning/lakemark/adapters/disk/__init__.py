"""What the adapters share: files that survive, digests, bounded work."""
