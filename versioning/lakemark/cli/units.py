"""systemd's units for the node's service: one for a user, written for this configuration, and one for a machine, to be edited."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

NAME: Final = "lakemark-watch.service"
MARK: Final = "# Written by `lakemark watch --install`; written anew by the next one."

_USER: Final = Template("""\
$mark
[Unit]
Description=lakemark watch of $node: commits checkpoints and moves their replicas
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart=$python -P -m lakemark.cli watch --config $config
Environment=$home
Environment=$named
# Keys of stores and of lakeFS, NAME=value lines, mode 600; `-`: it may be absent.
EnvironmentFile=-%h/.config/lakemark/environment
Restart=always
RestartSec=5
WatchdogSec=120
TimeoutStopSec=45
# systemd's own hold, beside what `limits:` of lakemark.yaml says.
Nice=$nice
IOSchedulingClass=$io_class
CPUQuota=$quota%
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a unit is for. All paths are absolute."""

    python: Path
    config: Path
    home: Path
    node: str
    cpus: int
    nice: int
    io_class: str


def user_unit(what: Service) -> str:
    """The unit that `systemctl --user` starts."""
    return _USER.substitute(
        mark=MARK,
        node=_specifiers(what.node),
        python=_program(str(what.python)),
        config=word(str(what.config)),
        # The same places for the service as for a shell: it starts with none of that shell's variables.
        home=word(f"LAKEMARK_HOME={what.home}", command=False),
        named=word(f"LAKEMARK_NODE={what.node}", command=False),
        nice=what.nice,
        io_class=what.io_class,
        # CPUQuota counts in per cent of one processor.
        quota=what.cpus * 100,
    )


def _program(path: str) -> str:
    """Systemd takes no program whose own path has quotes, backslashes or dollars in it; `env` does."""
    return f"/usr/bin/env {word(path)}" if set(path) & set("\"'\\$") else word(path)


def word(text: str, *, command: bool = True) -> str:
    """One word as systemd reads it: quoted, and neither a specifier nor, in a command, a variable is seen in it."""
    # systemd.syntax(7): C-style escapes within double quotes. Backslashes first, or those of the others would be doubled.
    written = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    # `$$` only on a command line: elsewhere systemd replaces no variables, and would keep both dollars.
    return f'"{_specifiers(written.replace("$", "$$") if command else written)}"'


def _specifiers(text: str) -> str:
    # `%h`, `%n` and the like are replaced in nearly every setting; a path may have a percent sign.
    return text.replace("%", "%%")
