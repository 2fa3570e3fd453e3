"""Families of PyTorch's frameworks."""
