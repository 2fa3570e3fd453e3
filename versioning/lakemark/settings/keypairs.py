"""Keys to stores, from the environment or from files it names; never from the configuration."""

from __future__ import annotations

import ipaddress
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import urlsplit

from lakemark.errors import Denied, Misconfigured
from lakemark.settings.tiers import S3Tier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakemark.settings.schema import Settings

FILE: Final = "credentials.env"
_PARTS: Final = ("_ACCESS_KEY_ID", "_SECRET_ACCESS_KEY", "_SESSION_TOKEN")
_ADVICE: Final = "Set it, or set the same name with _FILE to the absolute path of a file that holds it."


class Secret:
    """Text that shows only to who calls `reveal`: not in a repr, a log, a pickle."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    # pickle and copy would write the value out: into a task's arguments, for example, which Prefect keeps.
    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not copied or pickled; read it where it is used")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyPair:
    """An access key: its id, which may be shown, and its secrets, which never are."""

    access_key_id: str
    secret_access_key: Secret
    session_token: Secret | None = None


def credentials(name: str, *, environ: Mapping[str, str]) -> KeyPair:
    """What a tier's `credentials: NAME` means: `LAKEMARK_NAME_ACCESS_KEY_ID` and `…_SECRET_ACCESS_KEY`.

    With `…_SESSION_TOKEN`, if set. Each may be `…_FILE` instead. Missing: Misconfigured.
    """
    return _pair(f"LAKEMARK_{name.upper()}", environ)


def lakefs_credentials(environ: Mapping[str, str]) -> KeyPair:
    """`LAKEFS_ACCESS_KEY_ID` and `LAKEFS_SECRET_ACCESS_KEY`, each also as `…_FILE`; missing: Misconfigured."""
    return _pair("LAKEFS", environ)


def with_sandbox(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the keys of what the sandbox started, from `credentials.env` in its folder.

    Only for services that `sandbox:` names, only where their endpoint in the
    configuration is a loopback address, and there they win: no other key can be
    right. Prefect's variables come along where `PREFECT_API_URL` is on loopback;
    `AWS_…` ones only where none is set. Without the file it is a copy of `environ`.
    """
    merged = dict(environ)
    sandbox = settings.sandbox
    if not (sandbox.s3 or sandbox.lakefs or sandbox.prefect):
        return merged
    given = _variables(sandbox.dir / FILE)
    # What the sandbox made wins over what the shell has: a key of some other server can't open this one.
    for prefix in _sandboxed(settings):
        _replace(merged, given, prefix)
    # All or none: half of one pair and half of another would be refused without saying why.
    if sandbox.s3 and not any(name.startswith("AWS_") for name in environ):
        merged |= {name: value for name, value in given.items() if name.startswith("AWS_")}
    if sandbox.prefect and is_loopback(given.get("PREFECT_API_URL")):
        merged |= {name: value for name, value in given.items() if name.startswith("PREFECT_")}
    return merged


def _sandboxed(settings: Settings) -> list[str]:
    """Whose keys are the sandbox's: a name used by a tier elsewhere too is not."""
    prefixes = []
    if settings.sandbox.lakefs and settings.data and is_loopback(settings.data.endpoint):
        prefixes.append("LAKEFS")
    if settings.sandbox.s3:
        tiers = [tier for tier in settings.tiers.values() if isinstance(tier, S3Tier) and tier.credentials]
        local = {str(tier.credentials).upper() for tier in tiers if is_loopback(tier.endpoint)}
        away = {str(tier.credentials).upper() for tier in tiers if not is_loopback(tier.endpoint)}
        # A name that a tier elsewhere uses as well keeps its own key: the sandbox's would be sent to a stranger's server.
        prefixes += [f"LAKEMARK_{name}" for name in sorted(local - away)]
    return prefixes


def _replace(merged: dict[str, str], given: Mapping[str, str], prefix: str) -> None:
    if f"{prefix}{_PARTS[0]}" not in given:
        return
    for name in (prefix + part for part in _PARTS):
        # Also a session token that belongs to another pair.
        merged.pop(name, None)
        merged.pop(f"{name}_FILE", None)
        if name in given:
            merged[name] = given[name]


def is_loopback(url: str | None) -> bool:
    """Whether the URL's server is this machine: `localhost`, 127.0.0.0/8 or ::1; None is not."""
    host = urlsplit(url or "").hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _variables(file: Path) -> dict[str, str]:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except PermissionError:
        _denied(file)
    except (OSError, UnicodeDecodeError):
        raise Misconfigured(
            f"{file} cannot be read as text", advice="Check its disk, or run `lakemark init`."
        ) from None
    # Also where it could be read: whoever else can read it has the keys.
    if mode & 0o077:
        raise Denied(f"{file} has mode {mode:o}; only its owner may read it (600)", advice=f"Run `chmod 600 {file}`.")
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            # As a shell would read it with `. credentials.env`: quotes taken away, no words after the value.
            words = shlex.split(value)
        except ValueError:
            words = ["", ""]
        if not equals or not name.isidentifier() or len(words) > 1:
            raise Misconfigured(f"{file}:{number} is not NAME=value", advice="Mend that line, or run `lakemark init`.")
        variables[name] = "".join(words)
    return variables


def _pair(prefix: str, environ: Mapping[str, str]) -> KeyPair:
    token = _value(f"{prefix}_SESSION_TOKEN", environ)
    return KeyPair(
        access_key_id=_required(f"{prefix}_ACCESS_KEY_ID", environ),
        secret_access_key=Secret(_required(f"{prefix}_SECRET_ACCESS_KEY", environ)),
        session_token=Secret(token) if token else None,
    )


def _required(name: str, environ: Mapping[str, str]) -> str:
    value = _value(name, environ)
    if not value:
        raise Misconfigured(f"{name} is not set", advice=_ADVICE)
    return value


def _value(name: str, environ: Mapping[str, str]) -> str | None:
    value, named = environ.get(name), environ.get(f"{name}_FILE")
    # Which of the two would win, everybody would guess otherwise.
    if value and named:
        raise Misconfigured(f"{name} and {name}_FILE are both set", advice="Unset one of them.")
    if not named:
        return value
    file = Path(named)
    # Services start elsewhere than people try things.
    if not file.is_absolute():
        raise Misconfigured(f"{name}_FILE is not an absolute path", advice=_ADVICE)
    try:
        text = file.read_text(encoding="utf-8").strip()
    except PermissionError:
        _denied(file)
    except (OSError, UnicodeDecodeError):
        raise Misconfigured(f"{name}_FILE names {file}, which cannot be read as text", advice=_ADVICE) from None
    if not text or len(text.splitlines()) > 1:
        raise Misconfigured(f"{name}_FILE names {file}, which does not hold one line", advice=_ADVICE)
    return text


def _denied(file: Path) -> NoReturn:
    raise Denied(f"{file} may not be read by this user", advice="Give this user, and nobody else, the right.")
