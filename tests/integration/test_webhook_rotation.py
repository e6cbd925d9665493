"""Rotation of the webhook's certificate while the real API server calls three replicas over TLS, each deletion all of
them, with 50 deletions at a time: none fails."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import NamedTuple

import aiohttp
import msgspec
import pytest
from aiohttp import web

from service.admission.certificate_rotation import RotationTimes
from service.admission.certificate_store import CertificateStore, utc_now
from service.admission.certificates import KeyedCertificate, make_certificate
from service.kubernetes import KubernetesClient
from service.settings.protection import WebhookSettings
from service.web.listener import API_SERVER_LIMITS, HttpListener
from standins.controlplane import ControlPlane
from tests.api_servers import TestApi
from tests.engine.waiting import at_once, until
from tests.integration.certificate_replicas import HOST, URL, CertificateReplicas, replicas_on
from tests.tls_handshakes import presented

pytestmark = pytest.mark.long

PARALLEL = 50
NAMES = ("namespaces", "definitions", "objects")
OFTEN = RotationTimes(look=timedelta(milliseconds=200))
"""How often replicas read; all other times pass when the test moves the clock."""


class AllowingWebhook:
    """A replica's listener, which allows everything. Each call comes on a connection of its own: those that are kept
    would hide a certificate that is not trusted."""

    def __init__(self, store: CertificateStore) -> None:
        self.store = store
        self.asked = 0
        self._listener = HttpListener([web.post("/protection", self._answer)], API_SERVER_LIMITS)

    async def start(self) -> str:
        port = await self._listener.start(HOST, 0, self.store.context)
        return f"https://{HOST}:{port}/protection"

    async def stop(self) -> None:
        await self._listener.stop()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        uid = msgspec.json.decode(await request.read())["request"]["uid"]
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        answer = web.json_response({**review, "response": {"uid": uid, "allowed": True}})
        answer.force_close()
        return answer


class CalledReplicas(NamedTuple):
    replicas: CertificateReplicas
    webhooks: list[AllowingWebhook]

    @property
    def stores(self) -> list[CertificateStore]:
        return [one.store for one in self.webhooks]


class Deletions:
    """ConfigMaps that are made and deleted, over and over."""

    def __init__(self, session: aiohttp.ClientSession, path: str) -> None:
        self._session, self._path = session, path
        self.deleted = 0
        self.failures: list[str] = []

    async def once(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        async with self._session.post(self._path, json=body) as made:
            assert made.status in (201, 409), await made.text()
        async with self._session.delete(f"{self._path}/{name}") as answer:
            if answer.status == 200:
                self.deleted += 1
            else:
                self.failures.append(await answer.text())

    async def many(self) -> None:
        """So many at once."""
        await asyncio.gather(*(self.once(f"c{number}") for number in range(PARALLEL)))

    async def again_and_again(self, name: str) -> None:
        while True:
            await self.once(name)


@pytest.fixture
def api(plane: ControlPlane) -> TestApi:
    return TestApi("real", plane)


@pytest.fixture
async def called(api: TestApi, cluster: KubernetesClient) -> AsyncIterator[CalledReplicas]:
    """Three replicas, and one webhook of the configuration for each of them."""
    webhook = WebhookSettings(enabled=True, url=URL)
    with replicas_on(api, cluster, webhook, registered=False) as replicas:
        webhooks = [AllowingWebhook(replicas.replica(times=OFTEN)) for _ in NAMES]
        await asyncio.gather(*(one.store.prepare() for one in webhooks))
        try:
            addresses = [await one.start() for one in webhooks]
            replicas.register(**dict(zip(NAMES, addresses, strict=True)))
            for one in webhooks:
                await one.store.refresh()
            yield CalledReplicas(replicas, webhooks)
        finally:
            for one in webhooks:
                await one.stop()


@pytest.fixture
async def deletions(api: TestApi, called: CalledReplicas) -> AsyncIterator[Deletions]:
    trusted = ssl.create_default_context(cafile=api.ca)
    connector = aiohttp.TCPConnector(limit=PARALLEL, ssl=trusted)
    headers = {"Authorization": f"Bearer {api.token}"}
    async with aiohttp.ClientSession(api.url, connector=connector, headers=headers) as session:
        made = Deletions(session, f"/api/v1/namespaces/{called.replicas.namespace}/configmaps")

        async def passes() -> bool:
            """The API server has seen the configuration and its bundle."""
            await made.once("first")
            passed = not made.failures and all(one.asked for one in called.webhooks)
            made.failures.clear()
            return passed

        await until("deletions are judged", passes)
        yield made


@contextlib.asynccontextmanager
async def running(*loops: asyncio.Future[None]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for one in loops:
            one.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def test_no_deletion_fails_while_the_certificate_is_rotated(called: CalledReplicas, deletions: Deletions) -> None:
    replicas, old = called.replicas, called.replicas.stored().current
    loops = [asyncio.ensure_future(one.run()) for one in called.stores]
    loops += [asyncio.ensure_future(deletions.again_and_again(f"c{number}")) for number in range(PARALLEL)]

    async def reached(what: str, state: Callable[[], bool]) -> None:
        """After that more deletions go through than were on their way."""
        await until(what, lambda: asyncio.to_thread(state))
        before = deletions.deleted
        await until("some go through", lambda: at_once(deletions.deleted > before + PARALLEL))

    def served_by_all() -> bool:
        new = replicas.stored().current
        return new != old and all(_presents(one, new) for one in called.stores)

    async with running(*loops):
        await reached("there are deletions", lambda: True)
        await called.stores[0].rotate()
        await reached("both CAs are trusted", lambda: replicas.stored().next_trusted is not None)
        assert replicas.bundle().count(b"BEGIN") == 2
        replicas.clock.move(OFTEN.settling)
        await reached("every replica serves the next certificate", served_by_all)
        assert replicas.bundle().count(b"BEGIN") == 2
        replicas.clock.move(OFTEN.overlap)
        await reached("the old CA is gone", lambda: replicas.bundle() == replicas.stored().current.authority)
    assert deletions.failures == []
    assert all(one.asked >= deletions.deleted for one in called.webhooks)
    new = replicas.stored().current
    assert replicas.bundle() == new.authority != old.authority
    assert all(_presents(one, new) for one in called.stores)


def _presents(store: CertificateStore, keyed: KeyedCertificate) -> bool:
    try:
        return bool(presented(store.context, keyed.authority, HOST))
    except ssl.SSLError:
        return False


async def test_a_replica_that_reads_late_is_trusted_until_it_does(called: CalledReplicas, deletions: Deletions) -> None:
    first, other, late = called.stores
    replicas, old = called.replicas, called.replicas.stored().current
    await first.rotate()
    await first.refresh()
    await deletions.many()
    replicas.clock.move(OFTEN.settling)
    for one in (first, other):
        await one.refresh()
    assert [_presents(one, old) for one in called.stores] == [False, False, True]
    await deletions.many()
    replicas.clock.move(OFTEN.overlap / 2)
    for one in (first, late):
        await one.refresh()
    assert not _presents(late, old)
    await deletions.many()
    assert deletions.failures == []


async def test_deletions_that_fail_because_the_bundle_was_overwritten_pass_when_a_replica_has_read_it(
    called: CalledReplicas, deletions: Deletions
) -> None:
    """It also shows that the tests above would notice a certificate that is not trusted."""
    called.replicas.overwrite_bundle(make_certificate([HOST], utc_now(), timedelta(days=1)).authority)

    async def refused() -> bool:
        await deletions.many()
        return len(deletions.failures) >= PARALLEL

    await until("the API server has seen it", refused)
    assert "failed calling webhook" in deletions.failures[-1]
    assert "certificate signed by unknown authority" in deletions.failures[-1]
    await called.stores[1].refresh()

    async def passed() -> bool:
        deletions.failures.clear()
        await deletions.many()
        return not deletions.failures

    await until("the API server has seen the right one", passed)
