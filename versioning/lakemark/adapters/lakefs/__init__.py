"""Data versions in lakeFS."""
