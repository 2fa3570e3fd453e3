"""Running one command line: parse, run, print, and turn whatever is raised into an exit code and one message."""

from __future__ import annotations

import errno
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from cyclopts import CycloptsError
from cyclopts.exceptions import CommandCollisionError, UnknownCommandError

from lakemark.cli import streams
from lakemark.cli.options import Options, taken
from lakemark.cli.output import plain
from lakemark.cli.registry import application, named, nearest
from lakemark.cli.session import Answer, Session, begin
from lakemark.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNEXPECTED, LakemarkError, Usage, without_secrets

__all__ = ["execute"]


def execute(arguments: Sequence[str], *, environ: Mapping[str, str]) -> int:
    """Answers the exit code; raises nothing but what ends an interpreter on purpose."""
    # Before they are parsed: whether parsing fails is told in the form that was asked for.
    options = Options(json="--json" in arguments, quiet="--quiet" in arguments, verbose="--verbose" in arguments)
    streams.settle()
    try:
        options, rest = taken(arguments)
        return _run(options, rest, environ)
    except KeyboardInterrupt:
        return _failed(_Interrupted, options)
    except LakemarkError as error:
        return _failed(error, options)
    except Exception as error:  # noqa: BLE001 - the last stop: a person gets a message, not a traceback
        return _failed(error, options)


def _run(options: Options, rest: list[str], environ: Mapping[str, str]) -> int:
    running = Session(options=options, environ=environ, command=named(rest))
    begin(running)
    try:
        answer = application(rest)(rest, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise _usage(error) from None
    except LakemarkError as error:
        # Where an error is made nobody knows on which machine it is read.
        error.advice = running.advised(error.advice)
        raise
    finally:
        running.close()
    # `--help` and `--version` print by themselves, and answer no Answer.
    return _told(answer, options) if isinstance(answer, Answer) else EXIT_OK


def _told(answer: Answer, options: Options) -> int:
    """Prints the answer. The work is done: the exit code is what came of it, also where nobody can be told.

    Only an answer that was cut short is none: a file that looks whole and is not must not pass for one.
    """
    try:
        _print(answer, options)
    except BrokenPipeError:
        streams.give_up_stdout()  # whoever read our output has seen enough
    except OSError as error:
        streams.give_up_stdout()
        if error.errno == errno.EBADF:  # closed on purpose
            return answer.exit_code
        sys.stderr.write(
            f"lakemark: what was asked for is done, but its answer could not be written: {plain(error.strerror)}\n"
            "  Make room where stdout goes; the same command may be given again.\n"
        )
        return answer.exit_code or EXIT_UNEXPECTED
    return answer.exit_code


def _print(answer: Answer, options: Options) -> None:
    if options.json:
        sys.stdout.write(json.dumps(answer.document, ensure_ascii=False) + "\n")
    else:
        for line in answer.lines:
            sys.stdout.write(line + "\n")
    # Here, where it can be told: a full disk would else show only when the interpreter ends.
    sys.stdout.flush()


def _usage(error: CycloptsError) -> Usage:
    # Else cyclopts puts the file, line and signature of the command before its sentence.
    error.verbose = False
    words = " ".join(str(error).split())
    if isinstance(error, CommandCollisionError):
        # Two commands of one name are a fault in the registry, not of what was typed.
        raise error
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        chain = list(error.command_chain or ())
        # The parser's own words name only the last token, and propose options, too.
        words, like = nearest([*chain, *error.unused_tokens])
        advice = f"Did you mean `lakemark {like}`?" if like else "See `lakemark --help`."
        return Usage(words, advice=advice)
    chain = list(error.command_chain or ())
    return Usage(plain(words), advice=f"See `lakemark {' '.join([*chain, '--help'])}`.")


class _InterruptedError(LakemarkError):
    """Ctrl-C."""

    exit_code = EXIT_INTERRUPTED

    @property
    def kind(self) -> str:
        return "Interrupted"


_Interrupted = _InterruptedError("interrupted", advice="Give the same command again: it goes on where it can.")


def _failed(error: Exception, options: Options) -> int:
    # Tracebacks show values: an address may carry a password.
    if options.verbose:
        sys.stderr.write(without_secrets("".join(traceback.format_exception(error))))
    known = isinstance(error, LakemarkError)
    code = error.exit_code if isinstance(error, LakemarkError) else EXIT_UNEXPECTED
    if options.json:
        document: Mapping[str, Any] = error.as_json() if isinstance(error, LakemarkError) else _unexpected(error)
        # One line, as who reads it may read line by line; notes and warnings stand before it.
        sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")
        return code
    if isinstance(error, LakemarkError) and known:
        sys.stderr.write(f"lakemark: {plain(error.message)}\n  {plain(error.advice)}\n")
    else:
        sys.stderr.write(f"lakemark: unexpected {type(error).__name__}: {plain(without_secrets(str(error)))}\n")
        sys.stderr.write("  Give the same command with --verbose and report what it prints.\n")
    return code


def _unexpected(error: Exception) -> dict[str, dict[str, object]]:
    detail = {
        "kind": "Unexpected",
        "message": without_secrets(f"{type(error).__name__}: {error}"),
        "advice": "Give the same command with --verbose and report what it prints.",
        "exit_code": EXIT_UNEXPECTED,
    }
    return {"error": detail}
