"""What a vendor raises becomes an error with advice; what our own lines raise stays what it is."""

import sqlite3

import botocore.exceptions
import lakefs_client
import pytest

from lakemark.adapters.git.trees import git_errors
from lakemark.adapters.lakefs.server import LakeFSServer
from lakemark.adapters.node.journal import SqliteJournal
from lakemark.adapters.s3.objects import S3Blobs
from lakemark.adapters.s3.place import Credentials, S3Place
from lakemark.errors import Misconfigured, raised_in
from lakemark.index.database import is_damage
from lakemark.ports import KnownFile

OURS = [AttributeError("x"), KeyError("x"), TypeError("x"), ValueError("x")]
ours = pytest.mark.parametrize("error", OURS, ids=lambda error: type(error).__name__)


def raising(error):
    def call(**_):
        raise error

    return call


@ours
def test_lakefs(error):
    server = LakeFSServer("http://127.0.0.1:9", "a", "b", timeout_seconds=(1.0, 1.0))
    with pytest.raises(type(error)) as raised:
        server.ask(raising(error), about="a branch")
    assert raised.value is error


def test_an_answer_that_lakefs_own_client_chokes_on_is_the_server_s():
    server = LakeFSServer("http://127.0.0.1:9", "a", "b", timeout_seconds=(1.0, 1.0))

    def call(**_):
        lakefs_client.ApiClient().sanitize_for_serialization(object())

    with pytest.raises(Misconfigured):
        server.ask(call, about="a branch")


@ours
def test_git(error, tmp_path):
    with pytest.raises(type(error)) as raised, git_errors(tmp_path):
        raise error
    assert raised.value is error


def s3(tmp_path, bucket="b", endpoint="http://127.0.0.1:9"):
    place = S3Place(bucket=bucket, prefix="p", endpoint=endpoint)
    return S3Blobs(place, Credentials("a", "b"), journal=tmp_path)


def test_a_request_that_s3_has_not_is_no_matter_of_settings(tmp_path):
    blobs = s3(tmp_path)
    with pytest.raises(botocore.exceptions.ParamValidationError), blobs._errors("k"):
        blobs._client.head_object(Bucket="b", Kee="k")


def test_a_bucket_that_s3_has_not_is_one(tmp_path):
    with pytest.raises(Misconfigured, match="bucket"):
        s3(tmp_path, bucket="no/bucket").size("k")


def test_an_endpoint_that_is_none_is_one(tmp_path):
    with pytest.raises(Misconfigured):
        s3(tmp_path, endpoint="nowhere")


def test_a_journal_that_was_closed(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    journal.close()
    with pytest.raises(sqlite3.ProgrammingError):
        journal.known(KnownFile(device=1, inode=1, size_bytes=1, mtime_ns=1))


def test_an_index_is_not_made_anew_for_a_mistake_of_ours():
    assert not is_damage(sqlite3.ProgrammingError("Cannot operate on a closed database."))
    assert is_damage(sqlite3.DatabaseError("file is not a database"))


def test_whose_frames_an_error_passed():
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - any
        int("x")
    assert not raised_in(raised.value, "botocore")
    assert raised_in(raised.value, __name__)
