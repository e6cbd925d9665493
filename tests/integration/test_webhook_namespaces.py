"""The webhook's cache of Namespaces: what it knows, when the live Namespace is read, and what is denied where neither
can be known."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.admission import namespace_cache
from tests.api_servers import ApiServer, TestApi
from tests.engine.waiting import at_once, until
from tests.integration.cutting_proxy import CuttingProxy
from tests.integration.webhook_process import BUCKETS, PROTECTING, ReviewAnswer, WebhookClient, review_of, webhook_on

TRUE = {PROTECTING: "true"}


def annotate(api: TestApi, namespace: str, **annotations: str | None) -> None:
    api.kube.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": annotations}})


@pytest.fixture
async def webhook(api: TestApi, tmp_path: Path) -> AsyncIterator[WebhookClient]:
    async with webhook_on(api, tmp_path) as made:
        yield made


async def ask(webhook: WebhookClient, namespace: str, **own: str) -> ReviewAnswer:
    return await webhook.ask(review_of(BUCKETS, "prod", namespace, metadata={"annotations": own}))


async def cached(webhook: WebhookClient, *names: str) -> None:
    await until("the Namespaces are cached", lambda: at_once(all(map(webhook.namespaces.sure, names))))


async def test_what_the_watch_has_shown_needs_no_read(api: TestApi, webhook: WebhookClient) -> None:
    kept, free = api.namespace(**TRUE), api.namespace()
    await cached(webhook, kept, free)
    assert not (await ask(webhook, kept)).allowed
    assert (await ask(webhook, free)).allowed
    annotate(api, free, **TRUE)

    async def denied() -> bool:
        return not (await ask(webhook, free)).allowed

    await until("the mark is known", denied)
    annotate(api, free, **{PROTECTING: None})

    async def allowed() -> bool:
        return (await ask(webhook, free)).allowed

    await until("the mark is known to be lifted", allowed)
    assert webhook.namespaces.reads == 0


@pytest.mark.parametrize("own", ["true", "false"])
async def test_an_object_that_decides_itself_needs_no_namespace(api: TestApi, tmp_path: Path, own: str) -> None:
    async with webhook_on(api, tmp_path, live=False) as webhook:
        assert (await ask(webhook, "unknown", **{PROTECTING: own})).allowed == (own == "false")
        assert webhook.namespaces.reads == 0


async def test_without_an_entry_the_live_namespace_is_read(api: TestApi, tmp_path: Path) -> None:
    kept, free = api.namespace(**TRUE), api.namespace()
    async with webhook_on(api, tmp_path, live=False) as webhook:
        assert not webhook.namespaces.sure(kept)
        assert not (await ask(webhook, kept)).allowed
        assert (await ask(webhook, free)).allowed
        assert webhook.namespaces.reads == 2


async def test_a_namespace_with_very_long_annotations_is_read_when_it_is_needed(
    api: TestApi, webhook: WebhookClient
) -> None:
    long, later = api.namespace(**{PROTECTING: " " * 5000 + "true"}), api.namespace()
    await cached(webhook, later)
    assert not webhook.namespaces.sure(long)
    assert not (await ask(webhook, long)).allowed
    assert webhook.namespaces.reads == 1


async def test_too_many_namespaces_are_read_when_they_are_needed(
    api: TestApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace_cache, "_MOST", 0)
    kept = api.namespace(**TRUE)
    async with webhook_on(api, tmp_path) as webhook:
        assert not (await ask(webhook, kept)).allowed
        assert webhook.namespaces.reads == 1


async def test_an_object_of_a_namespace_that_no_longer_exists_is_denied(webhook: WebhookClient) -> None:
    answer = await ask(webhook, "gone")
    assert answer.message == (
        "bucket/prod in Namespace gone is not deleted: its Namespace no longer exists, so that its annotations of "
        "protection can't be known; to delete it, create the Namespace again first: kubectl create namespace gone"
    )
    assert (await ask(webhook, "gone", **{PROTECTING: "false"})).allowed
    assert " of the object says 'true'; " in (await ask(webhook, "gone", **{PROTECTING: "true"})).message


async def test_while_the_api_server_is_away_only_objects_that_decide_themselves_are_allowed(
    api: TestApi, tmp_path: Path
) -> None:
    namespace, other = api.namespace(), api.namespace()
    async with CuttingProxy(api.url) as proxy:
        cluster = proxy.settings(api.server, tmp_path)
        async with webhook_on(api, tmp_path, cluster=cluster) as webhook:
            await cached(webhook, namespace, other)
            await proxy.shut()
            await until("the watch has ended", lambda: at_once(not webhook.namespaces.live))
            answer = await ask(webhook, namespace)
            assert answer.message.startswith(
                f"bucket/prod in Namespace {namespace} is not deleted now: whether its Namespace protects it can't be "
                "known ("
            )
            assert (await ask(webhook, namespace, **{PROTECTING: "false"})).allowed
            assert " of the object says 'true'; " in (await ask(webhook, namespace, **TRUE)).message
            assert webhook.namespaces.problem
            annotate(api, namespace, **TRUE)
            proxy.open()
            await cached(webhook, namespace, other)
            assert not (await ask(webhook, namespace)).allowed
            assert (await ask(webhook, other)).allowed
            assert webhook.namespaces.problem == ""


async def test_a_namespace_that_changed_so_that_it_can_not_be_decoded_is_not_known_any_more(
    embedded_api: ApiServer, tmp_path: Path
) -> None:
    # Without TLS, so that what the server sends can be spoiled on its way.
    api = TestApi("embedded", embedded_api)
    namespace = api.namespace()
    async with (
        CuttingProxy(api.url, spoil=(b'"spoiled":"yes"', b'"spoiled":12345')) as proxy,
        webhook_on(api, tmp_path, cluster=proxy.settings(api.server, tmp_path)) as webhook,
    ):
        await cached(webhook, namespace)
        assert (await ask(webhook, namespace)).allowed
        annotate(api, namespace, spoiled="yes")

        async def denied() -> bool:
            return not (await ask(webhook, namespace)).allowed

        await until("it is denied", denied)
        assert "can't be known" in (await ask(webhook, namespace)).message
        assert (await ask(webhook, namespace, **{PROTECTING: "false"})).allowed


async def test_a_watch_that_the_server_ends_is_resumed(api: TestApi, webhook: WebhookClient) -> None:
    namespace = api.namespace()
    await cached(webhook, namespace)
    if api.kind == "embedded":
        api.server.end_watches()  # type: ignore[attr-defined]
    annotate(api, namespace, **TRUE)

    async def denied() -> bool:
        return not (await ask(webhook, namespace)).allowed

    await until("the mark is known", denied)
    await cached(webhook, namespace)
