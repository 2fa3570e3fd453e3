"""Faults drawn at random over a whole site; each seed is a story, and those that once lost something are told again."""

import sys

import pytest

from tests.faults.campaign import Campaign

pytestmark = [pytest.mark.xdist_group("seaweedfs"), pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def compiler(require_command):
    """For the library that makes disks fail."""
    require_command("gcc")


def told(tmp_path, seaweedfs, s3_faults, seed, faults):
    campaign = Campaign(tmp_path, seaweedfs, s3_faults, seed)
    campaign.go(faults)
    sys.stdout.write(f"seed {seed}: {campaign.faults} faults: {dict(sorted(campaign.kinds.items()))}\n")
    assert len([one for one in campaign.saves if one.acknowledged]) > faults // 10, campaign.story()


@pytest.mark.parametrize("seed", [2])
def test_what_was_acknowledged_survives_ten_faults(tmp_path, seaweedfs, s3_faults, seed):
    told(tmp_path, seaweedfs, s3_faults, seed, faults=10)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 125))
def test_what_was_acknowledged_survives_a_thousand_faults(tmp_path, seaweedfs, s3_faults, seed):
    told(tmp_path, seaweedfs, s3_faults, seed, faults=40)
