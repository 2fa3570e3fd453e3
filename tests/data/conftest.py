"""Keys in the environment, as training code finds them, and a cache of the test's own."""

import pytest

from tests.data.faulty import serving
from tests.services_fixtures import LAKEFS_SERVERS


@pytest.fixture
def cache(tmp_path):
    return str(tmp_path / "cache")


@pytest.fixture(scope="module", params=LAKEFS_SERVERS)
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def keys(server, monkeypatch):
    """The server's, and nothing else that would say where to read."""
    for name in ("LAKEMARK_RUN_FILE", "LAKEMARK_DATA_CACHE", "LAKEMARK_DATA_CACHE_BYTES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAKEFS_ENDPOINT", server.endpoint)
    monkeypatch.setenv("LAKEFS_ACCESS_KEY_ID", server.access_key_id)
    monkeypatch.setenv("LAKEFS_SECRET_ACCESS_KEY", server.secret_access_key)


BIG = bytes(range(256)) * (20 * 2**20 // 256)
"""Of three blocks."""
OBJECTS = {
    "train/0.parquet": b"zero",
    "train/1.parquet": b"one",
    "train/deep/2.txt": b"two",
    "train/empty": b"",
    "a b=c,d:é?#%/x+y&z.bin": b"odd",
    "both": b"an object",
    "both/as well": b"and a folder",
    "big.bin": BIG,
}


@pytest.fixture(scope="module")
def scratch(server):
    return server.scratch()


@pytest.fixture(scope="module")
def commit(scratch):
    """The commit that holds OBJECTS; `main` went on since."""
    found = scratch.put("main", {f"train/{n}": None for n in range(3)} | OBJECTS)
    scratch.put("main", {"train/0.parquet": b"changed", "later": b"later"})
    return found


@pytest.fixture
def uri(scratch, commit):
    return f"lakefs://{scratch.repository}/{commit}/"


@pytest.fixture
def faulty(monkeypatch):
    monkeypatch.delenv("LAKEMARK_RUN_FILE", raising=False)
    monkeypatch.setenv("LAKEFS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("LAKEFS_SECRET_ACCESS_KEY", "secret")
    with serving({"a": b"0123456789" * 1000, "b": b"b"}) as served:
        monkeypatch.setenv("LAKEFS_ENDPOINT", served.endpoint)
        yield served
