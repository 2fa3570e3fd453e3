"""Fetching another node's ledger from a server that does not do what servers do."""

import socket
import threading
import time

import pytest

from lakemark.adapters.git.mirror import refresh
from lakemark.errors import StoreUnavailable


@pytest.fixture
def silent():
    """The port of a server that takes every connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def take():
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in taken:
            connection.close()


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(tmp_path, silent):
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="said nothing for 1 seconds"):
        refresh(tmp_path / "mirror.git", f"git://127.0.0.1:{silent}/ledger.git", patience_seconds=1.0)
    assert time.monotonic() - began < 60
    assert list(tmp_path.iterdir()) == []
