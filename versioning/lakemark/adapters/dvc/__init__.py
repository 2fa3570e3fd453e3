"""Warm and cold tiers in DVC's object layout, over objects wherever they lie."""
