"""A rollback: its plan, its rules, what people are told."""
