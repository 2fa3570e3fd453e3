"""The demo's story, and the same as an acceptance pipeline."""
