"""The process's own credentials: the role of its service account, by IRSA or by Pod Identity, and what is said when
they can't be had. A region that does not know them says nothing of the others."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.local.aws import Fault
from tests.canned_server import canned_server
from tests.engine.waiting import until
from tests.hostile_server import MEBIBYTE, hostile_server, memory_below
from tests.integration.aws_access import OTHER, OWN, REGION, Stage, arn, own_credentials, refusal
from workers.handlers.answer_size import LARGEST
from workers.handlers.aws.errors import NoAccess
from workers.handlers.aws.sessions import GOOD, Sessions

WEB_IDENTITY = "sts.AssumeRoleWithWebIdentity"
CHINA = "cn-north-1"


@pytest.fixture
def irsa(stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A token of the service account and the role that it is for, and nothing else; where the token is."""
    own_credentials(monkeypatch, tmp_path, None)
    token = tmp_path / "token"
    token.write_text("signed by the cluster")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", arn(OTHER, "worker"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", stage.aws.address)
    return token


# ---- IRSA


@pytest.mark.usefixtures("irsa")
async def test_the_role_of_the_service_account_is_used(stage: Stage) -> None:
    who = await stage.reach.whoami(stage.whose())
    assert who.account == OTHER
    assert ":assumed-role/worker/" in who.arn


@pytest.mark.usefixtures("irsa")
@pytest.mark.parametrize("what", ["close", "throttle", "deny"])
async def test_for_a_key_of_its_own_the_process_asks_once_and_no_more(stage: Stage, what: Any) -> None:
    await stage.aws.trouble(Fault(what=what, action=WEB_IDENTITY))
    said = await refusal(stage)
    assert "can't be had: IRSA (AWS_WEB_IDENTITY_TOKEN_FILE" in said
    assert ("sts:AssumeRoleWithWebIdentity: AccessDenied" in said) == (what == "deny")
    assert len(await stage.asked(WEB_IDENTITY)) == 1


@pytest.mark.long
@pytest.mark.usefixtures("irsa")
async def test_a_key_that_does_not_come_is_not_waited_for_for_ever(stage: Stage) -> None:
    await stage.aws.trouble(Fault(what="slow", action=WEB_IDENTITY, seconds=6))
    async with Sessions(within=timedelta(seconds=2)) as sessions:
        asking = asyncio.ensure_future(sessions.own(REGION))

        async def asked() -> bool:
            # On a busy machine the time may be over before the stand-in has the question.
            return asking.done() or bool(await stage.aws.delayed())

        await until("the stand-in has the question", asked)
        with pytest.raises(NoAccess, match=r"IRSA .*NoAnswerInTime"):
            await asking

    async def over() -> bool:
        return not await stage.aws.delayed()

    # Else it would be counted among what the next test asks.
    await until("the stand-in is done with it", over)


async def test_a_token_that_is_not_there_is_a_matter_of_irsa(
    stage: Stage, irsa: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", f"{irsa}-that-is-missing")
    said = await refusal(stage)
    assert "IRSA (AWS_WEB_IDENTITY_TOKEN_FILE" in said
    assert not await stage.asked()


# ---- Pod Identity


def given(account: str) -> bytes:
    """What the agent on the node answers."""
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
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with canned_server([[given(OTHER)]]) as (agent, port):
        pod_identity(monkeypatch, tmp_path, port)
        calls = await stage.reach.calls(stage.whose())
        assert calls.account == OTHER
        await calls.call("ec2", "describe_vpcs", MaxResults=100)
    (request,) = agent.requests
    assert request.startswith(b"GET /v1/credentials ")
    assert b"Authorization: signed for the agent\r\n" in request
    asked = await stage.asked()
    assert [one.action for one in asked] == ["sts.GetCallerIdentity", "ec2.DescribeVpcs"]
    assert {(one.key, one.account) for one in asked} == {(f"ASIA{OTHER}", OTHER)}


async def test_what_pod_identity_refuses_is_said_of_it_and_shows_no_secret(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = answered(400, b"no association for signed for the agent")
    async with canned_server([[refused] * 9] * 9) as (agent, port):
        pod_identity(monkeypatch, tmp_path, port)
        said = await refusal(stage)
        assert "can't be had: Pod Identity (AWS_CONTAINER_CREDENTIALS_FULL_URI)" in said
        assert "AssumeRole" not in said
        assert "signed for" not in said
        assert agent.requests
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "missing"))
        stage.clock.now += 60
        assert "Pod Identity" in await refusal(stage)


async def test_a_key_of_pod_identity_without_an_end_is_not_read_to_its_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with hostile_server() as agent:
        pod_identity(monkeypatch, tmp_path, int(agent.url.rpartition(":")[2]))
        with memory_below(LARGEST + 64 * MEBIBYTE):
            said = await refusal(stage)
    assert "can't be had: Pod Identity (AWS_CONTAINER_CREDENTIALS_FULL_URI): AnswerTooLarge" in said
    assert len(agent.asked) == 1


# ---- files


@pytest.mark.parametrize("variable", ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"])
async def test_a_file_that_can_not_be_read_is_said_to_be_the_matter(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    own_credentials(monkeypatch, tmp_path, None)
    file = tmp_path / "broken"
    file.write_text("aws_access_key_id = of no section\n")
    monkeypatch.setenv(variable, str(file))
    said = await refusal(stage)
    assert str(file) in said
    assert "AssumeRole" not in said


# ---- regions that do not know them


async def refused_in_china(stage: Stage) -> None:
    unknown = Fault(what="error", code="InvalidClientTokenId", status=403, region=CHINA)
    await stage.aws.trouble(unknown)


async def asked_for_keys(stage: Stage) -> int:
    return len(await stage.asked(WEB_IDENTITY))


@pytest.mark.usefixtures("irsa")
async def test_keys_that_another_partition_refuses_are_kept_for_those_who_use_them(stage: Stage) -> None:
    await refused_in_china(stage)
    calls = await stage.reach.calls(stage.whose())
    for _ in range(5):
        with pytest.raises(NoAccess) as refused:
            await stage.reach.calls(stage.whose(region=CHINA))
        assert f"{REGION} accepts those of this process" in str(refused.value)
        assert CHINA in str(refused.value)
        await calls.call("ec2", "describe_vpcs", MaxResults=100)
        stage.clock.now += 6
    assert await asked_for_keys(stage) == 1
    assert {one.status for one in await stage.asked("ec2.DescribeVpcs")} == {200}


@pytest.mark.usefixtures("irsa")
async def test_a_region_that_refuses_who_we_are_keeps_nobody_else_waiting(stage: Stage) -> None:
    """Also where it is the first that is asked."""
    await refused_in_china(stage)
    with pytest.raises(NoAccess, match="InvalidClientTokenId"):
        await stage.reach.calls(stage.whose(region=CHINA))
    assert (await stage.reach.calls(stage.whose())).account == OTHER


@pytest.mark.usefixtures("irsa")
async def test_keys_are_looked_for_anew_where_they_were_good_before_or_for_long_nowhere(stage: Stage) -> None:
    await stage.reach.calls(stage.whose())
    await refused_in_china(stage)
    stage.clock.now += GOOD.total_seconds() + 1
    with pytest.raises(NoAccess, match="InvalidClientTokenId"):
        await stage.reach.calls(stage.whose(region=CHINA))
    await stage.aws.trouble()
    calls = await stage.reach.calls(stage.whose())
    assert await asked_for_keys(stage) == 2
    await stage.aws.trouble(Fault(what="error", code="ExpiredToken", status=403, action="ec2.*", times=1))
    with pytest.raises(NoAccess, match="ExpiredToken"):
        await calls.call("ec2", "describe_vpcs", MaxResults=100)
    await calls.call("ec2", "describe_vpcs", MaxResults=100)
    assert await asked_for_keys(stage) == 3


@pytest.mark.usefixtures("irsa")
async def test_a_role_that_another_partition_has_costs_nobody_the_keys_either(stage: Stage) -> None:
    await stage.reach.calls(stage.whose())
    await refused_in_china(stage)
    role = stage.role(arn(OWN, "r", "aws-cn"))
    with pytest.raises(NoAccess, match="can't assume"):
        await stage.reach.calls(stage.whose(role, CHINA))
    await stage.reach.calls(stage.whose())
    assert await asked_for_keys(stage) == 1
