"""One lakeFS server: its answers as plain values, its refusals as our errors.

lakefs-client 1.44 sets no timeout of its own, leaves a temporary file behind for each object it reads whole, and knows
most statuses as one exception: so every call goes through `Server.ask`, which names the statuses it wants to see.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import lakefs_client
import urllib3
from lakefs_client import models
from lakefs_client.client import LakeFSClient

from lakemark.adapters.lakefs import errors
from lakemark.errors import NotFound, StoreUnavailable, Usage, quoted, raised_in
from lakemark.model.values.data_ids import is_commit_id
from lakemark.ports.data import DataCommit, Patience

CHUNK_BYTES: Final = 1 << 20
SILENT_SECONDS: Final = 15.0
_OK: Final = 200
# By how the client names its calls: a write whose answer got lost may have been done, and is not sent again.
_READS: Final = ("get_", "list_", "log_", "diff_", "stat_")
_REMEMBERED: Final = 32
"""Pages of history, of 1000 commits each: some 20 MB."""
_PAUSES: Final = (0.1, 0.4)
_QUICK_SECONDS: Final = 0.25
"""An answer within it costs a pass none of its patience: a healthy server may be asked as much as there is to ask."""
_NO_RIGHT: Final = "insufficient permissions"


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: 200 with a value for any success, else a status that was asked for and the server's message."""

    status: int
    message: str = ""
    value: Any = None

    @property
    def ok(self) -> bool:
        return self.status == _OK


@dataclass(frozen=True, slots=True)
class _Unasked:
    """A failing status that nobody asked to see."""

    status: int
    message: str


class LakeFSServer:
    """A lakeFS server and who we are to it. Safe to share between threads.

    page: entries asked for at a time: from 2 to 1000, the most that a server gives. timeout_seconds: to connect, and
    between two bytes of an answer. Whoever asked in vain for that long spares the next ones the wait: for
    SILENT_SECONDS every call fails at once. patience_seconds: how long all requests together are waited for, then every
    call fails; what is done between them does not count. None: as long as each needs.
    """

    page: int = 1000

    def __init__(
        self,
        endpoint: str,
        access_key_id: str,
        secret_access_key: str,
        *,
        timeout_seconds: tuple[float, float],
        patience_seconds: float | None = None,
    ) -> None:
        setup = lakefs_client.Configuration(host=endpoint, username=access_key_id, password=secret_access_key)
        # Connecting is tried twice. What was sent is sent again by `ask` alone, which knows what only reads.
        setup.retries = urllib3.Retry(connect=1, read=0, redirect=0, status=0, other=0)
        self.endpoint = endpoint
        self.timeout = timeout_seconds
        self.client = LakeFSClient(setup)
        self.client._api.user_agent = "lakemark"  # noqa: SLF001 - the wrapper hides the client it wraps
        self._call = threading.local()
        self._silent_until = 0.0
        self._patience = patience_seconds
        self._waited = 0.0
        self._pages: dict[tuple[str, str, int], tuple[list[DataCommit], bool]] = {}

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """What this thread asks inside is over after `seconds`: StoreUnavailable then. Inside another, the nearer end counts."""
        outer: float | None = getattr(self._call, "until", None)
        until = time.monotonic() + seconds
        self._call.until = until if outer is None else min(outer, until)
        try:
            yield
        finally:
            self._call.until = outer

    @contextmanager
    def patient(self, patience: Patience) -> Iterator[None]:
        """See `DataVersions.patient`."""
        outer: Patience | None = getattr(self._call, "patience", None)
        self._call.patience = patience
        try:
            yield
        finally:
            self._call.patience = outer

    def sleep(self, seconds: float) -> None:
        """Waits for what the server does by itself, which a pass waits for as for an answer."""
        time.sleep(seconds)
        self._spend(seconds)

    def ask(self, call: Any, *given: Any, about: str, expect: tuple[int, ...] = (), **named: Any) -> Said:  # noqa: ANN401 - a method of the client, which has no types
        """Calls the server; every status that is neither success nor in `expect` is raised as our error.

        about: what is asked for, as the errors say it. What only reads is asked again, twice, where the server fails or
        breaks off; not where it is silent, which would only double the wait.
        """
        for pause in _PAUSES if call.__name__.startswith(_READS) else ():
            try:
                answer = self._once(call, *given, about=about, expect=expect, **named)
            except urllib3.exceptions.HTTPError as error:
                if _is_silence(error):
                    raise self._unreachable(error, about) from error
            else:
                if isinstance(answer, Said):
                    return answer
                if not errors.may_pass(answer.status):
                    raise errors.error_for(answer.status, answer.message, about=about)
            time.sleep(pause)
        try:
            last = self._once(call, *given, about=about, expect=expect, **named)
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error, about) from error
        if isinstance(last, Said):
            return last
        raise errors.error_for(last.status, last.message, about=about)

    def _once(self, call: Any, *given: Any, about: str, expect: tuple[int, ...], **named: Any) -> Said | _Unasked:  # noqa: ANN401 - as in `ask`
        """One request. Raises urllib3's HTTPError where no answer came."""
        timeout, began = self._timeout(about), time.monotonic()
        try:
            return Said(_OK, value=call(*given, _request_timeout=timeout, **named))
        except lakefs_client.ApiException as error:
            status, message = int(error.status or 0), errors.said(error.body)
            if not status:
                raise errors.unreachable(self.endpoint, error) from error
            if status == errors.UNAUTHORIZED and _NO_RIGHT in message:
                status = errors.FORBIDDEN  # the server knows who asks: they may not do it
            return Said(status, message) if status in expect else _Unasked(status, message)
        except urllib3.exceptions.LocationValueError as error:
            raise errors.not_lakefs(self.endpoint, error) from error
        except lakefs_client.OpenApiException as error:
            raise errors.not_lakefs(self.endpoint, error) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # How the client takes an answer that has not the fields it should; out of our own lines it is a mistake of ours.
            if not raised_in(error, "lakefs_client"):
                raise
            raise errors.not_lakefs(self.endpoint, error) from error
        finally:
            self._spend(time.monotonic() - began)

    def _spend(self, seconds: float) -> None:
        self._waited += seconds
        patience: Patience | None = getattr(self._call, "patience", None)
        if patience is not None:
            patience.left_seconds -= max(0.0, seconds - _QUICK_SECONDS)

    def _timeout(self, about: str) -> tuple[float, float]:
        """For the next request. Raises StoreUnavailable where the server was silent just now, or the time is over."""
        now = time.monotonic()
        if now < self._silent_until:
            raise errors.silent(self.endpoint, self.timeout[1])
        patience: Patience | None = getattr(self._call, "patience", None)
        if patience is not None and patience.left_seconds <= 0:
            raise errors.not_asked(self.endpoint, about)
        until = self._until(now)
        if until is None:
            return self.timeout
        if now >= until:
            raise errors.too_slow(self.endpoint, about)
        connect, read = self.timeout
        return min(connect, until - now), min(read, until - now)

    def _until(self, now: float) -> float | None:
        """When the time of this call, of its pass, or of all of them, is over."""
        ends: list[float | None] = [getattr(self._call, "until", None)]
        patience: Patience | None = getattr(self._call, "patience", None)
        if patience is not None:
            left = patience.left_seconds
            ends.append(now + left + _QUICK_SECONDS if left > 0 else now)
        if self._patience is not None:
            ends.append(now + self._patience - self._waited)
        return min((end for end in ends if end is not None), default=None)

    def _unreachable(self, error: urllib3.exceptions.HTTPError, about: str) -> StoreUnavailable:
        now = time.monotonic()
        until = self._until(now)
        if _is_silence(error) and until is not None and now >= until:
            return errors.too_slow(self.endpoint, about)  # our time is over: of the server's silence that says nothing
        if _is_silence(error):
            # For every thread: else each of them would wait as long for the same silence.
            self._silent_until = time.monotonic() + SILENT_SECONDS
        return errors.unreachable(self.endpoint, error)

    def commit(self, repository: str, commit: str) -> DataCommit:
        """The commit with this full id. Raises Usage for anything shorter, NotFound."""
        about = f"commit {full(commit)} of data repository {quoted(repository)}"
        found = plain_commit(self.ask(self.client.commits_api.get_commit, repository, commit, about=about).value)
        # Where there is no such commit, lakeFS answers with what a branch or tag of that name stands for.
        if found.id != commit:
            raise NotFound(f"{about}: there is none", advice="A branch or tag has that name: ask for it by another.")
        return found

    def head(self, repository: str, branch: str) -> str | None:
        """The commit id of the branch's head, uncommitted changes aside; None where there is no such branch."""
        about = f"branch {quoted(branch)} of data repository {quoted(repository)}"
        return self._named(self.client.branches_api.get_branch, repository, branch, about=about)

    def tag(self, repository: str, tag: str) -> str | None:
        """The commit id a tag stands for; None where there is no such tag."""
        about = f"tag {quoted(tag)} of data repository {quoted(repository)}"
        return self._named(self.client.tags_api.get_tag, repository, tag, about=about)

    def _named(self, call: Any, repository: str, name: str, *, about: str) -> str | None:  # noqa: ANN401 - as in `ask`
        """The commit that a name stands for; None where there is no such name. Raises NotFound for the repository."""
        answer = self.ask(call, repository, name, about=about, expect=(errors.BAD_REQUEST, errors.NOT_FOUND))
        if answer.ok:
            return str(answer.value.commit_id)
        if "repository" in answer.message:
            raise errors.error_for(answer.status, answer.message, about=about)
        return None

    def history(self, repository: str, commit: str, *, remembered: bool = False) -> Iterator[DataCommit]:
        """The commit and its first-parent ancestors, newest first, down to the repository's first commit.

        Each page starts anew at the last commit of the one before it, whose place nothing can move.
        remembered: pages that this process has read already are not asked for again; not for finding edited ones.
        """
        full(commit)
        start, fresh = commit, 0
        while True:
            # By the commit that a page begins at: what lies before a commit never changes.
            key = (repository, start, self.page)
            found = self._pages.get(key) if remembered else None
            commits, more = found or self._history_page(repository, start)
            while len(self._pages) >= _REMEMBERED:
                self._pages.pop(next(iter(self._pages)), None)
            self._pages[key] = (commits, more)
            yield from commits[fresh:]
            if not more or len(commits) <= fresh:
                return
            start, fresh = commits[-1].id, 1

    def _history_page(self, repository: str, start: str) -> tuple[list[DataCommit], bool]:
        about = f"history of {start} in data repository {quoted(repository)}"
        call = self.client.refs_api.log_commits
        said = self.ask(call, repository, start, first_parent=True, amount=self.page, about=about).value
        return [plain_commit(item) for item in said.results], bool(said.pagination.has_more)

    def branches(self, repository: str, *, prefix: str, hidden: bool) -> dict[str, str]:
        """All branches whose names begin with `prefix`, and their heads; hidden ones too where asked for."""
        about = f"branches of data repository {quoted(repository)}"
        found: dict[str, str] = {}
        after = ""
        while True:
            answer = self.ask(
                self.client.branches_api.list_branches, repository, prefix=prefix, after=after, amount=self.page,
                show_hidden=hidden, about=about,
            ).value  # fmt: skip
            found.update((str(one.id), str(one.commit_id)) for one in answer.results)
            if not answer.pagination.has_more:
                return found
            after = str(answer.pagination.next_offset)

    def written(self, repository: str, branch: str) -> set[str]:
        """All paths on the branch, committed or not; none where there is no such branch."""
        about = f"objects on branch {quoted(branch)} of data repository {quoted(repository)}"
        found: set[str] = set()
        after = ""
        while True:
            call = self.client.objects_api.list_objects
            answer = self.ask(
                call, repository, branch, after=after, amount=self.page, about=about, expect=(errors.NOT_FOUND,)
            )
            if not answer.ok:
                return found
            found.update(str(item.path) for item in answer.value.results)
            if not answer.value.pagination.has_more:
                return found
            after = str(answer.value.pagination.next_offset)

    def differences(
        self, repository: str, left: str, right: str, *, page: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """(type, path) of each object that differs between two full commit ids, in order of path."""
        about = f"difference from {full(left)} to {full(right)} in data repository {quoted(repository)}"
        after = ""
        while True:
            answer = self.ask(
                self.client.refs_api.diff_refs,
                repository,
                left,
                right,
                # The two commits themselves: three dots would begin at their common ancestor.
                type="two_dot",
                after=after,
                amount=page or self.page,
                about=about,
            ).value
            yield from ((str(item.type), str(item.path)) for item in answer.results)
            if not answer.pagination.has_more:
                return
            after = answer.pagination.next_offset

    def objects(
        self, repository: str, commit: str, *, prefix: str = "", after: str = "", page: int | None = None
    ) -> tuple[list[tuple[str, int]], bool]:
        """One page of (path, size_bytes) behind `after`, in order of path, and whether more follow."""
        about = f"objects of {full(commit)} in data repository {quoted(repository)}"
        answer = self.ask(
            self.client.objects_api.list_objects,
            repository,
            commit,
            prefix=prefix,
            after=after,
            amount=page or self.page,
            about=about,
        ).value
        found = [(str(item.path), int(item.get("size_bytes") or 0)) for item in answer.results]
        return found, bool(answer.pagination.has_more)

    def opened(self, repository: str, commit: str, path: str, *, byte_range: str | None = None) -> Said:
        """An object's answer before its bytes are read: a urllib3 response, or the status 404, 410 or 416."""
        named = {"range": byte_range} if byte_range else {}
        return self.ask(
            # Not preloaded: the client would read it whole, and leave a temporary file of it behind.
            self.client.objects_api.get_object, repository, full(commit), path, _preload_content=False,
            about=f"{quoted(path)} in {commit} of data repository {quoted(repository)}",
            expect=(errors.NOT_FOUND, errors.GONE, errors.RANGE_NOT_SATISFIABLE), **named,
        )  # fmt: skip

    def body(self, response: Any) -> Iterator[bytes]:  # noqa: ANN401 - the client has no types
        """The response's bytes in chunks of at most 1 MiB. Shorter than announced is StoreUnavailable."""
        chunks = response.stream(CHUNK_BYTES)
        try:
            # Each wait for bytes counts, not what is done with them in between.
            while (chunk := self._awaited(chunks)) is not None:
                yield chunk
        except urllib3.exceptions.HTTPError as error:
            raise errors.unreachable(self.endpoint, error) from error
        finally:
            # Not given back for the next request: what was not read of it would be taken for that one's answer.
            response.close()

    def _awaited(self, chunks: Iterator[bytes]) -> bytes | None:
        began = time.monotonic()
        try:
            return next(chunks, None)
        finally:
            self._spend(time.monotonic() - began)

    def upload(self, repository: str, branch: str, path: str, content: bytes, *, expect: tuple[int, ...] = ()) -> Said:
        return self.ask(
            self.client.objects_api.upload_object, repository, branch, path, content=io.BytesIO(content),
            about=f"writing {quoted(path)} to branch {quoted(branch)} of data repository {quoted(repository)}",
            expect=expect,
        )  # fmt: skip

    def record(
        self,
        repository: str,
        branch: str,
        message: str,
        *,
        metadata: Mapping[str, str],
        source: str | None = None,
        expect: tuple[int, ...] = (),
    ) -> Said:
        """Commits what is staged on the branch, or, with `source`, a tree: a meta-range just read from a commit.

        The server takes any 64 hex digits for a `source` and breaks the branch with it.
        """
        named = {"source_metarange": source} if source is not None else {}
        return self.ask(
            self.client.commits_api.commit, repository, branch,
            models.CommitCreation(message=message, metadata=dict(metadata)),
            about=f"committing to branch {quoted(branch)} of data repository {quoted(repository)}",
            expect=expect, **named,
        )  # fmt: skip

    def staged(self, repository: str, branch: str) -> bool:
        """Whether the branch has uncommitted changes."""
        about = f"uncommitted changes of branch {quoted(branch)} of data repository {quoted(repository)}"
        # One is enough to say that there are some.
        answer = self.ask(self.client.branches_api.diff_branch, repository, branch, amount=1, about=about)
        return bool(answer.value.results)

    def make_branch(
        self, repository: str, branch: str, commit: str, *, hidden: bool, expect: tuple[int, ...] = ()
    ) -> Said:
        return self.ask(
            self.client.branches_api.create_branch, repository,
            models.BranchCreation(name=branch, source=full(commit), hidden=hidden),
            about=f"making branch {quoted(branch)} at {commit} of data repository {quoted(repository)}",
            expect=expect,
        )  # fmt: skip

    def drop_branch(self, repository: str, branch: str, *, expect: tuple[int, ...] = ()) -> Said:
        about = f"deleting branch {quoted(branch)} of data repository {quoted(repository)}"
        return self.ask(self.client.branches_api.delete_branch, repository, branch, about=about, expect=expect)

    def reset(self, repository: str, branch: str, *, expect: tuple[int, ...] = ()) -> Said:
        """Drops the branch's uncommitted changes."""
        about = f"resetting branch {quoted(branch)} of data repository {quoted(repository)}"
        what = models.ResetCreation(type="reset")
        return self.ask(self.client.branches_api.reset_branch, repository, branch, what, about=about, expect=expect)

    def protected(self, repository: str) -> tuple[list[str], str]:
        """The protected patterns, and the list's ETag: empty where there is none yet."""
        about = f"protection rules of data repository {quoted(repository)}"
        call = self.client.repositories_api.get_branch_protection_rules
        # With the headers: the ETag is in them alone.
        rules, _status, headers = self.ask(call, repository, about=about, _return_http_data_only=False).value
        return [str(rule.pattern) for rule in rules], str(headers.get("ETag") or "")

    def protect(self, repository: str, patterns: Sequence[str], *, only_if: str, expect: tuple[int, ...] = ()) -> Said:
        """Replaces the protected patterns if their ETag is still `only_if`, else 412. Holds within six seconds.

        An empty ETag, of a list that was never written, can't be compared with: lakeFS has no way to say so.
        """
        about = f"changing the protection rules of data repository {quoted(repository)}"
        call = self.client.repositories_api.set_branch_protection_rules
        rules = [models.BranchProtectionRule(pattern=pattern) for pattern in patterns]
        condition = {"if_match": only_if} if only_if else {}
        return self.ask(call, repository, rules, about=about, expect=expect, **condition)

    def has(self, repository: str, branch: str, path: str) -> bool:
        """Whether the branch has the path, committed or not. Says nothing about its bytes."""
        about = f"{quoted(path)} on branch {quoted(branch)} of data repository {quoted(repository)}"
        call = self.client.objects_api.stat_object
        return self.ask(call, repository, branch, path, about=about, expect=(errors.NOT_FOUND,)).ok

    def back(self, repository: str, commit: str, steps: int) -> str | None:
        """The commit so many first parents back; None beyond the first."""
        ref = f"{full(commit)}~{steps}"
        about = f"commit {ref} of data repository {quoted(repository)}"
        answer = self.ask(self.client.commits_api.get_commit, repository, ref, about=about, expect=(errors.NOT_FOUND,))
        return str(answer.value.id) if answer.ok else None


def full(commit: str) -> str:
    """`commit`, if it is a full id: short ones and names may mean another commit tomorrow. Else Usage."""
    if not is_commit_id(commit):
        raise Usage(
            f"{quoted(commit)} is not a data commit's full id, 64 lower-case hex digits",
            advice="Resolve the branch or tag first: `lakemark run open` shows what it stands for.",
        )
    return commit


def _is_silence(error: Exception) -> bool:
    """Whether the server took the connection, or would not, and said nothing for as long as we wait."""
    reason = getattr(error, "reason", None) or error
    return isinstance(reason, urllib3.exceptions.TimeoutError)


def plain_commit(said: Any) -> DataCommit:  # noqa: ANN401 - the client has no types
    """The client's commit as ours."""
    return DataCommit(
        id=str(said.id),
        parents=tuple(str(parent) for parent in said.parents),
        committer=str(said.committer),
        message=str(said.message),
        created_at=datetime.fromtimestamp(int(said.creation_date), UTC),
        meta_range=str(said.meta_range_id),
        metadata={str(key): str(value) for key, value in (said.get("metadata") or {}).items()},
    )
