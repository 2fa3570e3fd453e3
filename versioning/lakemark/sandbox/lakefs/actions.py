"""Actions: files below `_lakefs_actions/` whose hooks may refuse what is about to happen to a branch or tag."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import yaml

from lakemark.sandbox.lakefs import lua, objects
from lakemark.sandbox.lakefs.entries import ObjectEntry
from lakemark.sandbox.lakefs.faults import GONE, NOT_FOUND, PRECONDITION_FAILED, SERVER_ERROR, Fault
from lakemark.sandbox.lakefs.history import CommitDraft
from lakemark.sandbox.lakefs.scope import Scope, find_repository

__all__ = ["FOLDER", "Event", "fire"]

FOLDER = "_lakefs_actions/"

_EVENTS = {"prepare-commit"} | {
    f"{when}-{what}"
    for when in ("pre", "post")
    for what in (
        "commit",
        "merge",
        "create-tag",
        "delete-tag",
        "create-branch",
        "delete-branch",
        "revert",
        "cherry-pick",
    )
}
# Known, so that an action file of a real site is read; only Lua is run.
_HOOK_TYPES = {"lua", "webhook", "airflow"}
_NAME = re.compile(r"\w[\w\-. ]+", re.ASCII)
_HOOK_ID = re.compile(r"[_a-zA-Z][-_a-zA-Z0-9]{1,255}")


@dataclass(frozen=True, slots=True)
class Event:
    """What is about to happen. The actions that may refuse it are those of `source_ref`."""

    type: str
    source_ref: str
    branch: str = ""
    tag: str = ""
    commit: str = ""
    merge_source: str = ""
    draft: CommitDraft | None = None


@dataclass(frozen=True, slots=True)
class _Action:
    name: str
    on: dict[str, list[str]]
    hooks: list[dict[str, Any]]

    def matches(self, event: Event) -> bool:
        if event.type not in self.on:
            return False
        patterns = self.on[event.type]
        # No patterns: every branch.
        return not patterns or any(fnmatchcase(event.branch, pattern) for pattern in patterns)


def fire(scope: Scope, event: Event) -> None:
    """Run the hooks; raises Fault 412 when one refuses, 500 when an action file cannot be used."""
    run = secrets.token_hex(10)
    try:
        actions = [action for action in _load(scope, event.source_ref) if action.matches(event)]
        # Actions are independent: each is asked, and all reasons are told.
        reasons = [reason for number, action in enumerate(actions) if (reason := _run(scope, event, number, action))]
    except Fault as fault:
        # lakeFS passes a lost tree through as it is, everything else as a failure of the hook.
        raise (fault if fault.status == GONE else fault.under(_aborted(event, run))) from fault
    if reasons:
        raise Fault(PRECONDITION_FAILED, f"{_aborted(event, run)}: {_listed(reasons)}")


def _aborted(event: Event, run: str) -> str:
    return f"{event.type} hook aborted, run id '{run}'"


def _listed(reasons: list[str]) -> str:
    head = "1 error occurred:" if len(reasons) == 1 else f"{len(reasons)} errors occurred:"
    return head + "\n" + "".join(f"\t* {reason}\n" for reason in reasons) + "\n"


def _run(scope: Scope, event: Event, number: int, action: _Action) -> str | None:
    """Run one action's hooks in order until one refuses; gives its reason."""
    for position, hook in enumerate(action.hooks):
        if hook["type"] != "lua":
            raise Fault(SERVER_ERROR, f"this stand-in runs no hooks of type '{hook['type']}'")
        properties = hook["properties"]
        try:
            lua.run(
                properties["script"],
                action=_facts(scope, event, action, hook),
                args=properties.get("args") or {},
                get=_answering(scope, _content_of),
                stat=_answering(scope, _stats_of),
            )
        except lua.ScriptFailed as failed:
            place = f"hook run id '{number:04d}_{position:04d}' failed on action '{action.name}' hook '{hook['id']}'"
            return f"{place}: action failed: {failed}"
    return None


def _answering(scope: Scope, body: Callable[[Scope, ObjectEntry], bytes]) -> lua.ObjectReader:
    def answer(repository: str, ref: str, path: str) -> tuple[int, bytes]:
        try:
            within = Scope(scope.db, scope.blobs, find_repository(scope.db, repository))
            return 200, body(within, objects.find(within, ref, path))
        except Fault as fault:
            return fault.status, json.dumps({"message": fault.message}).encode()

    return answer


def _content_of(scope: Scope, entry: ObjectEntry) -> bytes:
    return b"".join(scope.blobs.read(entry.blob, 0, entry.size_bytes))


def _stats_of(scope: Scope, entry: ObjectEntry) -> bytes:
    return json.dumps(objects.stats(scope, entry, with_metadata=True)).encode()


def _facts(scope: Scope, event: Event, action: _Action, hook: Mapping[str, Any]) -> dict[str, Any]:
    # Events about branches and tags have no commit of their own; scripts find the same empty fields as on lakeFS.
    draft = event.draft or CommitDraft("", "", "", {}, [], 0)
    commit = {
        "message": draft.message,
        "meta_range_id": draft.tree,
        "metadata": dict(draft.metadata),
        "parents": list(draft.parents),
    }
    return {
        "action_name": action.name,
        "hook_id": hook["id"],
        "event_type": event.type,
        "commit_id": event.commit,
        "branch_id": event.branch,
        "source_ref": event.source_ref,
        "tag_id": event.tag,
        "merge_source": event.merge_source,
        "repository_id": scope.repository.id,
        "storage_namespace": scope.repository.namespace,
        "commit": commit,
    }


def _load(scope: Scope, ref: str) -> list[_Action]:
    try:
        # Files directly in the folder only, of the very commit that the event is about: who changes them later changes nothing.
        paths = [entry.path for entry in objects.below(scope, ref, FOLDER) if "/" not in entry.path[len(FOLDER) :]]
    except Fault as fault:
        raise (
            fault.under("list actions from commit: listing actions") if fault.status == NOT_FOUND else fault
        ) from fault
    actions = [_parse(path, _content_of(scope, objects.find(scope, ref, path))) for path in paths]
    names = [action.name for action in actions]
    for name in names:
        # Two files of one name stop every event of the branch, on lakeFS too.
        if names.count(name) > 1:
            raise Fault(SERVER_ERROR, f"action name '{name}' already loaded: invalid action")
    return actions


def _parse(path: str, content: bytes) -> _Action:
    try:
        # Every scalar as text: to lakeFS `on` and `no` are words.
        document = yaml.load(content, yaml.BaseLoader)  # noqa: S506 -- makes text, lists and maps, nothing else
        if not isinstance(document, dict):
            raise ValueError("it holds no mapping")
        return _checked(document)
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise Fault(SERVER_ERROR, _listed([f"parsing file {path}: {problem}: invalid action"])) from error


def _checked(document: dict[Any, Any]) -> _Action:
    name = document.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("'name' is required, of letters, digits, spaces, dots and dashes")
    events = document.get("on")
    if not isinstance(events, dict) or not events:
        raise ValueError("'on' is required")
    unknown = sorted(str(event) for event in events if event not in _EVENTS)
    # An event that was mistyped would never fire, and a guard never guard.
    if unknown:
        raise ValueError(f"event '{unknown[0]}' is not supported")
    on = {event: [str(pattern) for pattern in (rule or {}).get("branches") or []] for event, rule in events.items()}
    hooks = document.get("hooks") or []
    for position, hook in enumerate(hooks):
        _check_hook(position, hook)
    if len({hook["id"] for hook in hooks}) < len(hooks):
        raise ValueError("two hooks have the same id")
    return _Action(name, on, hooks)


def _check_hook(position: int, hook: object) -> None:
    if not isinstance(hook, dict) or not _HOOK_ID.fullmatch(str(hook.get("id", ""))):
        raise ValueError(f"hook[{position}] missing ID")
    if hook.get("type") not in _HOOK_TYPES:
        raise ValueError(f"hook[{position}] type '{hook.get('type')}' unknown")
    properties = hook.get("properties")
    if hook["type"] == "lua" and not (isinstance(properties, dict) and isinstance(properties.get("script"), str)):
        raise ValueError(f"hook[{position}] has no 'script'")
