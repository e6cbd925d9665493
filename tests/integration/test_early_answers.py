"""Answers of API servers, AWS and Azure that arrive before their requests, read by the real clients."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.canned_calls import calls_to
from tests.early_server import EarlyServer, early_server, http_answer
from workers.providers.aws.client.credentials import AwsCredentials
from workers.providers.aws.client.sessions import SdkSessions
from workers.providers.azure.call_meters import BudgetCallMeter
from workers.providers.azure.calls import AzureCalls
from workers.providers.azure.clients import AzureClients
from workers.providers.azure.kinds import NIC
from workers.providers.azure.model import AzureScope

WHERE = AzureScope(subscription="11111111-1111-1111-1111-111111111111", group="g", region="westeurope")
NIC_ID = f"/subscriptions/{WHERE.subscription}/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/nic-1"
NIC_BODY = {
    "id": NIC_ID,
    "name": "nic-1",
    "location": "westeurope",
    "properties": {"resourceGuid": "lives"},
    "tags": {},
}
GROUPS = b"<r><requestId>1</requestId><securityGroupInfo><item><groupId>lives</groupId></item></securityGroupInfo></r>"
NO_GROUP = b"<Response><Errors><Error><Code>InvalidGroup.NotFound</Code></Error></Errors></Response>"
ANSWERS = {
    "Kubernetes": (http_answer(200, b'{"is": "lives"}'), http_answer(404, b'{"kind": "Status", "reason": "NotFound"}')),
    "AWS": (http_answer(200, GROUPS, "text/xml"), http_answer(400, NO_GROUP, "text/xml")),
    "Azure": (
        http_answer(200, json.dumps(NIC_BODY).encode()),
        http_answer(404, b'{"error": {"code": "ResourceNotFound", "message": "none"}}'),
    ),
}
each_client = pytest.mark.parametrize("whose", ANSWERS)
Ask = Callable[[], Awaitable[object]]


@asynccontextmanager
async def client(whose: str, url: str) -> AsyncIterator[Ask]:
    match whose:
        case "Kubernetes":
            calls = calls_to(url)
            try:
                yield lambda: calls.call("GET", "/x")
            finally:
                await calls.aclose()
        case "AWS":
            key, named = AwsCredentials("AKIA1", "s"), {"GroupIds": ["sg-1"]}
            async with SdkSessions(url) as sessions:
                yield lambda: sessions.call(key, "eu-west-1", "ec2", "describe_security_groups", named)
        case _:
            async with AzureClients(url) as clients:
                azure = AzureCalls(clients, WHERE, BudgetCallMeter(WHERE, None), 5)
                yield lambda: azure.read(NIC, "nic-1")


@asynccontextmanager
async def talkative(whose: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[EarlyServer, Ask]]:
    async with early_server(ANSWERS[whose][0]) as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "any")
        async with client(whose, server.url) as ask:
            yield server, ask


async def lives(ask: Ask) -> bool:
    return "lives" in repr(await ask())


@each_client
async def test_a_404_sent_on_an_idle_connection_is_not_the_answer_to_the_next_call(
    whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talkative(whose, monkeypatch) as (server, ask):
        assert await lives(ask)
        assert await lives(ask)
        kept = server.connections
        closed = await server.speak(ANSWERS[whose][1])
        assert await lives(ask)
        assert closed
        assert (server.requests, server.connections) == (3, kept + 1)


@each_client
async def test_an_absence_in_one_piece_with_an_answer_is_not_the_answer_to_the_next_call(
    whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talkative(whose, monkeypatch) as (server, ask):
        server.with_it = ANSWERS[whose][1]
        for _ in range(3):
            assert await lives(ask)


@each_client
async def test_answers_without_an_end_on_an_idle_connection_are_not_collected_but_end_it(
    whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talkative(whose, monkeypatch) as (server, ask):
        assert await lives(ask)
        most = 4 * 1024 * 1024
        assert await server.flood(http_answer(200, b"") * 500, most) < most
        assert await lives(ask)
