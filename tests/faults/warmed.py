"""Loads what a command line needs, once, in the process that the campaign's commands are forked from."""

import importlib
import pkgutil

import boto3

import lakemark
from tests.services_fixtures import read_descriptions_once

read_descriptions_once()
boto3.session.Session(region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b").client("s3")

LEFT_OUT = ("lakemark.sandbox", "lakemark.trainer", "lakemark.data", "lakemark.web", "lakemark.cli.__main__")

for found in pkgutil.walk_packages(lakemark.__path__, "lakemark."):
    if not found.name.startswith(LEFT_OUT):
        importlib.import_module(found.name)
