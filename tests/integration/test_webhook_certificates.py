"""The webhook's certificate in its Secret, and its CA in the webhook configuration, on real API servers: replicas that
race, crash, read late, or find what another program has changed."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.admission.certificate_store import CertificateProblem, CertificateStore
from service.admission.certificates import KeyedCertificate, make_certificate, read_certificate
from service.kubernetes import KubernetesClient
from service.settings.protection import WebhookSettings
from tests.api_servers import TestApi
from tests.engine.waiting import at_once, until
from tests.integration.certificate_replicas import (
    CONFIGURATION_PATH,
    HOST,
    TIMES,
    URL,
    WEBHOOKS,
    CertificateReplicas,
    replicas,
    replicas_on,
    through_proxy,
)
from tests.tls_handshakes import presented

__all__ = ["replicas"]

GIVEN = WebhookSettings(enabled=True, url=URL, certificate="secret")
ISSUED = WebhookSettings(enabled=True, url=URL, certificate="cert-manager")


def served(store: CertificateStore, replicas: CertificateReplicas) -> bytes:
    """What a client with the configuration's bundle gets to see."""
    return presented(store.context, replicas.bundle(), HOST)


def is_patch(path: str) -> Callable[[str, str], bool]:
    return lambda method, asked: (method, asked) == ("PATCH", path)


def given_by_a_person(*names: str) -> KeyedCertificate:
    return make_certificate(names or (HOST,), datetime.now(UTC), timedelta(days=5))


# Made by Knell.


async def test_replicas_that_start_at_once_serve_one_certificate(replicas: CertificateReplicas) -> None:
    three = [replicas.replica() for _ in range(3)]
    await asyncio.gather(*(one.prepare() for one in three))
    assert len({served(one, replicas) for one in three}) == 1
    assert replicas.bundle() == replicas.stored().current.authority
    assert [one.problem for one in three] == [""] * 3
    assert {one.expires for one in three} == {read_certificate(replicas.stored().current.certificate).expires}


async def test_a_rotation_that_is_taken_over_at_every_change_always_serves_what_is_trusted(
    replicas: CertificateReplicas,
) -> None:
    """Every pass is that of a new process, as if the one before had crashed behind its change; another one reads the
    Secret again only when the certificate has been switched."""
    late = await replicas.prepared()
    old, seen = served(late, replicas), []
    await replicas.replica().rotate()
    for pause in (timedelta(0), TIMES.settling, TIMES.overlap):
        replicas.clock.move(pause)
        while await replicas.replica().advance():
            assert replicas.trusts(late)
        fresh = await replicas.prepared()
        assert replicas.trusts(late, fresh)
        seen.append((served(fresh, replicas) != old, replicas.bundle().count(b"BEGIN")))
        if pause == TIMES.settling:
            await late.refresh()
    assert seen == [(False, 2), (True, 2), (True, 1)]
    assert served(late, replicas) == served(await replicas.prepared(), replicas) != old
    assert replicas.stored().previous == b""


async def test_a_certificate_is_rotated_when_a_third_of_its_life_is_left(replicas: CertificateReplicas) -> None:
    one = await replicas.prepared()
    old = replicas.stored().current
    replicas.clock.move(TIMES.lifetime - TIMES.renewal)
    for pause in (timedelta(0), TIMES.settling, TIMES.overlap):
        replicas.clock.move(pause)
        await one.refresh()
    assert replicas.stored().current != old
    assert replicas.bundle() == replicas.stored().current.authority


async def test_replicas_that_take_the_same_step_at_once_harm_nothing(replicas: CertificateReplicas) -> None:
    three = [replicas.replica() for _ in range(3)]
    await asyncio.gather(*(one.prepare() for one in three))
    old = replicas.stored().current
    await asyncio.gather(*(one.rotate() for one in three))
    following = replicas.stored().next
    for pause in (timedelta(0), TIMES.settling, TIMES.overlap):
        replicas.clock.move(pause)
        await asyncio.gather(*(one.refresh() for one in three))
        assert replicas.trusts(*three)
    assert replicas.stored().current == following != old
    assert replicas.bundle() == replicas.stored().current.authority
    assert len({served(one, replicas) for one in three}) == 1


async def test_a_slow_replica_can_not_take_the_next_ca_out_of_the_bundle(
    replicas: CertificateReplicas, api: TestApi, tmp_path: Path
) -> None:
    """It has read the Secret before the next certificate was in it, and writes the bundle of that after the others."""
    quick = await replicas.prepared()
    async with through_proxy(api, tmp_path) as (proxy, client):
        slow = replicas.replica(client)
        replicas.overwrite_bundle(b"")
        proxy.keep_waiting(is_patch(CONFIGURATION_PATH))
        refreshed = asyncio.create_task(slow.refresh())
        await until("it writes", lambda: at_once(proxy.count("PATCH", CONFIGURATION_PATH)))
        await quick.rotate()
        await quick.refresh()
        both = replicas.bundle()
        proxy.pass_on()
        await refreshed
    stored = replicas.stored()
    assert stored.next is not None
    assert both == replicas.bundle() == stored.current.authority + stored.next.authority
    assert stored.next_trusted == replicas.clock.now


async def test_a_bundle_that_another_program_overwrites_is_put_back_and_has_time_again(
    replicas: CertificateReplicas,
) -> None:
    one = await replicas.prepared()
    old = replicas.stored().current
    await one.rotate()
    await one.refresh()
    replicas.clock.move(TIMES.settling)
    replicas.overwrite_bundle(old.authority)
    await one.refresh()
    assert replicas.stored().current == old
    assert replicas.bundle().count(b"BEGIN") == 2
    replicas.clock.move(TIMES.settling)
    await one.refresh()
    assert replicas.stored().current != old
    assert replicas.trusts(one)


async def test_only_the_bundle_of_our_webhooks_is_changed(replicas: CertificateReplicas) -> None:
    before = replicas.configuration()
    one = await replicas.prepared()
    await one.rotate()
    await one.refresh()
    after = replicas.configuration()
    for hook in after["webhooks"]:
        assert ("caBundle" in hook["clientConfig"]) == (hook["name"] in WEBHOOKS)
        hook["clientConfig"].pop("caBundle", None)
    for found in (before, after):
        for field in ("resourceVersion", "generation", "managedFields"):
            found["metadata"].pop(field, None)
    assert after == before


async def test_without_a_configuration_it_serves_and_says_so_and_the_bundle_follows(
    api: TestApi, cluster: KubernetesClient
) -> None:
    with replicas_on(api, cluster, WebhookSettings(enabled=True, url=URL), registered=False) as replicas:
        one = await replicas.prepared()
        assert "there is no ValidatingWebhookConfiguration knell-protection" in one.problem
        assert "knell protection manifests" in one.problem
        old = replicas.stored().current
        await one.rotate()
        await one.refresh()
        replicas.clock.move(TIMES.settling)
        replicas.register()
        # It had no bundle: API servers need time to see this one.
        await one.refresh()
        assert (one.problem, replicas.stored().current) == ("", old)
        replicas.clock.move(TIMES.settling)
        await one.refresh()
        assert replicas.stored().current != old
        assert replicas.trusts(one)


@pytest.mark.parametrize("damage", ["deleted", "emptied", "another key"])
async def test_a_damaged_secret_gets_back_what_a_replica_serves_and_is_rotated(
    replicas: CertificateReplicas, damage: str
) -> None:
    one, late = await replicas.prepared(), await replicas.prepared()
    old = replicas.stored().current
    if damage == "deleted":
        replicas.api.kube.delete(replicas.secret_path)
    elif damage == "emptied":
        replicas.write_secret(tls_crt=b"", tls_key=b"")
    else:
        replicas.write_secret(tls_key=given_by_a_person().key)
    await one.refresh()
    assert replicas.stored().current == old
    for pause in (TIMES.settling, TIMES.overlap):
        replicas.clock.move(pause)
        await one.refresh()
        assert replicas.trusts(one)
        await late.refresh()
    assert replicas.stored().current != old
    assert replicas.trusts(one, late)


async def test_a_new_replica_replaces_a_damaged_secret_and_what_others_serve_stays_trusted(
    replicas: CertificateReplicas,
) -> None:
    late = await replicas.prepared()
    old = replicas.stored().current
    replicas.write_secret(tls_crt=b"words", ca_crt=b"words")
    one = await replicas.prepared()
    assert replicas.stored().current != old
    assert replicas.trusts(one, late)
    await late.refresh()
    replicas.clock.move(TIMES.overlap)
    await one.refresh()
    assert replicas.trusts(one, late)
    assert replicas.bundle() == replicas.stored().current.authority


async def test_a_certificate_for_another_name_or_one_that_has_expired_is_replaced_at_once(
    replicas: CertificateReplicas,
) -> None:
    one = await replicas.prepared()
    first = replicas.stored().current
    replicas.clock.move(TIMES.lifetime)
    await one.refresh()
    second = replicas.stored().current
    assert second != first
    moved = replicas.replica(webhook=WebhookSettings(enabled=True, url="https://door.example.com"))
    await moved.prepare()
    assert read_certificate(replicas.stored().current.certificate).names == ("door.example.com", HOST)


async def test_a_secret_of_another_owner_is_not_overwritten(replicas: CertificateReplicas) -> None:
    foreign = given_by_a_person()
    replicas.write_secret(tls_crt=foreign.certificate, tls_key=foreign.key)
    with pytest.raises(CertificateProblem, match="has a certificate that Knell did not make, and is not overwritten"):
        await replicas.replica().prepare()
    assert replicas.stored().current.key == foreign.key


async def test_an_empty_secret_that_was_made_in_advance_is_filled(replicas: CertificateReplicas) -> None:
    replicas.write_secret(other=b"kept")
    assert replicas.trusts(await replicas.prepared())
    found = replicas.api.kube.get(replicas.secret_path)
    assert found is not None
    assert found["data"]["other"] == "a2VwdA=="


async def test_no_key_reaches_a_log_or_an_error(replicas: CertificateReplicas, api: TestApi, tmp_path: Path) -> None:
    keys, told = set[bytes](), list[object]()
    with capture_logs() as logged:
        async with through_proxy(api, tmp_path) as (proxy, client):
            one = replicas.replica(client)
            await one.prepare()
            await one.rotate()
            for pause in (timedelta(0), TIMES.settling, TIMES.overlap):
                replicas.clock.move(pause)
                await one.refresh()
                keys.add(replicas.stored().current.key)
            replicas.write_secret(tls_key=given_by_a_person().key)
            await one.refresh()
            proxy.refuse(500)
            with pytest.raises(CertificateProblem) as caught:
                await replicas.replica(client).prepare()
            told.append(caught.value)
    assert len(logged) > 5
    text = repr([*logged, *told, vars(one)])
    assert len(keys) == 2
    for key in keys:
        assert not [line for line in key.decode().splitlines() if line in text]


async def test_a_replica_that_can_not_read_says_so_and_goes_on_serving(
    replicas: CertificateReplicas, api: TestApi, tmp_path: Path
) -> None:
    quick = TIMES._replace(look=timedelta(milliseconds=20))
    async with through_proxy(api, tmp_path) as (proxy, client):
        one = replicas.replica(client, times=quick)
        await one.prepare()
        running = asyncio.create_task(one.run())
        proxy.refuse(503)
        await until("it says so", lambda: at_once("can't be kept up to date" in one.problem))
        assert replicas.trusts(one)
        proxy.pass_on()
        await until("it reads again", lambda: at_once(not one.problem))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_without_the_right_to_read_the_configuration_it_serves_and_rotates_nothing(
    replicas: CertificateReplicas, api: TestApi, tmp_path: Path
) -> None:
    async with through_proxy(api, tmp_path) as (proxy, client):
        one = replicas.replica(client)
        await one.prepare()
        old = replicas.stored().current
        proxy.refuse(403, lambda method, path: path == CONFIGURATION_PATH)
        await one.rotate()
        replicas.clock.move(TIMES.settling)
        await one.refresh()
        assert "knell role" in one.problem
        assert replicas.stored().current == old
        assert replicas.stored().next_trusted is None
        proxy.pass_on()
        await one.refresh()
        assert (one.problem, replicas.stored().next_trusted) == ("", replicas.clock.now)


# Given by a person, or by cert-manager.


async def test_a_given_certificate_is_served_and_read_again_and_its_ca_is_put_into_the_bundle(
    api: TestApi, cluster: KubernetesClient
) -> None:
    with replicas_on(api, cluster, GIVEN) as replicas:
        first, second = given_by_a_person(), given_by_a_person()
        replicas.write_secret(tls_crt=first.certificate, tls_key=first.key, ca_crt=first.authority)
        one = await replicas.prepared()
        assert replicas.bundle() == first.authority
        assert replicas.trusts(one)
        assert one.problem == ""
        both = second.authority + first.authority
        replicas.write_secret(tls_crt=second.certificate, tls_key=second.key, ca_crt=both)
        await one.refresh()
        assert replicas.bundle() == both
        assert presented(one.context, second.authority, HOST)
        assert one.expires == read_certificate(second.certificate).expires
        assert replicas.stored().current.key == second.key


async def test_cert_managers_bundle_is_left_to_cert_manager(api: TestApi, cluster: KubernetesClient) -> None:
    with replicas_on(api, cluster, ISSUED) as replicas:
        given = given_by_a_person()
        replicas.write_secret(tls_crt=given.certificate, tls_key=given.key, ca_crt=given.authority)
        one = await replicas.prepared()
        assert replicas.bundle() == b""
        replicas.overwrite_bundle(given.authority)
        await one.refresh()
        assert replicas.trusts(one)
        assert one.problem == ""


@pytest.mark.parametrize(
    ("webhook", "remedy"),
    [(GIVEN, f"fill in tls.crt and tls.key of a certificate for {HOST}"), (ISSUED, "cert-manager has to issue it")],
    ids=["secret", "cert-manager"],
)
async def test_what_is_wrong_with_a_given_certificate_is_said_with_a_remedy(
    api: TestApi, cluster: KubernetesClient, webhook: WebhookSettings, remedy: str
) -> None:
    with replicas_on(api, cluster, webhook) as replicas:
        with pytest.raises(CertificateProblem, match=f"there is no Secret {replicas.namespace}/.*; {remedy}"):
            await replicas.replica().prepare()
        good, other = given_by_a_person(), given_by_a_person("door.example.com")
        replicas.write_secret(tls_crt=good.certificate)
        with pytest.raises(CertificateProblem, match=f"has no key; {remedy}"):
            await replicas.replica().prepare()
        replicas.write_secret(tls_key=good.key, ca_crt=good.authority)
        one = await replicas.prepared()
        replicas.write_secret(tls_key=other.key)
        await one.refresh()
        assert f"has a key that belongs to another certificate; {remedy}" in one.problem
        assert presented(one.context, good.authority, HOST)
        replicas.write_secret(tls_crt=other.certificate)
        await one.refresh()
        assert f"is for door.example.com, not for {HOST}; {remedy}" in one.problem
        replicas.write_secret(tls_crt=good.certificate, tls_key=good.key)
        replicas.clock.move(timedelta(days=6))
        await one.refresh()
        assert "has expired on" in one.problem


async def test_a_service_without_any_ca_is_a_problem(api: TestApi, cluster: KubernetesClient) -> None:
    webhook = WebhookSettings(enabled=True, certificate="secret")
    with replicas_on(api, cluster, webhook) as replicas:
        given = given_by_a_person(f"knell-webhook.{replicas.namespace}.svc")
        replicas.write_secret(tls_crt=given.certificate, tls_key=given.key)
        one = await replicas.prepared()
        assert "has no caBundle; put the CA of the certificate into ca.crt of Secret" in one.problem
        replicas.write_secret(ca_crt=given.authority)
        await one.refresh()
        assert one.problem == ""
