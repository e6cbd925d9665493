"""Errors that the real SDK clients raise against the stand-in: each is translated, and none contains a secret."""

import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from azure.core.exceptions import AzureError as SdkError

from service.contract import Blocked
from service.masking import mask_text
from standins.azure import GROUP, AzureFault, BucketSize
from tests.azure import ArmClients, arm_on
from tests.integration.azure_removal import NAME, AzureRemovalFixture, azure, own_api, removing
from workers.providers.azure.call_meters import BudgetCallMeter
from workers.providers.azure.calls import AzureCalls
from workers.providers.azure.clients import AzureClients
from workers.providers.azure.errors import AzureError, translated
from workers.providers.azure.kinds import NIC
from workers.providers.azure.model import AzureScope

__all__ = ["azure", "own_api", "removing"]


@pytest.fixture
async def arm(removing: AzureRemovalFixture) -> AsyncIterator[ArmClients]:
    async with arm_on(removing.azure, subscription=removing.subscription) as made:
        yield made


async def raised(act: Awaitable[Any]) -> AzureError:
    with pytest.raises(SdkError) as caught:
        await act
    found = translated(caught.value, "it")
    assert found is not None
    return found


async def test_what_is_not_there_is_gone_or_nowhere(removing: AzureRemovalFixture, arm: ArmClients) -> None:
    assert (await raised(arm.get("aks-none"))).what == "gone"
    assert (await raised(arm.get(NAME, group="none"))).what == "nowhere"
    async with arm_on(removing.azure, subscription="0aaaaaaa-0000-4000-8000-00000000dead") as lost:
        assert (await raised(lost.get(NAME))).what == "nowhere"


async def test_reasons_that_block_a_delete_are_distinguished(removing: AzureRemovalFixture, arm: ArmClients) -> None:
    await removing.nic("aks-r")
    await removing.azure.reserve("aks-r", seconds=33, subscription=removing.subscription)
    error = await raised(arm.delete("aks-r"))
    assert (error.what, error.after) == ("reserved", timedelta(seconds=33))
    await removing.nic("aks-u", vm="v")
    assert (await raised(arm.delete("aks-u"))).what == "used"
    await removing.nic("aks-b", state="Updating")
    assert (await raised(arm.delete("aks-b"))).what == "busy"
    await removing.ip("aks-i", nic="aks-u")
    assert (await raised(arm.delete_ip("aks-i"))).what == "used"
    await removing.disk("aks-d", vm="v")
    assert (await raised(arm.delete_disk("aks-d"))).what == "used"
    await removing.vm("aks-v")
    await removing.azure.behave(nested=["aks-v"], locks=["aks-l"])
    assert (await raised(arm.delete_vm("aks-v"))).what == "used"
    await removing.nic("aks-l")
    assert (await raised(arm.delete("aks-l"))).what == "locked"


async def test_every_429_is_distinguished(removing: AzureRemovalFixture, arm: ArmClients) -> None:
    await removing.nic()
    await removing.vm()
    await removing.azure.set_faults(AzureFault(what="locked", operation="nic.delete"))
    lock = await raised(arm.delete(NAME))
    assert (lock.what, lock.after) == ("busy", timedelta(seconds=11))
    await removing.azure.set_faults(AzureFault(what="throttle"))
    network, compute, read = (
        await raised(arm.delete(NAME)), await raised(arm.delete_vm(NAME)), await raised(arm.get(NAME))
    )  # fmt: skip
    assert [(one.what, one.layer) for one in (network, compute, read)] == [
        ("throttled", "provider"), ("throttled", "provider"), ("throttled", "arm"),
    ]  # fmt: skip
    assert (network.after, compute.after, read.after) == (None, timedelta(minutes=1), timedelta(seconds=1))
    graph = await raised(arm.query("Resources", removing.subscription))
    assert (graph.what, graph.code, graph.after) == ("throttled", "RateLimiting", timedelta(seconds=5))


async def test_a_machine_that_is_deleted_too_often_has_to_wait_as_long_as_it_is_said(
    removing: AzureRemovalFixture, arm: ArmClients
) -> None:
    await removing.vm()
    await removing.azure.behave(vm_deletes=BucketSize(1, 1 / 1200))
    await arm.delete_vm(NAME)
    error = await raised(arm.delete_vm(NAME))
    assert (error.what, error.code, error.after) == ("throttled", "OperationNotAllowed", timedelta(minutes=20))


async def test_an_operation_that_fails_after_it_was_accepted_is_judged_by_its_code(
    removing: AzureRemovalFixture, arm: ArmClients
) -> None:
    await removing.nic()
    words = "Nic(s) in request is reserved for another Virtual Machine for 20 seconds."
    fault = AzureFault(what="fails", operation="nic.delete", code="NicReservedForAnotherVm", message=words)
    await removing.azure.set_faults(fault)
    poller = await arm.network.network_interfaces.begin_delete(GROUP, NAME, polling_interval=0)
    await removing.azure.set_rate(1000)
    error = await raised(poller.result())
    assert (error.what, error.after) == ("reserved", timedelta(seconds=20))


async def test_denials_and_a_missing_token_are_distinguished(removing: AzureRemovalFixture, arm: ArmClients) -> None:
    await removing.nic()
    for what in ("deny", "deny-assignment"):
        await removing.azure.set_faults(AzureFault(what=what))
        assert (await raised(arm.delete(NAME))).what == "denied"
    await removing.azure.set_faults(
        AzureFault(what="error", code="ExpiredAuthenticationToken", status=401, message="old")
    )
    assert (await raised(arm.get(NAME))).what == "credentials"


async def test_what_is_no_answer_says_nothing(removing: AzureRemovalFixture, arm: ArmClients) -> None:
    await removing.nic()
    for fault, what in (
        (AzureFault(what="close"), "unreachable"),
        (AzureFault(what="html", status=404), "unreadable"),
        (AzureFault(what="html", status=503), "unreadable"),
    ):
        await removing.azure.set_faults(fault)
        assert (await raised(arm.get(NAME))).what == what
    async with AzureClients("http://127.0.0.1:9") as nobody:
        removing.clients = nobody
        with pytest.raises(AzureError) as caught:
            await removing.calls().read(NIC, NAME)
        assert caught.value.what == "unreachable"


async def test_a_call_that_takes_too_long_is_given_up(
    removing: AzureRemovalFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await removing.nic()
    await removing.azure.set_faults(AzureFault(what="gate", operation="nic.get"))
    monkeypatch.setattr("workers.providers.azure.calls.WITHIN", timedelta(milliseconds=200))
    batch = removing.batch(NIC, looks=True)
    error = await removing.one(batch, balances=False)
    assert isinstance(error, AzureError)
    assert (error.what, error.code) == ("unreachable", "NoAnswerInTime")
    assert batch.answered == batch.spent
    await removing.azure.open()


# ---- credentials


@asynccontextmanager
async def identity(monkeypatch: pytest.MonkeyPatch, tokens: int) -> AsyncIterator[None]:
    """An identity that hands out so many tokens, which last a moment, and then says why it has none any more."""
    given = 0

    async def answer(_request: web.BaseRequest) -> web.Response:
        nonlocal given
        given += 1
        if given > tokens:
            said = {"error": "invalid_client", "error_description": "AADSTS7000215: client_secret=hunter2 is wrong"}
            return web.Response(status=400, body=msgspec.json.encode(said), content_type="application/json")
        token = {"access_token": "knell-default", "expires_on": "1", "resource": "any", "token_type": "Bearer"}
        return web.Response(body=msgspec.json.encode(token), content_type="application/json")

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "sesame-hunter2")
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("tokens", [0, 1])
async def test_without_credentials_it_waits_with_words_and_without_secrets(
    removing: AzureRemovalFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tokens: int
) -> None:
    """From the start, or from some moment on."""
    await removing.nic()
    async with identity(monkeypatch, tokens), AzureClients(removing.azure.address) as clients:
        removing.clients = clients
        with caplog.at_level(logging.INFO):
            for _ in range(tokens):
                assert await removing.calls().read(NIC, NAME) is not None
            found = await removing.one(removing.batch(NIC), balances=False)
    # Who gives tokens may be away for a moment: nobody need say that it is back.
    assert isinstance(found, Blocked), found
    assert "NoCredentials" in found.by
    assert "give the process an identity that may act there" in found.by
    assert "hunter2" not in found.by
    # What the libraries log goes out through the same mask.
    assert all("hunter2" not in mask_text(record.getMessage()) for record in caplog.records)
    assert all("knell-default" not in mask_text(record.getMessage()) for record in caplog.records)
    assert await removing.names("nic") == {NAME}


async def test_each_identity_of_the_settings_acts_in_its_own_name(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    client = "0ccccccc-0000-4000-8000-000000000003"
    for client_id in ("", client):
        where = msgspec.structs.replace(removing.where, client_id=client_id)
        removing.since = len(await removing.azure.journal())
        assert await removing.calls(where=where).read(NIC, NAME) is not None
        (one,) = await removing.requests()
        assert one.principal == (client_id or "default")


async def test_where_settings_choose_an_identity_a_secret_in_the_environment_is_not_used(
    removing: AzureRemovalFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to another one, which nobody chose."""
    await removing.nic()
    client, other = "0ccccccc-0000-4000-8000-000000000003", "0ddddddd-0000-4000-8000-000000000004"
    for name, value in (
        ("AZURE_TENANT_ID", other), ("AZURE_CLIENT_ID", other), ("AZURE_CLIENT_SECRET", "hunter2"),
        ("AZURE_AUTHORITY_HOST", "https://127.0.0.1:9"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    where = msgspec.structs.replace(removing.where, client_id=client)
    async with AzureClients(removing.azure.address) as clients:
        removing.clients = clients
        removing.since = len(await removing.azure.journal())
        assert await removing.calls(where=where).read(NIC, NAME) is not None
    (one,) = await removing.requests()
    assert one.principal == client


@pytest.mark.invariant(1)
async def test_an_answer_about_another_resource_is_neither_this_one_nor_its_absence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(request: web.BaseRequest) -> web.Response:
        if request.path == "/token":
            return web.json_response({"access_token": "t", "expires_on": "4102444800", "resource": "r"})
        return web.json_response({"name": "aks-other", "id": "/other", "properties": {"resourceGuid": "another"}})

    async with RawTestServer(serve) as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", str(server.make_url("/token")))
        monkeypatch.setenv("IDENTITY_HEADER", "any")
        where = AzureScope(subscription="11111111-1111-1111-1111-111111111111", group="g", region="r")
        async with AzureClients(str(server.make_url("")).rstrip("/")) as clients:
            with pytest.raises(AzureError) as refused:
                await AzureCalls(clients, where, BudgetCallMeter(where, None), 0.25).read(NIC, NAME)
    assert refused.value.what == "unreadable"
