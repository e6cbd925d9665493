"""Responses of AWS and Azure that would fill the memory of a worker: the real SDK clients refuse them with an error."""

import logging
from collections.abc import AsyncIterator, Callable

import pytest

from tests.hostile_server import MEBIBYTE, Body, HostileServer, hostile_server, memory_below
from workers.collectors.karpenter_azure.listing import AzureLister, ListingMethod
from workers.handlers.response_size import LARGEST
from workers.providers.aws.client.credentials import AwsCredentials
from workers.providers.aws.client.sessions import SdkSessions
from workers.providers.aws.errors import AwsError
from workers.providers.azure.call_meters import BudgetCallMeter
from workers.providers.azure.calls import AzureCalls
from workers.providers.azure.clients import AzureClients
from workers.providers.azure.errors import AzureError
from workers.providers.azure.kinds import NIC
from workers.providers.azure.model import AzureScope

BOUND = LARGEST + 64 * MEBIBYTE
"""What is kept of one answer, and room for the clients; each of these answers would take 400 MiB or more."""
WHERE = AzureScope(subscription="11111111-1111-1111-1111-111111111111", group="g", region="westeurope")

CODES: list[tuple[Body, str]] = [
    ("bomb", "AnswerEncoded"),
    ("endless", "AnswerTooLarge"),
    ("announced", "AnswerTooLarge"),
]
each_body = pytest.mark.parametrize(("body", "code"), CODES, ids=[str(body) for body, _ in CODES])
LONG = pytest.mark.long


@pytest.fixture
async def hostile() -> AsyncIterator[HostileServer]:
    async with hostile_server() as made:
        yield made


# ---- AWS


async def fault_of_aws(hostile: HostileServer, service: str, operation: str) -> AwsError:
    async with SdkSessions(hostile.url) as sessions:
        # The models of the service are large, and not what this is about.
        await sessions.address(AwsCredentials("AKIA1", "s"), "eu-west-1", service)
        with memory_below(BOUND), pytest.raises(AwsError) as failed:
            await sessions.call(AwsCredentials("AKIA1", "s"), "eu-west-1", service, operation, {})
    return failed.value


@each_body
@pytest.mark.parametrize(
    ("service", "operation", "action"),
    [
        ("ec2", "describe_network_interfaces", "ec2:DescribeNetworkInterfaces"),
        pytest.param("resourcegroupstaggingapi", "get_resources", "tag:GetResources", marks=LONG),
    ],
)
async def test_an_answer_of_aws_that_would_fill_memory_is_unreadable(
    hostile: HostileServer, body: Body, code: str, service: str, operation: str, action: str
) -> None:
    hostile.body = body
    found = await fault_of_aws(hostile, service, operation)
    assert (found.what, found.code, found.action) == ("unreadable", code, action)
    assert action in str(found)
    assert "16 MiB" in str(found) if code == "AnswerTooLarge" else "gzip" in str(found)
    assert [one.headers["Accept-Encoding"] for one in hostile.asked] == ["identity"]


@LONG
@each_body
@pytest.mark.parametrize("status", [404, 503])
async def test_an_error_of_aws_that_would_fill_memory_is_neither_absence_nor_throttling(
    hostile: HostileServer, body: Body, code: str, status: int
) -> None:
    hostile.body, hostile.status, hostile.content_type = body, status, "text/xml"
    found = await fault_of_aws(hostile, "ec2", "describe_vpcs")
    assert (found.what, found.code) == ("unreadable", code)
    assert f"status {status}" in str(found)


def with_entities() -> str:
    head = f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY e "{"x" * 30_000}">]>'
    # The parser refuses what grows by more than a hundred, from the start on.
    return head + "<r>" + f"<a>&e;{' ' * 320}</a>" * 9_000 + "</r>"


def with_attributes() -> str:
    head = f'<?xml version="1.0"?><!-- first --><!DOCTYPE r [<!ATTLIST b x CDATA "{"x" * 1_000_000}">]>'
    return head + "<r>" + "<b/>" * 1_000 + "</r>"


@pytest.mark.parametrize(
    ("markup", "encoding"),
    [
        pytest.param(with_entities, "utf-8", marks=LONG),
        (with_attributes, "utf-8"),
        (with_attributes, "utf-8-sig"),
        (with_attributes, "utf-16"),
        pytest.param(with_attributes, "utf-16-le", marks=LONG),
        pytest.param(with_attributes, "utf-16-be", marks=LONG),
    ],
)
async def test_markup_of_aws_that_grows_when_it_is_parsed_is_no_answer_of_aws(
    hostile: HostileServer, markup: Callable[[], str], encoding: str
) -> None:
    hostile.body, hostile.content_type = markup().encode(encoding), "text/xml"
    found = await fault_of_aws(hostile, "ec2", "describe_vpcs")
    assert (found.what, found.code, found.action) == ("unreadable", "NoAnswerOfAws", "ec2:DescribeVpcs")


# ---- Azure


@pytest.fixture
async def calls(hostile: HostileServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AzureCalls]:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{hostile.url}/token")
    monkeypatch.setenv("IDENTITY_HEADER", "any")
    async with AzureClients(hostile.url) as clients:
        yield AzureCalls(clients, WHERE, BudgetCallMeter(WHERE, None), 0.25)


async def ask_azure(calls: AzureCalls, call: str) -> None:
    match call:
        case "GET":
            await calls.read(NIC, "nic-1")
        case "DELETE":
            await calls.delete(NIC, "nic-1")
        case _:
            way: ListingMethod = "graph" if call == "Resource Graph" else "provider"
            async for _page in AzureLister(lambda _: calls).pages(NIC, WHERE, "c", way):
                pass


async def fault_of_azure(calls: AzureCalls, call: str) -> AzureError:
    with memory_below(BOUND), pytest.raises(AzureError) as failed:
        await ask_azure(calls, call)
    return failed.value


@each_body
@pytest.mark.parametrize(
    "call", ["GET", *(pytest.param(one, marks=LONG) for one in ("DELETE", "list", "Resource Graph"))]
)
async def test_an_answer_of_azure_that_would_fill_memory_is_unreadable(
    hostile: HostileServer, calls: AzureCalls, body: Body, code: str, call: str
) -> None:
    hostile.body = body
    found = await fault_of_azure(calls, call)
    assert (found.what, found.code) == ("unreadable", code)
    assert call in str(found)
    assert "16 MiB" in str(found) if code == "AnswerTooLarge" else "gzip" in str(found)
    assert [one.headers["Accept-Encoding"] for one in hostile.asked] == ["identity"]


@LONG
@each_body
@pytest.mark.parametrize("call", ["GET", "DELETE"])
@pytest.mark.parametrize("status", [404, 429])
async def test_an_error_of_azure_that_would_fill_memory_is_neither_absence_nor_throttling(
    hostile: HostileServer, calls: AzureCalls, body: Body, code: str, call: str, status: int
) -> None:
    hostile.body, hostile.status = body, status
    found = await fault_of_azure(calls, call)
    assert (found.what, found.code) == ("unreadable", code)
    assert f"status {status}" in str(found)


@LONG
@each_body
async def test_a_token_that_would_fill_memory_is_no_token(
    hostile: HostileServer, calls: AzureCalls, caplog: pytest.LogCaptureFixture, body: Body, code: str
) -> None:
    # A command that ran in this process may have left another level.
    caplog.set_level(logging.WARNING)
    hostile.body, hostile.good_tokens = body, False
    found = await fault_of_azure(calls, "GET")
    assert (found.what, found.code) == ("credentials", "NoCredentials")
    # The SDK tells there what became of each kind of credential.
    assert ("16 MiB" if code == "AnswerTooLarge" else "gzip") in caplog.text
    assert {one.path for one in hostile.asked} == {"/token"}
