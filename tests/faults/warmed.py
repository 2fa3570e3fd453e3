"""Loads what a command line needs, once, in the process that the campaign's commands are forked from."""

import importlib
import pkgutil

import boto3  # noqa: F401

import lakemark

LEFT_OUT = ("lakemark.sandbox", "lakemark.trainer", "lakemark.data", "lakemark.web", "lakemark.cli.__main__")

for found in pkgutil.walk_packages(lakemark.__path__, "lakemark."):
    if not found.name.startswith(LEFT_OUT):
        importlib.import_module(found.name)
