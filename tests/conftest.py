"""What every test may use. A test that needs more than the machine has fails in CI and skips elsewhere."""

import os
import random
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.services_fixtures"]

IN_CI = os.environ.get("CI", "").lower() == "true"

settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile(
    "ci", deadline=None, max_examples=200, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "default"))


def missing(what: str) -> None:
    """Skip where a person runs the tests, fail where CI does: nothing goes untested in silence."""
    if IN_CI:
        pytest.fail(f"CI must have {what}")
    pytest.skip(f"needs {what}")


@pytest.fixture(scope="session")
def require_root() -> None:
    if os.geteuid() != 0:
        missing("root")


@pytest.fixture(scope="session")
def require_command() -> Callable[[str], str]:
    """A function from a program's name to its path, the environment's own programs first."""

    def find(name: str) -> str:
        places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]
        found = shutil.which(name, path=os.pathsep.join(places))
        if found is None:
            missing(f"the program {name}")
        assert found is not None
        return found

    return find


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """A function that gives another free loopback port at each call.

    From 20000 to 29999: below the ports that the kernel gives to outgoing connections, and
    SeaweedFS can add its 10000.
    """
    given: set[int] = set()
    choose = random.Random(os.getpid())

    def find() -> int:
        while True:
            port = choose.randrange(20000, 30000)
            if port in given:
                continue
            given.add(port)
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            return port

    return find
