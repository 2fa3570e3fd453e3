"""The guarantees of data versions, on the stand-in always, and on the server that LAKEFS_ENDPOINT names."""

import pytest

from lakemark.contract.data import CHECKS, PROBES
from tests.services_fixtures import LAKEFS_SERVERS

pytestmark = pytest.mark.xdist_group("lakefs")


@pytest.fixture(scope="module", params=LAKEFS_SERVERS)
def scratch(request):
    return request.getfixturevalue(request.param).scratch()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_guarantee(scratch, check):
    check.run(scratch)


def test_probes_write_nothing(scratch):
    before = scratch.branches()
    for probe in PROBES:
        assert probe.probe
        probe.run(scratch)
    assert scratch.branches() == before


def test_check_names_are_distinct():
    assert len({check.name for check in CHECKS}) == len(CHECKS)
