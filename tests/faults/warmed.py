"""Loads what a command line needs, once, in the process that the campaign's commands are forked from."""

import importlib
import pkgutil
from functools import cache

import boto3
import botocore.session

import lakemark

# Else each client reads the vendor's descriptions of its services anew, which is most of what a short command costs.
botocore.session.create_loader = cache(botocore.session.create_loader)
boto3.session.Session(region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b").client("s3")

LEFT_OUT = ("lakemark.sandbox", "lakemark.trainer", "lakemark.data", "lakemark.web", "lakemark.cli.__main__")

for found in pkgutil.walk_packages(lakemark.__path__, "lakemark."):
    if not found.name.startswith(LEFT_OUT):
        importlib.import_module(found.name)
