"""Data versions: kept alive, looked at."""
