"""A checkpoint: its manifest, its record, its parts, and what its roles say."""
