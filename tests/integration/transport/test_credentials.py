"""Credentials, region and endpoint, and what happens when they change."""

import json
import secrets
import subprocess
import sys
import time

import boto3
import botocore.loaders
import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.transport import scripted
from tests.integration.transport.scripted import Script, refuse
from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import store_url
from zae_limiter import SyncRepository
from zae_limiter.exceptions import InfrastructureNotFoundError, PermissionDenied, ValidationError
from zae_limiter.store_errors import NotSent
from zae_limiter.transport.aws_config import AwsConfig
from zae_limiter_ops.cli.app import app
from zae_limiter_ops.cli.shared.errors import run

KEY = {"Key": {"PK": {"S": "one"}}}


@pytest.fixture
def open_client(open_client):
    """Opens clients that wait: a busy machine imports botocore for seconds at a first lookup."""

    def patient(url, **options):
        return open_client(url, **{"request_timeout": 10, **options})

    return patient


LOADER = botocore.loaders.create_loader()
PROCESS = """
import datetime, json, pathlib, sys, time
count = pathlib.Path(sys.argv[1])
runs = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(runs))
time.sleep(float(sys.argv[2]))
until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=5)
print(json.dumps({"Version": 1, "AccessKeyId": f"AKIARUN{runs}", "SecretAccessKey": "secret",
    "SessionToken": f"token-{runs}", "Expiration": until.isoformat()}))
"""


@pytest.fixture
def without_keys(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def credential_process(without_keys, tmp_path):
    """A profile whose keys a script makes, new ones at every run; its runs are counted."""
    script, count = tmp_path / "process.py", tmp_path / "count"
    script.write_text(PROCESS)

    def write(seconds=0.0, code=None):
        if code is not None:
            script.write_text(code)
        command = f"{sys.executable} {script} {count} {seconds}"
        (tmp_path / "config").write_text(f"[default]\ncredential_process = {command}\n")
        return count

    return write


def access_keys(server):
    """Those that requests were signed with."""
    return [headers["authorization"].split("=")[1].split("/")[0] for headers, _ in server.seen]


def scopes(server):
    return [headers["authorization"].split("/", 1)[1].split(",")[0] for headers, _ in server.seen]


def taking(*keys):
    """Answers requests that are signed with one of these keys."""

    def step(wire):
        headers, _ = wire.read()
        key = headers["authorization"].split("=")[1].split("/")[0]
        if key in keys:
            wire.write(scripted.message(json.dumps(scripted.OK).encode()))
        else:
            content = {"__type": "x#ExpiredTokenException", "message": "expired"}
            wire.write(scripted.message(json.dumps(content).encode(), 400))

    return step


def shared_file(tmp_path, key):
    text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
    (tmp_path / "credentials").write_text(text)


# --- where from


def test_the_environment_comes_first(open_client, tmp_path, monkeypatch):
    shared_file(tmp_path, "AKIAFILE")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-token")
    with Script(scripted.answer()) as server:
        open_client(server.url).call("GetItem", KEY)
    assert access_keys(server) == ["AKIATESTTESTTESTTEST"]
    assert server.seen[0][0]["x-amz-security-token"] == "the-token"


def test_then_the_shared_file(open_client, without_keys, tmp_path):
    shared_file(tmp_path, "AKIAFILE")
    with Script(scripted.answer()) as server:
        open_client(server.url).call("GetItem", KEY)
    assert access_keys(server) == ["AKIAFILE"]


def test_a_local_server_needs_no_set_up(open_client, without_keys, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with Script(scripted.answer()) as server:
        open_client(server.url).call("GetItem", KEY)
        open_client(f"http://localhost:{server.port}").call("GetItem", KEY)
    assert access_keys(server) == ["local", "local"]
    assert scopes(server)[0].endswith("/us-east-1/dynamodb/aws4_request")


def test_another_server_needs_credentials(open_client, without_keys):
    with pytest.raises(PermissionDenied, match="no AWS credentials were found"):
        open_client("http://192.0.2.1:8000", request_timeout=10).call("GetItem", KEY)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
@pytest.mark.parametrize("value", ["with blank", "AKIA\r\nX-Evil: 1", "ключ"])
def test_credentials_that_cannot_be_sent_are_refused(open_client, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with Script(scripted.answer()) as server, pytest.raises(PermissionDenied) as caught:
        open_client(server.url).call("GetItem", KEY)
    assert value not in str(caught.value)
    assert server.seen == []


# --- region and endpoint


def test_the_region_is_the_argument_the_environment_or_the_profile(
    open_client, monkeypatch, tmp_path
):
    (tmp_path / "config").write_text("[default]\nregion = eu-west-3\n")
    with Script(scripted.answer()) as server:
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        open_client(server.url, region="eu-north-1").call("GetItem", KEY)
        open_client(server.url).call("GetItem", KEY)
        monkeypatch.delenv("AWS_REGION")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
        open_client(server.url).call("GetItem", KEY)
        monkeypatch.delenv("AWS_DEFAULT_REGION")
        open_client(server.url).call("GetItem", KEY)
    regions = [scope.split("/")[1] for scope in scopes(server)]
    assert regions == ["eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3"]


def test_without_a_region_there_is_no_endpoint(open_client, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(ValidationError, match=r"region.*AWS_REGION"):
        open_client(None, request_timeout=10).call("GetItem", KEY)


@pytest.mark.parametrize("region", ["mars-1", "us east 1", "US-EAST-1", "eu\r\nx"])
def test_a_region_that_is_none_is_refused(open_client, region):
    with pytest.raises(ValidationError, match="region"):
        open_client(None, region=region, request_timeout=10).call("GetItem", KEY)


def session():
    """A new one, as it reads the environment, with the descriptions of services read before."""
    core = botocore.session.Session()
    core.register_component("data_loader", LOADER)
    return boto3.session.Session(botocore_session=core)


@pytest.mark.parametrize("variant", ["", "FIPS", "DUALSTACK"])
@pytest.mark.parametrize("region", ["us-east-1", "eu-central-2", "cn-north-1", "us-gov-west-1"])
def test_the_public_endpoint_is_the_one_that_boto3_uses(monkeypatch, region, variant):
    if variant:
        monkeypatch.setenv(f"AWS_USE_{variant}_ENDPOINT", "true")
    client = session().client("dynamodb", region_name=region)
    called = []

    def answer(request, **_):  # instead of AWS
        called.append(request.url)
        return AWSResponse(request.url, 200, {}, Answered())

    # The client's attribute endpoint_url is another host than the one it calls in GovCloud.
    client.meta.events.register("before-send.dynamodb", answer)
    client.list_tables()
    endpoint, signed_for = AwsConfig().endpoint_and_region(None, region)
    assert called == [endpoint.url]
    assert signed_for == region
    client.close()


class Answered:
    """The body of an answer of DynamoDB without tables."""

    def stream(self):
        yield b'{"TableNames": []}'


def test_the_endpoint_is_the_argument_the_environment_or_the_profile(
    open_client, monkeypatch, tmp_path
):
    with Script(scripted.answer()) as server:
        bad = "http://127.0.0.1:1"
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", bad)
        open_client(server.url).call("GetItem", KEY)
        monkeypatch.setenv("AWS_ENDPOINT_URL", bad)
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", server.url)
        open_client(None).call("GetItem", KEY)
        monkeypatch.delenv("AWS_ENDPOINT_URL_DYNAMODB")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        open_client(None).call("GetItem", KEY)
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        (tmp_path / "config").write_text(
            "[default]\nservices = mine\n[services mine]\ndynamodb =\n"
            f"  endpoint_url = {server.url}\n"
        )
        open_client(None).call("GetItem", KEY)
        (tmp_path / "config").write_text(f"[default]\nendpoint_url = {server.url}\n")
        open_client(None).call("GetItem", KEY)
    assert len(server.seen) == 5


def test_importing_and_calling_a_local_server_does_not_need_botocore():
    code = """
import sys
import zae_limiter
from zae_limiter import SyncRepository
SyncRepository.open(url="memory://").close()
assert not {"aiohttp", "botocore", "ssl"} & sys.modules.keys(), "at import"
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
client = DynamoClient("some-table-name", endpoint_url=sys.argv[1])
client.call("GetItem", {})
assert not {"aiohttp", "asyncio", "botocore"} & sys.modules.keys(), "at a call"
"""
    with Script(scripted.answer()) as server:
        subprocess.run([sys.executable, "-c", code, server.url], check=True)


def test_keys_and_the_endpoint_of_a_standard_region_do_not_need_botocore(tmp_path):
    code = """
import sys
from zae_limiter.transport.aws_config import AwsConfig
for region in ("us-east-1", "eu-central-2", "ap-southeast-7", "mx-central-1"):
    endpoint, signed_for = AwsConfig().endpoint_and_region(None, region)
    assert endpoint.url == f"https://dynamodb.{region}.amazonaws.com/", endpoint.url
    assert signed_for == region
assert AwsConfig().credentials(is_local=False)[0].access_key == "key"
assert "botocore" not in sys.modules
"""
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    environment = {**keys, "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


# --- what changes


def test_an_expired_token_is_renewed_from_where_it_came(open_client, without_keys, tmp_path):
    shared_file(tmp_path, "AKIAOLD")
    with Script(taking("AKIAOLD")) as server:
        client = open_client(server.url)
        client.call("UpdateItem", KEY)
        server.steps = [taking("AKIANEW")]
        shared_file(tmp_path, "AKIANEW")
        assert client.call("UpdateItem", KEY) == scripted.OK
        assert client.call("UpdateItem", KEY) == scripted.OK
    assert access_keys(server) == ["AKIAOLD", "AKIAOLD", "AKIANEW", "AKIANEW"]


def test_many_calls_at_once_survive_a_change(open_client, monkeypatch):
    with Script(taking("AKIATESTTESTTESTTEST")) as server:
        client = open_client(server.url)
        client.call("UpdateItem", KEY)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANEW")
        server.steps = [taking("AKIANEW")]
        assert client.call_many("UpdateItem", [KEY] * 50) == [scripted.OK] * 50


@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
def test_credentials_that_cannot_be_renewed_are_a_refusal(open_client, code):
    with Script(refuse(code)) as server:
        client = open_client(server.url)
        for _ in range(3):
            with pytest.raises(PermissionDenied, match="renew the AWS credentials"):
                client.call("UpdateItem", KEY)
    assert len(server.seen) == 3


def test_new_credentials_that_are_refused_too_are_a_refusal(open_client, without_keys, tmp_path):
    shared_file(tmp_path, "AKIAOLD")
    with Script(taking("AKIAOLD")) as server:
        client = open_client(server.url)
        client.call("UpdateItem", KEY)
        server.steps = [taking()]
        shared_file(tmp_path, "AKIANEW")
        with pytest.raises(PermissionDenied):
            client.call("UpdateItem", KEY)
    assert access_keys(server) == ["AKIAOLD", "AKIAOLD", "AKIANEW"]


@pytest.mark.real_time
def test_credentials_are_renewed_before_they_run_out_without_a_wait(
    open_client, credential_process
):
    """botocore renews what lasts less than ten minutes; these last five."""
    count = credential_process()
    with Script(scripted.answer()) as server:
        client = open_client(server.url)
        client.call("GetItem", KEY)
        credential_process(seconds=2.0)
        first = int(count.read_text())
        longest = 0.0
        deadline = time.monotonic() + 20
        with Stopwatch() as watch:
            while len(set(access_keys(server))) < 2 and time.monotonic() < deadline:
                start = time.monotonic()
                client.call("GetItem", KEY)
                longest = max(longest, time.monotonic() - start)
                time.sleep(0.05)
    assert int(count.read_text()) > first
    assert len(set(access_keys(server))) >= 2
    assert longest < 1 + watch.late_s
    assert all(headers["x-amz-security-token"].startswith("token-") for headers, _ in server.seen)


def test_a_slow_process_is_given_up_in_time_and_used_when_it_is_done(
    open_client, credential_process
):
    credential_process(seconds=0.5)
    with Script(scripted.answer()) as server:
        client = open_client(server.url, request_timeout=0.3)
        refused = pytest.raises(NotSent, match="credentials were not found in time")
        with Stopwatch() as watch, refused:
            client.call("UpdateItem", KEY)
        assert watch.within(0.3)
        assert answered_in_the_end(client) == scripted.OK


def answered_in_the_end(client):
    """Call until the credentials have come; a busy machine starts their process late."""
    for _ in range(100):
        try:
            return client.call("UpdateItem", KEY)
        except NotSent:
            time.sleep(0.1)
    raise AssertionError("the process of the credentials was never waited for")


def test_a_slow_first_lookup_does_not_use_up_the_time_of_a_call(credential_process):
    """Opening a store waits for the first credentials; calls have their own time after that."""
    credential_process(seconds=1.5)
    table = f"test-{secrets.token_hex(8)}"
    with SyncRepository.open(
        url=store_url(table, shared_endpoint()), provision="table", request_timeout=1.0
    ) as repository:
        repository.delete_table()


def test_a_slow_first_lookup_does_not_use_up_the_time_of_a_migration(credential_process):
    credential_process(seconds=1.5)
    url = store_url(f"test-{secrets.token_hex(8)}", shared_endpoint())
    with pytest.raises(InfrastructureNotFoundError):
        SyncRepository.builder().url(url).request_timeout(1.0).migrate()


@pytest.mark.fast("create_table")
@pytest.mark.parametrize("what", ["create_table", "export"])
def test_a_slow_first_lookup_does_not_use_up_the_time_of_other_clients(
    credential_process, what, capsys
):
    """These clients have the usual time for a call, which is 2 s."""
    credential_process(seconds=2.5)
    table = f"test-{secrets.token_hex(8)}"
    if what == "create_table":
        with pytest.deprecated_call():
            repository = SyncRepository(table, endpoint_url=shared_endpoint())
        repository.create_table()
        repository.close()
        return
    words = ["limits", "export", "--from-table", table, "--form", "composite"]
    assert run(app, [*words, "--endpoint-url", shared_endpoint()]) == 1
    assert "credentials" not in capsys.readouterr().err


def test_a_process_that_fails_is_a_refusal_that_quotes_nothing(open_client, credential_process):
    credential_process(code="import sys; sys.exit('the secret is HUSH')")
    with Script(scripted.answer()) as server, pytest.raises(PermissionDenied) as caught:
        open_client(server.url).call("UpdateItem", KEY)
    assert "HUSH" not in str(caught.value)
    assert "HUSH" not in repr(vars(caught.value))
