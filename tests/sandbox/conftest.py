"""A lakeFS stand-in for all tests of a module, and a repository of its own for each test."""

import itertools
from collections.abc import Iterator

import pytest

from tests.sandbox.serving import Repository, Server

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("lakefs")) as running:
        yield running


@pytest.fixture
def repository(server: Server) -> Repository:
    return server.repository(f"data-{next(_numbers)}")
