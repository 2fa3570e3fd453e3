"""Replicas: where they are, whether they are sound, which come and go."""
