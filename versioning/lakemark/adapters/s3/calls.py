"""Each request to S3 has an end: how slowly its body may be taken, and how long its answer may take, whatever the store does.

The SDK's timeouts are for one operation of a socket: a store that takes or gives a byte now and then meets none of them. So
each call is looked at from beside it, and one that is too slow loses its connection. Names are looked up, connections made
and the SDK's own pauses waited for outside of this: they have bounds of their own, and a resolver's are the system's.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from lakemark.adapters.disk.objects import TooSlow

SPARE_SECONDS: Final = 5.0
"""A socket's own timeouts come so much later than ours, which say what was waited for."""
_LONGER: Final = {"CompleteMultipartUpload": 5}
"""What a store may take several times as long for: it puts the parts together, and sends blanks meanwhile."""
_UNDER_WAY_BYTES: Final = 2**23
"""So much of what was taken may still be in the buffers of systems on the way: it goes on while the answer is waited for."""
_MOST_STEP_BYTES: Final = 2**18
_LEAST_STEP_BYTES: Final = 2**12
_STEPS: Final = 8
_ADVICE: Final = (
    "It is given up and tried later; look at the store and the way to it, or lower `limits.minimum_rate` or raise "
    "`limits.stall`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A body goes at `minimum_rate` bytes a second or more over each `stall_seconds`; the answer comes within such a time.

    In all no call takes longer than its bytes at that rate and `stall_seconds`, but for the SDK's pauses between two tries.
    """

    minimum_rate: int
    stall_seconds: float

    @property
    def least_bytes(self) -> float:
        return self.minimum_rate * self.stall_seconds

    @property
    def step_bytes(self) -> int:
        """How much of a body is handed on at a time: little enough that a rate which is allowed can be told from a lower one."""
        return max(_LEAST_STEP_BYTES, min(_MOST_STEP_BYTES, int(self.least_bytes) // _STEPS))


class Silence:
    """That a store gave no answer just now: for a while nobody else waits for one as long, and every call fails at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = 0.0
        self._why = ""

    def begin(self, why: str) -> None:
        self._why, self._until = why, time.monotonic() + self._seconds

    def require_over(self) -> None:
        """Raises TooSlow while it lasts."""
        if time.monotonic() < self._until:
            raise TooSlow(f"{self._why}, just before", advice=_ADVICE)


class Call:
    """One call with all of its tries. Its methods are called by its own thread, `_look` by a timer's."""

    def __init__(self, where: str, operation: str, body_bytes: int, allowed: Allowed, *, outer: Call | None) -> None:
        self.outer = outer
        self.given_up: str | None = None
        self.silent = False
        self._what = f"{where} ({operation})"
        self._allowed = allowed
        seconds = allowed.stall_seconds * _LONGER.get(operation, 1)
        self._answer_seconds = seconds + min(body_bytes, _UNDER_WAY_BYTES) / allowed.minimum_rate
        self._all_seconds = seconds + body_bytes / allowed.minimum_rate
        self._began: float | None = None
        self._timer: threading.Timer | None = None
        self._socket: socket.socket | None = None
        self._guard = threading.Lock()
        self._ended = False
        self._sent = 0
        self._window: tuple[float, int] = (0.0, 0)
        self._waits_since: float | None = None

    def begin_try(self) -> None:
        """Right before a request is sent. Raises TooSlow where this call had its time."""
        now = time.monotonic()
        # At the first try: the time for all of them together is one.
        self._began = self._began or now
        if self.given_up is None and now - self._began >= self._all_seconds:
            self.given_up = f"{self._what} gave no answer that counts in {now - self._began:.0f} s of trying"
        self.require_going_on()
        with self._guard:
            self._socket, self._waits_since, self._sent, self._window = None, None, 0, (now, 0)
        self._look_in(self._allowed.stall_seconds)

    def sending(self, connection: socket.socket | None) -> None:
        """Something is about to be handed to this connection; None: to one that is yet to be made."""
        if connection is not None:
            # The SDK's own is for connecting: a body may be taken slowly, and how slowly is judged here.
            connection.settimeout(self._allowed.stall_seconds + SPARE_SECONDS)
        with self._guard:
            self._socket = connection
        self.require_going_on()

    def sent(self, size_bytes: int) -> None:
        """So much of the request was taken."""
        with self._guard:
            self._sent += size_bytes

    def waiting(self, connection: socket.socket | None) -> None:
        """All of the request was taken."""
        with self._guard:
            self._socket, self._waits_since = connection, time.monotonic()

    def end(self) -> None:
        """The answer is here, or will not come; a body that is streamed is its reader's."""
        with self._guard:
            self._ended = True
            if self._timer is not None:
                self._timer.cancel()

    def require_going_on(self) -> None:
        """Raises TooSlow where it was given up."""
        if self.given_up is not None:
            raise TooSlow(self.given_up, advice=_ADVICE)

    def _look_in(self, seconds: float) -> None:
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
            if not self._ended:
                self._timer = threading.Timer(max(0.0, seconds), self._look)
                # A process that ends does not wait for a look at a call.
                self._timer.daemon = True
                self._timer.start()

    def _look(self) -> None:
        with self._guard:
            if self._ended:
                return
            why = self._too_slow(time.monotonic())
            connection = self._socket
            if why is not None:
                self.given_up = why
                self.silent = self._waits_since is not None
        if why is None:
            self._look_in(self._next_look())
        elif connection is not None:
            # Whoever waits for it is woken. Of TLS, too, only the connection beneath: its state is the other thread's.
            with suppress(OSError, TypeError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _too_slow(self, now: float) -> str | None:
        if self._waits_since is not None:
            waited = now - self._waits_since
            return f"{self._what} gave no answer in {waited:.0f} s" if waited >= self._answer_seconds else None
        began, before = self._window
        if now - began < self._allowed.stall_seconds:
            return None
        if self._sent - before < self._allowed.least_bytes:
            least = self._allowed.minimum_rate
            return f"{self._what} took {self._sent - before} bytes in {now - began:.0f} s, fewer than {least} a second"
        self._window = (now, self._sent)
        return None

    def _next_look(self) -> float:
        since, seconds = self._waits_since, self._answer_seconds
        if since is None:
            since, seconds = self._window[0], self._allowed.stall_seconds
        return since + seconds - time.monotonic()


class Calls(threading.local):
    """The call that each thread has under way."""

    now: Call | None = None


UNDER_WAY: Final = Calls()


class Watched:
    """Mixed into the SDK's connections: tells the call under way how far it is."""

    sock: Any

    def send(self, data: Any) -> None:  # noqa: ANN401 - bytes of any kind
        call = UNDER_WAY.now
        if call is not None:
            call.sending(self.sock)
        super().send(data)  # type: ignore[misc]
        if call is not None:
            call.sent(len(data))

    def getresponse(self) -> Any:  # noqa: ANN401 - the SDK's
        call = UNDER_WAY.now
        if call is not None:
            # From here on silence counts, not the rate.
            call.waiting(self.sock)
        return super().getresponse()  # type: ignore[misc]


def watch(events: Any, where: str, allowed: Allowed, silence: Silence) -> None:  # noqa: ANN401 - the SDK's hooks have no types
    """Gives each call of the client with these hooks what is allowed. Raises TooSlow out of one that has more."""

    def begin(*, model: Any, params: dict[str, Any], **_: object) -> None:  # noqa: ANN401
        silence.require_over()
        body = params.get("body") or b""
        size_bytes = len(body) if hasattr(body, "__len__") else 0
        # A call may hold another one: the SDK asks where a bucket is before it follows a redirection.
        UNDER_WAY.now = Call(where, str(model.name), size_bytes, allowed, outer=UNDER_WAY.now)

    def try_it(**_: object) -> None:
        if UNDER_WAY.now is not None:
            UNDER_WAY.now.begin_try()

    def end_in_time(**_: object) -> None:
        """An answer whose head broke off when its connection was taken looks like a whole one without more headers."""
        call = UNDER_WAY.now
        if call is not None:
            UNDER_WAY.now = call.outer
            call.end()
            # The store took all of it and said nothing: others must not wait as long for the same.
            if call.silent:
                silence.begin(str(call.given_up))
            call.require_going_on()

    hooks: tuple[tuple[str, Callable[..., None]], ...] = (
        ("before-call.s3", begin),
        ("before-send.s3", try_it),
        ("after-call.s3", end_in_time),
        ("after-call-error.s3", end_in_time),
    )
    for name, hook in hooks:
        # First: no hook of the SDK's may spend time before the call is watched.
        events.register_first(name, hook)
