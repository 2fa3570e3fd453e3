"""From what a trainer left to a record."""
