"""Runs a guard's script in a Lua of its own, which sees the action, the server's objects and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

__all__ = ["ObjectReader", "ScriptFailed", "run"]

ObjectReader = Callable[[str, str, str], tuple[int, bytes]]
"""From (repository, ref, path) to the HTTP status and the body that the server would answer."""

# A guard needs a few kilobytes; a script that runs wild must end as a refusal, not as a dead server.
_MEMORY_BYTES = 64 * 1024 * 1024
_INSTRUCTIONS = 50_000_000
_FAILURE_OPEN, _FAILURE_CLOSE = "<HookFailure>", "</HookFailure>"

# The names a script may use, and the two modules it may require. `require` alone gives the modules,
# as in lakeFS: a script that uses `lakefs` without it fails.
_PRELUDE = """
local instructions, get_object, stat_object = ...
local debug = debug

local function environment(action, args, username)
  local modules = {
    lakefs = {
      get_object = function(repository, ref, path) return get_object(repository, ref, path) end,
      stat_object = function(repository, ref, path) return stat_object(repository, ref, path) end,
    },
    hook = {
      fail = function(reason) error("<HookFailure>" .. tostring(reason) .. "</HookFailure>") end,
    },
  }
  -- No io, os, load or debug: a script comes from whoever may commit to a repository.
  local env = {
    assert = assert, error = error, ipairs = ipairs, next = next, pairs = pairs, pcall = pcall,
    rawequal = rawequal, rawget = rawget, rawlen = rawlen, rawset = rawset, select = select,
    setmetatable = setmetatable, tonumber = tonumber, tostring = tostring, type = type, xpcall = xpcall,
    bit32 = bit32, math = math, string = string, table = table, _VERSION = _VERSION,
    print = function() end,
    require = function(name)
      return modules[name] or error("module '" .. tostring(name) .. "' not found: ", 2)
    end,
    action = action, args = args, username = username,
  }
  env._G = env
  return env
end

return function(script, action, args, username)
  -- "t": source text only; crafted bytecode can break out of Lua.
  local chunk, problem = load(script, "lua", "t", environment(action, args, username))
  if not chunk then return "syntax error: " .. problem end
  debug.sethook(function() error("too many instructions") end, "", instructions)
  local passed, reason = pcall(chunk)
  debug.sethook()
  if passed then return nil end
  return "runtime error: " .. tostring(reason)
end
"""


class ScriptFailed(Exception):
    """The script raised an error, or is none; the message is Lua's."""


def run(
    script: str, *, action: Mapping[str, Any], args: Mapping[str, Any], get: ObjectReader, stat: ObjectReader
) -> None:
    """Return when the script ends well, else raise ScriptFailed."""
    from lupa import lua52  # the version of Lua that lakeFS embeds

    # No way from Lua into Python: neither eval nor builtins, and no attribute of what is handed in.
    lua = lua52.LuaRuntime(
        register_eval=False,
        register_builtins=False,
        unpack_returned_tuples=True,
        attribute_filter=_no_attributes,
        max_memory=_MEMORY_BYTES,
    )
    try:
        start = lua.execute(_PRELUDE, _INSTRUCTIONS, get, stat)
        tables = [lua.table_from(_plain(value), recursive=True) for value in (action, args)]
        reason = start(script, *tables, "admin")
    # Out of memory comes here, too.
    except (lua52.LuaError, UnicodeError) as error:
        raise ScriptFailed(f"runtime error: {error}") from error
    if reason is not None:
        raise ScriptFailed(_shown(str(reason)))


def _no_attributes(_subject: object, name: object, _is_setting: bool) -> NoReturn:  # noqa: FBT001 -- lupa's protocol
    raise AttributeError(name)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    # Lua knows no other Python values: they would be objects with attributes.
    return value if isinstance(value, str | int | float | bool) else str(value)


def _shown(reason: str) -> str:
    """What `hook.fail` was given; any other error with Lua's own words."""
    _, opened, rest = reason.partition(_FAILURE_OPEN)
    return rest.partition(_FAILURE_CLOSE)[0] if opened else reason
