import pytest

from tests.services.on_disk import Yard
from tests.services.world import World


@pytest.fixture
def world():
    return World()


@pytest.fixture
def yard(tmp_path):
    return Yard(tmp_path)
