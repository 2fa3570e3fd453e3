"""Run the stand-in in the foreground: `python -m lakemark.sandbox.lakefs --dir DIR --port PORT`."""

from __future__ import annotations

import argparse
import fcntl
import os
import socket
import sys
from pathlib import Path

_HOST = "127.0.0.1"
_GRACE_SECONDS = 5
_KEYS = ("LAKEFS_ACCESS_KEY_ID", "LAKEFS_SECRET_ACCESS_KEY")


def main() -> int:
    """Serve until SIGTERM or SIGINT. Prints one line with the address once it listens."""
    parser = argparse.ArgumentParser(prog="python -m lakemark.sandbox.lakefs", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="where everything is kept; made if missing")
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1; 0 takes a free one")
    asked = parser.parse_args()
    # In the environment and not on the command line, which every account of the machine can read.
    missing = [name for name in _KEYS if not os.environ.get(name)]
    if missing:
        parser.error(f"set {' and '.join(missing)}: the keys that clients must give")
    asked.dir.mkdir(parents=True, exist_ok=True)
    # asyncio sets TCP_NODELAY only where the protocol is named: without it each answer waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with (asked.dir / "lock").open("w") as lock, listener:
        try:
            # Two servers on one folder would each believe to be the only writer.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            parser.error(f"another server runs on {asked.dir}")
        # A restart must not wait for connections of the one before to linger out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, asked.port))
        except OSError as error:
            parser.error(f"port {asked.port} on {_HOST}: {error.strerror}")
        _serve(asked.dir, listener)
    return 0


def _serve(directory: Path, listener: socket.socket) -> None:
    import uvicorn

    # Only now: the program that asks for help, or for a port that is taken, need not load a web server.
    from lakemark.sandbox.lakefs.api.app import create_app

    app = create_app(directory, access_key=os.environ[_KEYS[0]], secret_key=os.environ[_KEYS[1]])
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    listener.listen()
    sys.stdout.write(f"http://{_HOST}:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main())
