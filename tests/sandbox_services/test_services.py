"""The sandbox whole: SeaweedFS, the lakeFS stand-in, Prefect's server and a worker, started once for this module."""

import json
import os
import signal
import textwrap
import time
import urllib.request
from itertools import chain
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from lakemark.errors import Misconfigured
from lakemark.sandbox import credentials, loopback, prefect, processes, roster, services

pytestmark = [pytest.mark.xdist_group("services"), pytest.mark.timeout(1500)]

FLOW = """
import json, os, time
from pathlib import Path
from prefect import flow

@flow
def probe(answer: str) -> None:
    told = {"pid": os.getpid(), "folder": os.getcwd(), "environment": dict(os.environ)}
    half = Path(answer + ".new")
    half.write_text(json.dumps(told))
    half.rename(answer)
    time.sleep(600)
"""
DEPLOYMENTS = """
name: probe
pull:
  - prefect.deployments.steps.set_working_directory: {directory: "{{ $LAKEMARK_HOME }}"}
deployments:
  - name: probe
    entrypoint: probe_flows.probe.probe
    work_pool: {name: lakemark, work_queue_name: urgent}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory, require_command):
    require_command("weed")
    require_command("prefect")
    home = tmp_path_factory.mktemp("home")
    flows = home / "checkout" / "probe_flows"
    flows.mkdir(parents=True)
    (flows / "__init__.py").touch()
    (flows / "probe.py").write_text(FLOW)
    (flows.parent / "prefect.yaml").write_text(textwrap.dedent(DEPLOYMENTS))
    return home


@pytest.fixture(scope="module")
def plan(home):
    s3, lakefs, server = loopback.free_ports(3)
    box = home / "sandbox"
    keys = credentials.generate(box / "credentials.env", prefect_port=server)
    # What a user's own Prefect or proxy would do to it.
    noise = {"PREFECT_API_URL": "http://192.0.2.1/api", "PREFECT_API_KEY": "x", "HTTP_PROXY": "http://192.0.2.1:1"}
    return services.Plan(
        box,
        keys,
        {**os.environ, **noise},
        services.S3(s3, "lakemark"),
        services.LakeFS(lakefs, "data", "main"),
        services.Prefect(home, "node-a", home / "checkout" / "prefect.yaml", {"LAKEMARK_EXTRA": "yes"}),
    )


@pytest.fixture(scope="module")
def running(plan):
    try:
        yield {one.name: one for one in services.up(plan, print)}
    finally:
        services.down(plan.directory)


@pytest.fixture(scope="module")
def probe(plan, running, home):
    """What a flow run on the worker says of itself; it runs on until `down`."""
    api = roster.api(plan)
    deployment = api._origin().ask("GET", "/api/deployments/name/probe/probe").json()["id"]
    answer = home / "answer.json"
    api._change(f"/deployments/{deployment}/create_flow_run", {"parameters": {"answer": str(answer)}})
    return json.loads(until(lambda: answer.exists() and answer.read_text(), seconds=300))


def until(true, seconds):
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def s3_of(plan, **keys):
    made = {
        "aws_access_key_id": plan.credentials["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": plan.credentials["AWS_SECRET_ACCESS_KEY"],
    }
    return boto3.client("s3", endpoint_url=loopback.url(plan.s3.port), region_name="us-east-1", **(made | keys))


def listening(pids):
    """The local addresses, as the kernel writes them, on which these processes listen."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
            except FileNotFoundError:
                continue
    rows = chain.from_iterable(Path(f"/proc/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6"))
    columns = [row.split() for row in rows]
    return {column[1] for column in columns if column[3] == "0A" and column[9] in inodes}


def test_all_four_run(running):
    assert list(running) == ["prefect-server", "seaweedfs", "lakefs", "prefect-worker"]
    assert all(one.ready_seconds is not None for one in running.values())


def test_s3_takes_and_gives_and_refuses_strangers(plan, running):
    s3_of(plan).put_object(Bucket="lakemark", Key="warm/x", Body=b"bytes")
    assert s3_of(plan).get_object(Bucket="lakemark", Key="warm/x")["Body"].read() == b"bytes"
    assert [one["Key"] for one in s3_of(plan).list_objects_v2(Bucket="lakemark")["Contents"]] == ["warm/x"]
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        s3_of(plan, aws_secret_access_key="other").list_objects_v2(Bucket="lakemark")
    with pytest.raises(ClientError, match="NoSuchBucket"):
        s3_of(plan).put_object(Bucket="mistyped", Key="x", Body=b"")


def test_prefect_asks_for_its_password_and_its_pages_know_the_address(plan, running):
    origin = loopback.Origin(roster.api(plan).port)
    assert origin.ask("GET", "/api/admin/version").status == 401
    assert roster.api(plan)._origin().ask("GET", "/api/admin/version").ok
    told = origin.ask("GET", "/ui-settings").json()
    assert told["api_url"] == plan.credentials["PREFECT_API_URL"]
    assert told["csrf_enabled"] is True
    assert told["default_ui"] == "v1"
    request = urllib.request.Request(
        f"{loopback.url(origin.port)}/api/admin/version", headers={"Origin": "http://elsewhere"}, method="OPTIONS"
    )
    request.add_header("Access-Control-Request-Method", "GET")
    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120)
    refused.value.close()


def test_nothing_listens_beyond_loopback(plan, running, probe):
    pids = [one.pid for name in running for one in processes.marked(f"{plan.directory.resolve()}#{name}")]
    addresses = listening(pids)
    assert {address.split(":")[0] for address in addresses} == {"0100007F"}
    ports = {int(address.split(":")[1], 16) for address in addresses}
    assert {plan.s3.port, plan.lakefs.port, roster.api(plan).port} <= ports


def test_a_flow_run_has_home_node_keys_and_flows(plan, probe, home):
    assert probe["folder"] == str(home)
    expected = {"LAKEMARK_HOME": str(home), "LAKEMARK_NODE": "node-a", "LAKEMARK_EXTRA": "yes"}
    secrets = {name: plan.credentials[name] for name in credentials.NAMES}
    assert probe["environment"].items() >= (expected | secrets).items()
    assert "PREFECT_API_KEY" not in probe["environment"]
    assert str(home / "checkout") in probe["environment"]["PYTHONPATH"].split(os.pathsep)


def test_up_again_leaves_all_alone(plan, running, probe):
    again = services.up(plan, print)
    assert [(one.name, one.pid, one.ready_seconds) for one in again] == [
        (one.name, one.pid, None) for one in running.values()
    ]
    os.kill(probe["pid"], 0)


def test_up_heals_what_was_killed_and_leaves_the_rest(plan, running, probe):
    s3_of(plan).put_object(Bucket="lakemark", Key="warm/kept", Body=b"still here")
    os.kill(running["seaweedfs"].pid, signal.SIGKILL)
    healed = {one.name: one.pid for one in services.up(plan, print)}
    assert {name for name, pid in healed.items() if pid != running[name].pid} == {"seaweedfs"}
    assert s3_of(plan).get_object(Bucket="lakemark", Key="warm/kept")["Body"].read() == b"still here"


def test_up_makes_a_removed_bucket_again(plan, running):
    bucket = boto3.resource(
        "s3",
        endpoint_url=loopback.url(plan.s3.port),
        region_name="us-east-1",
        aws_access_key_id=plan.credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=plan.credentials["AWS_SECRET_ACCESS_KEY"],
    ).Bucket("lakemark")
    bucket.objects.delete()
    bucket.delete()
    services.up(plan, print)
    assert s3_of(plan).list_objects_v2(Bucket="lakemark")["KeyCount"] == 0


def test_a_worker_that_was_killed_comes_back_and_its_runs_are_not_left_over(plan, running, probe):
    os.kill(next(one.pid for one in services.status(plan.directory) if one.name == "prefect-worker"), signal.SIGKILL)
    healed = {one.name: one for one in services.up(plan, print)}
    assert healed["prefect-worker"].pid != running["prefect-worker"].pid
    assert healed["prefect-worker"].ready_seconds is not None
    assert healed["prefect-server"].pid == running["prefect-server"].pid
    assert processes.identify(probe["pid"]) is None


def test_what_prefect_cannot_deploy_is_told(plan, running, home):
    broken = home / "checkout" / "broken.yaml"
    broken.write_text(textwrap.dedent(DEPLOYMENTS).replace("probe_flows.probe.probe", "no_such_flows.probe"))
    environment = roster.client_environment(plan)
    with pytest.raises(Misconfigured, match="no_such_flows"):
        prefect.deploy(broken, environment=environment)


def test_down_ends_every_process_frees_every_port_and_nothing_else(plan, running, home):
    before = services.status(plan.directory)
    names = [one.name for one in before]
    marks = [f"{plan.directory.resolve()}#{name}" for name in names]
    family = [one for mark in marks for one in processes.marked(mark)]
    addresses = listening([one.pid for one in family])
    answer = home / "answer.json"
    answer.unlink(missing_ok=True)
    api = roster.api(plan)
    deployment = api._origin().ask("GET", "/api/deployments/name/probe/probe").json()["id"]
    api._change(f"/deployments/{deployment}/create_flow_run", {"parameters": {"answer": str(answer)}})
    run = json.loads(until(lambda: answer.exists() and answer.read_text(), seconds=300))["pid"]
    assert processes.identify(run) is not None

    ended = services.down(plan.directory)

    assert {(one.name, one.pid) for one in ended} == {(one.name, one.pid) for one in before}
    assert [one for one in family if processes.alive(one)] == []
    assert processes.identify(run) is None
    assert [one for mark in marks for one in processes.marked(mark)] == []
    assert all(loopback.is_free(int(address.split(":")[1], 16)) for address in addresses)
    assert len(addresses) >= 12
    assert not (plan.directory / "services.json").exists()
    ports = json.loads((plan.directory / "seaweedfs" / "ports.json").read_text()).values()
    assert [one for one in Path("/tmp").glob("seaweedfs-*.sock") if any(str(port) in one.name for port in ports)] == []
