"""Ports and plain HTTP on 127.0.0.1, the only address the sandbox ever uses."""

from __future__ import annotations

import base64
import http.client
import json
import secrets
import socket
from collections.abc import Collection
from dataclasses import dataclass, field

__all__ = ["GRPC_OFFSET", "HOST", "HttpAnswer", "Origin", "free_ports", "is_free", "url"]

HOST = "127.0.0.1"
GRPC_OFFSET = 10_000
"""SeaweedFS listens for gRPC on each of its ports plus this."""

# With the offset still below 32768, where the kernel starts to give ports to outgoing connections:
# a port chosen today is then free tomorrow.
_LOWEST, _HIGHEST = 10_240, 22_700


def url(port: int) -> str:
    """Plain HTTP, without a slash at the end."""
    return f"http://{HOST}:{port}"


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now; connections that linger after their end do not count."""
    with socket.socket() as probe:
        # As servers do when they bind: without it a port looks taken for a minute after its server's end.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_ports(count: int, *, avoid: Collection[int] = ()) -> list[int]:
    """`count` different ports outside `avoid`, each free and with its gRPC port (`GRPC_OFFSET` above) free.

    Nothing holds them: another program may take one before a server does.
    """
    taken = {port + offset for port in avoid for offset in (-GRPC_OFFSET, 0, GRPC_OFFSET)}
    left = [port for port in range(_LOWEST, _HIGHEST) if port not in taken]
    # At random: two sandboxes that are made at once seldom choose the same.
    secrets.SystemRandom().shuffle(left)
    free = (port for port in left if is_free(port) and is_free(port + GRPC_OFFSET))
    chosen: list[int] = []
    for port in free:
        # One service's port must not be another's gRPC port.
        if port - GRPC_OFFSET not in chosen and port + GRPC_OFFSET not in chosen:
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise OSError(f"no {count} free ports between {_LOWEST} and {_HIGHEST} on {HOST}")


@dataclass(frozen=True)
class HttpAnswer:
    """What a server said; `status` 0 when it could not be reached or broke off."""

    status: int
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 (HTTP's own range)

    def json(self) -> object:
        """Raises ValueError where the body is not JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Origin:
    """One server on loopback, asked directly: the environment's proxies are for other hosts."""

    port: int
    user: str | None = None
    password: str = field(default="", repr=False)
    timeout_seconds: float = 5.0

    def ask(self, method: str, path: str, *, body: object = None, headers: dict[str, str] | None = None) -> HttpAnswer:
        """One request; `bytes` go as they are, any other body but None as JSON. Raises nothing for a silent server."""
        sent = dict(headers or {})
        if self.user is not None:
            token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            sent["Authorization"] = f"Basic {token}"
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if raw is not None and raw is not body:
            sent["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(HOST, self.port, timeout=self.timeout_seconds)
        try:
            connection.request(method, path, body=raw, headers=sent)
            response = connection.getresponse()
            return HttpAnswer(response.status, response.read())
        except (OSError, http.client.HTTPException):
            return HttpAnswer(0)
        finally:
            connection.close()
