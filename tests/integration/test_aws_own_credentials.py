"""The process's own credentials: the role of its service account, by IRSA or Pod Identity, and the errors without them.
A region that refuses them proves nothing about the others."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from standins.aws import AwsFault
from tests.canned_server import canned_server
from tests.engine.waiting import until
from tests.hostile_server import MEBIBYTE, hostile_server, memory_below
from tests.integration.aws_identities import OTHER, OWN, REGION, AwsIdentityFixture, arn, own_credentials, refusal
from workers.handlers.response_size import LARGEST
from workers.providers.aws.client.sessions import VALID_FOR, SdkSessions
from workers.providers.aws.errors import NoAccess

WEB_IDENTITY = "sts.AssumeRoleWithWebIdentity"
CHINA = "cn-north-1"


@pytest.fixture
def irsa(identities: AwsIdentityFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A token of the service account and its role, and nothing else; returns the path of the token."""
    own_credentials(monkeypatch, tmp_path, None)
    token = tmp_path / "token"
    token.write_text("signed by the cluster")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", arn(OTHER, "worker"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", identities.aws.address)
    return token


# ---- IRSA


@pytest.mark.usefixtures("irsa")
async def test_the_role_of_the_service_account_is_used(identities: AwsIdentityFixture) -> None:
    who = await identities.reach.caller_identity(identities.whose())
    assert who.account == OTHER
    assert ":assumed-role/worker/" in who.arn


@pytest.mark.usefixtures("irsa")
@pytest.mark.parametrize("what", ["close", "throttle", "deny"])
async def test_the_process_requests_its_own_credentials_once(identities: AwsIdentityFixture, what: Any) -> None:
    await identities.aws.set_faults(AwsFault(what=what, action=WEB_IDENTITY))
    said = await refusal(identities)
    assert "can't be had: IRSA (AWS_WEB_IDENTITY_TOKEN_FILE" in said
    assert ("sts:AssumeRoleWithWebIdentity: AccessDenied" in said) == (what == "deny")
    assert len(await identities.asked(WEB_IDENTITY)) == 1


@pytest.mark.long
@pytest.mark.usefixtures("irsa")
async def test_a_key_that_does_not_come_is_not_waited_for_for_ever(identities: AwsIdentityFixture) -> None:
    await identities.aws.set_faults(AwsFault(what="slow", action=WEB_IDENTITY, seconds=6))
    async with SdkSessions(timeout=timedelta(seconds=2)) as sessions:
        asking = asyncio.ensure_future(sessions.own_credentials(REGION))

        async def asked() -> bool:
            # On a busy machine the time may be over before the stand-in has the request.
            return asking.done() or bool(await identities.aws.delayed())

        await until("the stand-in has the question", asked)
        with pytest.raises(NoAccess, match=r"IRSA .*NoAnswerInTime"):
            await asking

    async def over() -> bool:
        return not await identities.aws.delayed()

    # Else it would be counted in the next test.
    await until("the stand-in is done with it", over)


async def test_a_token_that_is_not_there_is_a_matter_of_irsa(
    identities: AwsIdentityFixture, irsa: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", f"{irsa}-that-is-missing")
    said = await refusal(identities)
    assert "IRSA (AWS_WEB_IDENTITY_TOKEN_FILE" in said
    assert not await identities.asked()


# ---- Pod Identity


def given(account: str) -> bytes:
    """The response of the agent on the node."""
    key = {
        "AccessKeyId": f"ASIA{account}",
        "SecretAccessKey": "of the agent",
        "Token": "a session",
        "Expiration": "2099-01-01T00:00:00Z",
    }
    return answered(200, json.dumps(key).encode())


def answered(status: int, body: bytes) -> bytes:
    head = b"HTTP/1.1 %d Said\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def pod_identity(monkeypatch: pytest.MonkeyPatch, folder: Path, port: int) -> None:
    own_credentials(monkeypatch, folder, None)
    token = folder / "pod-token"
    token.write_text("signed for the agent")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{port}/v1/credentials")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))


async def test_the_key_that_pod_identity_gives_signs_our_calls(
    identities: AwsIdentityFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with canned_server([[given(OTHER)]]) as (agent, port):
        pod_identity(monkeypatch, tmp_path, port)
        client = await identities.reach.client(identities.whose())
        assert client.account == OTHER
        await client.call("ec2", "describe_vpcs", MaxResults=100)
    (request,) = agent.requests
    assert request.startswith(b"GET /v1/credentials ")
    assert b"Authorization: signed for the agent\r\n" in request
    asked = await identities.asked()
    assert [one.action for one in asked] == ["sts.GetCallerIdentity", "ec2.DescribeVpcs"]
    assert {(one.key, one.account) for one in asked} == {(f"ASIA{OTHER}", OTHER)}


async def test_what_pod_identity_refuses_is_said_of_it_and_shows_no_secret(
    identities: AwsIdentityFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = answered(400, b"no association for signed for the agent")
    async with canned_server([[refused] * 9] * 9) as (agent, port):
        pod_identity(monkeypatch, tmp_path, port)
        said = await refusal(identities)
        assert "can't be had: Pod Identity (AWS_CONTAINER_CREDENTIALS_FULL_URI)" in said
        assert "AssumeRole" not in said
        assert "signed for" not in said
        assert agent.requests
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "missing"))
        identities.clock.now += 60
        assert "Pod Identity" in await refusal(identities)


async def test_a_key_of_pod_identity_without_an_end_is_not_read_to_its_end(
    identities: AwsIdentityFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with hostile_server() as agent:
        pod_identity(monkeypatch, tmp_path, int(agent.url.rpartition(":")[2]))
        with memory_below(LARGEST + 64 * MEBIBYTE):
            said = await refusal(identities)
    assert "can't be had: Pod Identity (AWS_CONTAINER_CREDENTIALS_FULL_URI): AnswerTooLarge" in said
    assert len(agent.asked) == 1


# ---- files


@pytest.mark.parametrize("variable", ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"])
async def test_a_file_that_can_not_be_read_is_said_to_be_the_matter(
    identities: AwsIdentityFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    own_credentials(monkeypatch, tmp_path, None)
    file = tmp_path / "broken"
    file.write_text("aws_access_key_id = of no section\n")
    monkeypatch.setenv(variable, str(file))
    said = await refusal(identities)
    assert str(file) in said
    assert "AssumeRole" not in said


# ---- regions that refuse them


async def refused_in_china(identities: AwsIdentityFixture) -> None:
    unknown = AwsFault(what="error", code="InvalidClientTokenId", status=403, region=CHINA)
    await identities.aws.set_faults(unknown)


async def asked_for_keys(identities: AwsIdentityFixture) -> int:
    return len(await identities.asked(WEB_IDENTITY))


@pytest.mark.usefixtures("irsa")
async def test_credentials_that_another_partition_refuses_are_kept(identities: AwsIdentityFixture) -> None:
    await refused_in_china(identities)
    client = await identities.reach.client(identities.whose())
    for _ in range(5):
        with pytest.raises(NoAccess) as refused:
            await identities.reach.client(identities.whose(region=CHINA))
        assert f"{REGION} accepts those of this process" in str(refused.value)
        assert CHINA in str(refused.value)
        await client.call("ec2", "describe_vpcs", MaxResults=100)
        identities.clock.now += 6
    assert await asked_for_keys(identities) == 1
    assert {one.status for one in await identities.asked("ec2.DescribeVpcs")} == {200}


@pytest.mark.usefixtures("irsa")
async def test_a_region_that_refuses_the_credentials_does_not_delay_the_others(identities: AwsIdentityFixture) -> None:
    """Also if it is the first region that is called."""
    await refused_in_china(identities)
    with pytest.raises(NoAccess, match="InvalidClientTokenId"):
        await identities.reach.client(identities.whose(region=CHINA))
    assert (await identities.reach.client(identities.whose())).account == OTHER


@pytest.mark.usefixtures("irsa")
async def test_keys_are_looked_for_anew_where_they_were_good_before_or_for_long_nowhere(
    identities: AwsIdentityFixture,
) -> None:
    await identities.reach.client(identities.whose())
    await refused_in_china(identities)
    identities.clock.now += VALID_FOR.total_seconds() + 1
    with pytest.raises(NoAccess, match="InvalidClientTokenId"):
        await identities.reach.client(identities.whose(region=CHINA))
    await identities.aws.set_faults()
    client = await identities.reach.client(identities.whose())
    assert await asked_for_keys(identities) == 2
    await identities.aws.set_faults(AwsFault(what="error", code="ExpiredToken", status=403, action="ec2.*", times=1))
    with pytest.raises(NoAccess, match="ExpiredToken"):
        await client.call("ec2", "describe_vpcs", MaxResults=100)
    await client.call("ec2", "describe_vpcs", MaxResults=100)
    assert await asked_for_keys(identities) == 3


@pytest.mark.usefixtures("irsa")
async def test_a_role_of_another_partition_does_not_drop_the_credentials_either(identities: AwsIdentityFixture) -> None:
    await identities.reach.client(identities.whose())
    await refused_in_china(identities)
    role = identities.role(arn(OWN, "r", "aws-cn"))
    with pytest.raises(NoAccess, match="can't assume"):
        await identities.reach.client(identities.whose(role, CHINA))
    await identities.reach.client(identities.whose())
    assert await asked_for_keys(identities) == 1
