"""Recognising checkpoints by file rules only: names and headers. Nothing is imported from a framework, nothing unpickled."""
