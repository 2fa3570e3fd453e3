"""What every test may use. A test that needs more than the machine has fails in CI and skips elsewhere."""

import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["tests.services_fixtures"]

IN_CI = os.environ.get("CI", "").lower() == "true"

MEMORY = Path("/dev/shm")
MEMORY_LEAST_BYTES = 6 * 2**30
DEAREST = (
    "tests/interop/test_demo.py",
    "tests/people/test_newcomer.py",
    "tests/flows/",
    "tests/faults/test_kill.py",
    "tests/faults/test_campaign.py",
    "tests/services/test_watch.py",
    "tests/faults/test_bad_disk.py",
    "tests/formats/test_hostile.py",
    "tests/faults/test_ledger_faults.py",
    "tests/faults/",
    "tests/sandbox_services/",
    "tests/interop/",
    "tests/cli/test_ledger_recover.py",
    "tests/adapters/test_git_mend.py",
    "tests/services/test_resume_frameworks.py",
    "tests/services/test_machine.py",
    "tests/model/test_fold.py",
    "tests/formats/test_pickle_stream.py",
    "tests/cli/",
    "tests/trainer/",
)
"""What takes longest, the longest first: a file that is begun last leaves all workers but its own idle."""
TOGETHER = ("tests/flows/",)
"""Whose files go to one worker, because a fixture of theirs takes many seconds to start."""

# Hundreds of processes import what is tested: it is compiled once, whatever the machine says.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile(
    "ci", deadline=None, max_examples=200, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "default"))


def in_memory() -> bool:
    """Whether temporary files may lie in memory, where an fsync costs nothing: there is room, and programs may run there."""
    try:
        room = os.statvfs(MEMORY)
    except OSError:
        return False
    return (
        os.access(MEMORY, os.W_OK)
        and room.f_bavail * room.f_frsize >= MEMORY_LEAST_BYTES
        and not room.f_flag & os.ST_NOEXEC
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        return next((at for at, name in enumerate(DEAREST) if item.nodeid.startswith(name)), len(DEAREST))

    items.sort(key=rank)


class _Files(LoadFileScheduling):
    """A file stays on one worker, with those that share what is dear to start."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    return _Files(config, log) if config.option.dist == "loadfile" else None


@contextmanager
def new_in_memory(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new folder in memory where there is room, else a temporary one: for what is not about a disk, as most of its time is."""
    if not in_memory():
        yield factory.mktemp("memory")
        return
    with tempfile.TemporaryDirectory(prefix="lakemark-tests-", dir=MEMORY, ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture
def memory_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with new_in_memory(tmp_path_factory) as made:
        yield made


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A new folder on a disk, which gives the number of a removed file to the next; `tmp_path` may lie in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as made:
        yield Path(made)


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
