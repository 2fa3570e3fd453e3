"""Families of Hugging Face's libraries."""
