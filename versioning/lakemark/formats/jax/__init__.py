"""Families of JAX's frameworks."""
