import pytest

from tests.services.world import World


@pytest.fixture
def world():
    return World()
