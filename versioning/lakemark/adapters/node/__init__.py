"""This node beside its tiers: the trainers' directories, its journal, its service."""
