import pytest

from tests.services.on_disk import Yard
from tests.services.world import World


@pytest.fixture
def world():
    return World()


@pytest.fixture
def yard(memory_path):
    """Its fsyncs are most of its time on a disk; what a disk does to files is adapters' and faults' business."""
    return Yard(memory_path)
