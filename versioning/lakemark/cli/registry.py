"""Every command: its name, where its code is, one line of help, and the exit codes it can give.

Nothing of a command is imported before it is called.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cyclopts import App, Parameter

from lakemark.cli.options import HELP, as_text

MEANINGS: Final[Mapping[int, str]] = {
    0: "ok",
    1: "unexpected",
    2: "an argument, a variable or the configuration is wrong",
    3: "not found",
    4: "incomplete, corrupt or red",
    5: "conflict: other bytes, or the ledger moved",
    6: "a store or server is out of reach: try again",
    7: "refused by a rule",
    8: "denied: rights, or another owner",
    130: "interrupted",
}
_ALWAYS: Final = (0, 1, 2, 8, 130)


@dataclass(frozen=True, slots=True)
class Command:
    """`name`: as typed, groups first. `code`: `module:function` of `cli.commands`. exits: beyond 0, 1, 2, 8 and 130."""

    name: str
    code: str
    help: str
    exits: tuple[int, ...] = ()

    @property
    def codes(self) -> tuple[int, ...]:
        return tuple(sorted({*_ALWAYS, *self.exits}))

    @property
    def epilogue(self) -> str:
        told = " · ".join(f"{code} {MEANINGS[code]}" for code in self.codes)
        return f"{HELP}\n\nExit codes: {told}"


GROUPS: Final[Mapping[str, str]] = {
    "run": "Open, list, show, close and reopen runs.",
    "rollback": "Go back in time, with the data of that day: plan, request, approve, apply.",
    "ledger": "Bring the ledger back.",
    "tier": "Make places tiers of this ledger, and rename them.",
    "node": "Rename nodes.",
    "config": "Show the configuration and what may stand in it.",
    "flows": "Prefect deployments.",
}

COMMANDS: Final = (
    Command("init", "init:init", "Write lakemark.yaml, make the ledger, claim the tiers in reach.", (5, 6, 7)),
    Command("doctor", "doctor:doctor", "Check tiers, stores, lakeFS, Prefect, clock, disk and rights.", (3, 4)),
    Command(
        "status", "status:status", "What is wrong, what waits, and what runs; works with every server down.", (3, 4)
    ),
    Command("up", "sandbox:up", "Start the servers that `sandbox:` names, on loopback.", (3, 6, 7)),
    Command("down", "sandbox:down", "End exactly what `up` started."),
    Command("demo", "sandbox:demo", "Run the whole story on real services and write report.json.", (3, 4, 5, 6, 7)),
    Command("run open", "run:open_run", "Open a run: resolve and pin its data, write its run file.", (3, 5, 6, 7)),
    Command("run ls", "run:list_runs", "List runs.", (3,)),
    Command("run show", "run:show_run", "Show a run: timelines, pins, last record, recovery point.", (3,)),
    Command("run close", "run:close_run", "Close a run: nothing more is committed to it.", (3, 5, 6, 7)),
    Command("run reopen", "run:reopen_run", "Reopen a closed run.", (3, 5, 6, 7)),
    Command("inspect", "inspecting:inspect", "Say what lies at a path; changes nothing.", (3, 8)),
    Command("commit", "commits:commit", "Commit a checkpoint.", (3, 4, 5, 6, 7)),
    Command("bind", "commits:bind", "Say what data a record or run was trained with.", (3, 5, 6, 7)),
    Command("metric", "commits:metric", "Add metrics to a record, as evaluations find them.", (3, 5, 6, 7)),
    Command("watch", "watch:watch", "The node's service: find, commit, open, move; one per node.", (3, 4, 7)),
    Command(
        "sweep", "commits:sweep", "One pass: find saves, finish what was interrupted, move replicas.", (3, 4, 5, 6, 7)
    ),
    Command("ls", "records:ls", "List records, newest first.", (3,)),
    Command("show", "records:show", "Show a record with its manifest.", (3, 4)),
    Command("log", "records:log", "Show a run's entries, or the site's.", (3,)),
    Command("replicate", "move:replicate", "Add a verified replica in a tier.", (3, 4, 5, 6, 7)),
    Command("release", "move:release", "Drop a replica; slower ones are read back first.", (3, 4, 5, 6, 7)),
    Command("restore", "move:restore", "Bring a checkpoint's files back to an empty directory.", (3, 4, 5, 6, 7)),
    Command("resume", "resume:resume", "Make a run's directory ready to train on.", (3, 4, 5, 6, 7)),
    Command("as-of", "as_of:as_of", "What a run and its data were at some time.", (3, 6)),
    Command("rollback plan", "rollback:plan", "What going back would do; nothing is changed.", (3, 4, 6, 7)),
    Command("rollback request", "rollback:request", "Ask to go back; somebody else approves.", (3, 4, 5, 6, 7)),
    Command("rollback ls", "rollback:list_rollbacks", "List rollbacks.", (3,)),
    Command("rollback show", "rollback:show_rollback", "Show a rollback: its plan, state and approvals.", (3, 4)),
    Command("rollback approve", "rollback_decide:approve", "Approve the plan you have seen.", (3, 4, 5, 6, 7)),
    Command("rollback refuse", "rollback_decide:refuse", "Refuse a rollback.", (3, 4, 5, 6, 7)),
    Command("rollback apply", "rollback_decide:apply", "Bring checkpoint and data back, as approved.", (3, 4, 5, 6, 7)),
    Command(
        "rollback move-branch", "rollback_decide:move_branch", "Then set shared data branches back too.", (3, 5, 6, 7)
    ),
    Command("pins", "pins:pins", "List pinned data commits and who needs them.", (3,)),
    Command("verify", "verify:verify", "Read replicas back and compare every byte.", (3, 4, 5, 6, 7)),
    Command(
        "ledger recover", "ledger:recover", "Bring back what the ledger lost, from tiers and hot.", (3, 4, 5, 6, 7)
    ),
    Command("tiers", "tiers:tiers", "List tiers.", (3, 6)),
    Command("tier init", "tiers:init_tier", "Make a place a tier of this ledger.", (3, 4, 5, 6, 7)),
    Command("tier rename", "tiers:rename_tier", "Say that a tier is called otherwise on purpose.", (3, 4, 5, 6, 7)),
    Command("node rename", "tiers:rename_node", "Say that this node is called otherwise on purpose.", (3, 4, 5, 6, 7)),
    Command("config show", "config:show", "Every value with its source."),
    Command("config schema", "config:schema", "JSON schema of lakemark.yaml."),
    Command("flows export", "flows:export", "Write prefect.yaml and its flows beside lakemark.yaml.", (3,)),
    Command("flows deploy", "flows:deploy", "Bring Prefect's deployments to what prefect.yaml says.", (3, 6)),
)


READING: Final = frozenset({
    "init", "doctor", "status", "run ls", "run show", "inspect", "ls", "show", "log", "restore", "as-of", "rollback ls",
    "rollback show", "pins", "tiers", "config show", "config schema",
})  # fmt: skip
"""Commands that a machine of the profile reader may give."""


def named(words: Sequence[str]) -> str | None:
    """The command that these words begin with; None where they name none."""
    names = {command.name for command in COMMANDS}
    # Two words first: the first of two names a group, and which command of it is meant says the second.
    return next((name for count in (2, 1) if (name := " ".join(words[:count])) in names), None)


def _shown(default: object) -> str | None:
    """A default as help shows it: what is off or empty where nothing is given goes without saying."""
    return None if default in (None, False, ()) else str(default)


def application(words: Sequence[str] = ()) -> App:
    """A new parser of every command. words: what will be parsed; the command they begin with explains itself at length."""
    shared: dict[str, Any] = {
        "version_flags": (),
        "help_flags": ("--help", "-h"),
        # negative=(): no `--no-dry-run` beside each switch. validator: the ledger keeps text as UTF-8.
        "default_parameter": Parameter(negative=(), validator=as_text, show_default=_shown),
        "result_action": "return_value",
        # Ctrl-C is told and answered in one place, with its exit code.
        "suppress_keyboard_interrupt": False,
        "help_format": "plaintext",
    }
    root = App(
        name="lakemark",
        help="Keeps a model's checkpoints and the data they were trained on in step.",
        help_epilogue=f"{HELP}\n\nExit codes: {' · '.join(f'{code} {text}' for code, text in MEANINGS.items())}",
        **{**shared, "version_flags": ("--version",), "version": _version},
    )
    groups = {name: App(name=name, help=text, help_epilogue=_codes(name), **shared) for name, text in GROUPS.items()}
    for group in groups.values():
        root.command(group)
    for command in COMMANDS:
        *above, name = command.name.split()
        home = groups[above[0]] if above else root
        called = list(words[: len(above) + 1]) == [*above, name]
        # With `help` given cyclopts reads no docstring and imports nothing: that is what keeps the start short.
        told = {} if called else {"help": command.help}
        home.command(
            f"lakemark.cli.commands.{command.code}", name=name, help_epilogue=command.epilogue, **told, **shared
        )
    return root


def nearest(words: Sequence[str]) -> tuple[str, str | None]:
    """Says that `words` name no command, and which one comes nearest to them."""
    group = words[0] if words and words[0] in GROUPS else None
    typed = " ".join(words[:2] if group else words[:1])
    names = [command.name for command in COMMANDS]
    # Half alike: less proposes commands that have little to do with what was typed.
    alike = difflib.get_close_matches(typed, [*names, *GROUPS], n=1, cutoff=0.5)
    return f"there is no command {typed!r}", alike[0] if alike else None


def _codes(group: str) -> str:
    codes = sorted({code for command in COMMANDS if command.name.startswith(f"{group} ") for code in command.codes})
    return f"{HELP}\n\nExit codes: {' · '.join(f'{code} {MEANINGS[code]}' for code in codes)}"


def _version() -> str:
    from lakemark import __version__

    return __version__
