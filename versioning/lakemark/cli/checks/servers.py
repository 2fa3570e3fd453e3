"""What `doctor` asks of servers: lakeFS and its pins, Prefect's password, CSRF and CORS, and everybody's clock."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import create_connection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from lakemark.cli.output import short
from lakemark.cli.prefect_api import PrefectApi
from lakemark.errors import Denied, Incomplete, Refused, StoreUnavailable
from lakemark.ports import Strength
from lakemark.services.health.doctor import Examination

if TYPE_CHECKING:
    from lakemark.cli.session import Session
    from lakemark.contract import Check

_REFUSED: Final = (401, 403)
# S3 refuses requests whose time is 15 minutes off (RequestTimeTooSkewed): said well before that.
_SKEW: Final = timedelta(minutes=5)
_STRANGER: Final = "http://stranger.invalid"
_WITHIN_SECONDS: Final = 5.0


class DataPlace:
    """The site's data branch, as `contract.data` looks at it."""

    def __init__(self, data: Any, repository: str, branch: str) -> None:  # noqa: ANN401 - ports.DataVersions
        self.data = data
        self.repository = repository
        self.branch = branch


def examinations(here: Session) -> Iterator[Examination]:
    """Those of servers that the configuration names."""
    wanted = here.settings.data
    if wanted is not None:
        from lakemark.contract.data import PROBES

        yield Examination(name="lakefs", run=partial(_lakefs, here))
        for probe in PROBES:
            yield Examination(
                name=f"lakefs, {probe.name}",
                run=partial(_probe, here, probe),
                advice=f"Look at {wanted.endpoint}, repository {wanted.repository}, branch {wanted.branch}.",
                part_of="lakefs",
            )
        yield Examination(name="pin, made and removed", run=partial(_pin_made, here), part_of="lakefs")
        yield Examination(
            name="pins",
            run=partial(_pins, here),
            advice="`lakemark sweep` makes missing pins again.",
            part_of="lakefs",
        )
    api = PrefectApi.of(here.parts.keys)
    if api is not None:
        yield Examination(name="prefect", run=partial(_prefect, api), advice="Start it, or unset PREFECT_API_URL.")
        yield Examination(name="prefect password", run=partial(_password, api), part_of="prefect")
        yield Examination(name="prefect csrf", run=partial(_csrf, api), part_of="prefect")
        yield Examination(name="prefect cors", run=partial(_cors, api), part_of="prefect")
    yield Examination(name="clock", run=partial(_clock, here), advice="Set this machine's clock, with NTP.")


def _lakefs(here: Session) -> str:
    wanted, data = here.settings.data, here.site.data
    if wanted is None or data is None:
        return "no data versioning"
    head = data.head(wanted.repository, wanted.branch)
    if head is None:
        raise Incomplete(
            f"{wanted.repository} has no branch {wanted.branch}", advice="Make it, or name another under `data:`."
        )
    return f"{wanted.endpoint}, {wanted.repository}/{wanted.branch} is at {short(head)}"


def _probe(here: Session, probe: Check[Any]) -> str:
    wanted = here.settings.data
    if wanted is not None:
        probe.run(DataPlace(here.site.data, wanted.repository, wanted.branch))
    return probe.guarantee


def _pins(here: Session) -> str:
    """What the pins in use are worth; of each repository one guard is tried."""
    from lakemark.services.data.pins import looked_at, weaker

    data, least = here.site.data, here.site.policies.require_pin
    pins = [pin for pin in here.site.ledger.site().pins.values() if pin.state == "pinned"]
    if data is None or not pins:
        return "none yet"
    looked = looked_at(data, pins, proven={})
    # One is enough: what can't be looked at is no pin that holds.
    for _, error in looked.failed:
        raise error
    counts: dict[str, int] = {}
    for pin in pins:
        seen = looked.seen[pin.branch]
        if weaker(seen.strength, least):
            raise Incomplete(
                f"the pin of {pin.repository}@{short(pin.commit)} is {seen.strength}, and `require_pin` says {least}:"
                f" {seen.why}",
                advice="`lakemark sweep` makes pins again; allow the guard in that repository, and its actions.",
            )
        counts[str(seen.strength)] = counts.get(str(seen.strength), 0) + 1
    return ", ".join(f"{count} {strength}" for strength, count in sorted(counts.items()))


def _pin_made(here: Session) -> str:
    """Makes a pin of the data branch's head and removes it: rights, hooks and actions as `run open` meets them."""
    from lakemark.services.data.pins import weaker

    wanted, data, least = here.settings.data, here.site.data, here.site.policies.require_pin
    if wanted is None or data is None:
        return "no data versioning"
    # A name of its own: a pin in use of the same commit is neither met nor removed.
    commit, nonce = data.resolve(wanted.repository, wanted.branch).id, secrets.token_hex(8)
    branch = f"pin-{commit[:12]}-{nonce}"
    try:
        made = data.pin(wanted.repository, commit, branch=branch, nonce=nonce)
    except (Denied, Refused) as error:
        # A server that allows no pins is right for a site that asks for none.
        if least is Strength.NONE:
            return f"none can be made, and none is required: {error}"
        raise
    try:
        if weaker(made.strength, least):
            raise Incomplete(
                f"a pin made just now is only {made.strength}, and `require_pin` says {least}: {made.why_plain}",
                advice=f"Allow the guard in that repository, or set data.require_pin: {made.strength}",
            )
    finally:
        # Also where it was too weak, or the next doctor would find branches that no ledger knows.
        data.unpin(wanted.repository, commit, branch=branch, nonce=nonce, reason="made by lakemark doctor")
    return f"made {made.strength}, and removed"


def _prefect(api: PrefectApi) -> str:
    reply = api.ask("GET", "/admin/version")
    if not reply.ok:
        raise StoreUnavailable(f"{api.url} answered {reply.status}", advice="Is PREFECT_API_URL its API?")
    return f"{api.url}, version {reply.body.decode(errors='replace').strip()[:40]}"


def _password(api: PrefectApi) -> str:
    # Without the headers that `ask` would add.
    status = api.send("GET", "/admin/version").status
    if status not in _REFUSED:
        raise Denied(
            f"without a password it answers {status}: whoever reaches {api.url} may approve rollbacks",
            advice="Set PREFECT_SERVER_API_AUTH_STRING on the server, PREFECT_API_AUTH_STRING here.",
        )
    return f"asked without it, the server answers {status}"


def _csrf(api: PrefectApi) -> str:
    """Password but no token: a page of somebody else, in a browser that knows the password, would send just that."""
    headers = api.headers("GET")
    status = api.send("POST", "/flow_runs/filter", {"limit": 1}, headers=headers).status
    if status not in _REFUSED:
        raise Refused(
            f"a request with the password and no CSRF token is answered ({status})",
            advice="Set PREFECT_SERVER_CSRF_PROTECTION_ENABLED=true on the server.",
        )
    return f"a request without a token is refused ({status})"


def _cors(api: PrefectApi) -> str:
    reply = api.send("POST", "/flow_runs/filter", {"limit": 1}, headers={"Origin": _STRANGER})
    if reply.status not in _REFUSED:
        raise Refused(
            f"a POST from {_STRANGER} without a password is answered ({reply.status})",
            advice="Set PREFECT_SERVER_API_AUTH_STRING on the server.",
        )
    # A browser's question before it sends: by the answer it decides whether the page may read anything.
    asked = {"Origin": _STRANGER, "Access-Control-Request-Method": "POST"}
    allowed = api.send("OPTIONS", "/flow_runs/filter", headers=asked).headers.get("access-control-allow-origin")
    if allowed in ("*", _STRANGER):
        raise Refused(
            f"pages of any origin may use the API (it allows {allowed})",
            advice="Set PREFECT_SERVER_CORS_ALLOWED_ORIGINS to the server's own address.",
        )
    return f"a POST from another origin is refused ({reply.status}), and that origin is not allowed"


def _clock(here: Session) -> str:
    if here.site.simulated_clock:
        return "simulated: stores' clocks are not looked at"
    told: list[str] = []
    for name, url in _addresses(here).items():
        date = _date(url)
        if date is None:
            continue
        # To the second only, as the Date header has no parts of it.
        away = datetime.now(UTC) - date
        if abs(away) > _SKEW:
            raise Incomplete(
                f"this clock is {away.total_seconds():+.0f} s from that of {name} ({url})",
                advice="Set this machine's clock, with NTP; meanwhile nothing is deleted.",
            )
        told.append(f"{name} {away.total_seconds():+.0f} s")
    return ", ".join(told) or "no server told its time"


def _addresses(here: Session) -> dict[str, str]:
    from lakemark.settings import S3Tier

    found = {
        name: tier.endpoint
        for name, tier in here.settings.tiers.items()
        if isinstance(tier, S3Tier) and tier.endpoint is not None
    }
    if here.settings.data is not None:
        found["lakefs"] = here.settings.data.endpoint
    api = PrefectApi.of(here.parts.keys)
    return found | ({"prefect": api.url} if api else {})


def require_listening(url: str) -> None:
    """Raises StoreUnavailable where nobody takes a connection there within 5 s. Behind a proxy nothing is tried."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return
    try:
        create_connection((host, parts.port or (443 if parts.scheme == "https" else 80)), _WITHIN_SECONDS).close()
    except OSError as error:
        raise StoreUnavailable(
            f"{url} does not answer: {error.strerror or error}", advice="Start it, or check the endpoint and network."
        ) from error


def _date(url: str) -> datetime | None:
    """The server's own time, from any answer of it."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_WITHIN_SECONDS)
    try:
        connection.request("GET", parts.path or "/")
        text = connection.getresponse().getheader("Date")
        return parsedate_to_datetime(text).astimezone(UTC) if text else None
    except (OSError, HTTPException, ValueError, TypeError):
        return None
    finally:
        connection.close()
