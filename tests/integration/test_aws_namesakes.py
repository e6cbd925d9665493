"""Namesakes: two clusters of one name share the tag; while the other lives, tagged resources may be its own, and
nothing is deleted. A resource that can't be listed may have namesakes; only one that is not installed has none."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from service.contract.names import share_lease
from service.kubernetes import connect
from service.settings import ClusterSettings, WatchSettings
from service.sources.capa import AWS_ACCOUNT, AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, EXTERNAL_RESOURCE_TASKS
from standins.aws.builder import REGION, Vpc
from standins.aws.process import LocalAws
from standins.aws.tags import by_cloud_provider
from standins.kubernetes_api import EmbeddedApi
from tests import capi
from tests.api_servers import TestApi
from tests.capi import CapiObjects
from tests.integration.blurred_lists import BlurredLists, BlurredSpecs
from tests.integration.capi_fixture import CapiFixture, clusters_on
from tests.integration.restorable_cluster import made_lease, noted
from tests.recording_proxy import RecordingProxy
from tests.redis_servers import TestServer
from workers.handlers.source_clusters import SourceClusters
from workers.judging.registry_builder import build_source_clusters


@pytest.mark.invariant(9)
async def test_a_live_namesake_of_the_same_account_and_region_holds(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    other = await clusters.resources.vpc()
    elsewhere.unmanaged("prod", region=REGION, vpc=other.id)
    found = clusters.delete_marked("prod", vpc)
    hold = await clusters.held(found)
    assert f"{elsewhere.namespace}/prod" in hold.reason
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    await clusters.planned(found)


@pytest.mark.invariant(7)
@pytest.mark.invariant(9)
async def test_a_live_one_of_that_name_whose_region_is_not_known_holds(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    elsewhere.unmanaged("prod", region="")
    found = clusters.delete_marked("prod", vpc)
    assert f"{elsewhere.namespace}/prod" in (await clusters.held(found)).reason


async def test_a_managed_cluster_can_be_a_namesake_of_an_unmanaged_one(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    elsewhere.managed("payments", eks="prod", region=REGION)
    found = clusters.delete_marked("prod", vpc)
    assert "awsmanagedcontrolplanes" in (await clusters.held(found)).reason


async def test_one_of_another_region_or_account_is_no_namesake(clusters: CapiFixture, vpc: Vpc, api: TestApi) -> None:
    first, second = CapiObjects(api.kube, api.namespace()), CapiObjects(api.kube, api.namespace())
    clusters.watch_also(first.namespace, second.namespace)
    first.unmanaged("prod", region="us-west-2")
    second.unmanaged("prod", region=REGION, annotations={AWS_ACCOUNT: "999999999999"})
    await clusters.planned(clusters.delete_marked("prod", vpc))


async def test_a_namesake_is_seen_when_the_version_that_was_known_is_no_longer_served(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    """A list at an outdated address must not count as a resource that was never installed."""
    found = clusters.delete_marked("prod", vpc)
    async with clusters.side() as side:
        await clusters.planned(found, side)
        place = clusters.lately.of("unmanaged")
        assert place is not None
        served = await place.served(AWS_CLUSTERS)
        place._served[AWS_CLUSTERS] = msgspec.structs.replace(served, version="v1alpha3")
        elsewhere.unmanaged("prod", region=REGION)
        hold = await clusters.held(found, side)
        assert f"{elsewhere.namespace}/prod" in hold.reason


@pytest.mark.invariant(9)
@pytest.mark.invariant(11)
async def test_a_namesake_in_a_namespace_that_is_not_watched_holds_what_a_tenant_deletes(
    clusters: CapiFixture, vpc: Vpc, api: TestApi
) -> None:
    """A tenant creates a Cluster with a living one's name to have that one's volumes deleted."""
    volume = await clusters.resources.volume(by_cloud_provider("prod"))
    victim = CapiObjects(api.kube, api.namespace())
    victim.unmanaged("prod", region=REGION)
    found = clusters.delete_marked("prod", vpc, annotations={EXTERNAL_RESOURCE_TASKS: "volume"})
    hold = await clusters.held(found)
    assert f"{victim.namespace}/prod" in hold.reason
    # Being deleted does not make it ours to collect: it has no source.
    victim.delete(capi.AWS_CLUSTERS, "prod")
    assert volume in {target.id for target in await clusters.planned(found)}


@pytest.mark.invariant(7)
async def test_a_list_of_all_namespaces_that_is_forbidden_holds_and_says_what_is_missing(
    clusters: CapiFixture, vpc: Vpc, api: TestApi, tmp_path: Path
) -> None:
    found = clusters.delete_marked("prod", vpc)
    async with RecordingProxy(api) as proxy:
        way = ClusterSettings(kubeconfig=proxy.kubeconfig(tmp_path / "front"), context="local")
        async with await connect("local", way) as clusters.cluster:
            proxy.refuse(403, lambda _method, path: "/namespaces/" not in path and "/awsclusters" in path)
            async with clusters.side() as side:
                reason = (await clusters.held(found, side)).reason
                assert f"{AWS_CLUSTERS} can't be listed in all namespaces of cluster local" in reason
                assert "`knell role`" in reason
                hold = await side.collector.objections(await clusters.facts(found))
                assert hold is not None
                assert hold.reason == reason


async def test_a_namesake_of_an_identity_that_leads_elsewhere_is_none(
    clusters: CapiFixture, vpc: Vpc, elsewhere: CapiObjects
) -> None:
    name = f"role-{elsewhere.namespace}"
    identity = {"kind": "AWSClusterRoleIdentity", "name": name}
    elsewhere.unmanaged("prod", region=REGION, identity=identity)
    found = clusters.delete_marked("prod", vpc)
    # Its account is unknown.
    assert f"{elsewhere.namespace}/prod" in (await clusters.held(found)).reason
    elsewhere.identity(
        capi.ROLE_IDENTITIES, name, {"roleARN": "arn:aws:iam::999999999999:role/tenant", "allowedNamespaces": {}}
    )
    await clusters.planned(found)


# ---- resources that can't be listed


@pytest.mark.invariant(7)
@pytest.mark.parametrize("resource", [AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES])
async def test_one_that_can_not_be_read_may_be_a_namesake(clusters: CapiFixture, vpc: Vpc, resource: str) -> None:
    found = clusters.delete_marked("prod", vpc)
    clusters.cluster = BlurredLists(resource, clusters.cluster)
    reason = (await clusters.held(found)).reason
    assert f"the list of {resource} is not whole, namesakes may be missing: one without a uid" in reason


@pytest.mark.invariant(7)
async def test_one_whose_place_can_not_be_read_may_be_a_namesake(clusters: CapiFixture, vpc: Vpc) -> None:
    found = clusters.delete_marked("prod", vpc)
    clusters.cluster = BlurredSpecs(AWS_MANAGED_CONTROL_PLANES, clusters.cluster)
    clusters.capi.managed("other", region=REGION)
    reason = (await clusters.held(found)).reason
    assert f"{AWS_MANAGED_CONTROL_PLANES} {clusters.capi.namespace}/other-control-plane may be a namesake" in reason


@pytest.fixture
async def without_eks(
    clusters: CapiFixture, embedded_server: TestServer, local_aws: LocalAws, tmp_path: Path
) -> AsyncIterator[tuple[CapiFixture, CapiObjects]]:
    """On a separate server without managed control planes, in the same account."""
    with EmbeddedApi() as server:
        api = TestApi("embedded", server)
        async with clusters_on(api, embedded_server, local_aws, tmp_path) as made:
            beside = CapiObjects(api.kube, api.namespace())
            made.watch_also(beside.namespace)
            api.kube.delete(capi.AWS_MANAGED_CONTROL_PLANES.own_path)
            sources = {name: one for name, one in made.settings.sources.items() if one.resource == AWS_CLUSTERS}
            made.settings = msgspec.structs.replace(made.settings, sources=sources)
            yield made, beside


async def test_a_kind_that_is_not_installed_has_no_namesakes_and_the_other_kind_is_still_looked_at(
    without_eks: tuple[CapiFixture, CapiObjects],
) -> None:
    clusters, beside = without_eks
    assert await clusters.cluster.crd_state(AWS_MANAGED_CONTROL_PLANES) == "absent"
    found = clusters.delete_marked("prod", await clusters.resources.vpc())
    await clusters.planned(found)
    beside.unmanaged("prod", region=REGION)
    assert f"{beside.namespace}/prod" in (await clusters.held(found)).reason


async def test_a_kind_that_is_installed_but_not_served_for_a_moment_may_have_namesakes(
    clusters: CapiFixture, vpc: Vpc, api: TestApi, tmp_path: Path
) -> None:
    found = clusters.delete_marked("prod", vpc)
    async with RecordingProxy(api) as proxy:
        way = ClusterSettings(kubeconfig=proxy.kubeconfig(tmp_path / "front"), context="local")
        async with await connect("local", way) as clusters.cluster:
            group = AWS_MANAGED_CONTROL_PLANES.partition(".")[2]
            proxy.refuse(404, lambda _method, path: path.startswith(f"/apis/{group}"))
            reason = (await clusters.held(found)).reason
            assert f"{AWS_MANAGED_CONTROL_PLANES} of cluster local can't be listed now" in reason
            assert "its CRD is established" in reason
            proxy.pass_on()
            await clusters.planned(found)


@pytest.mark.invariant(9)
async def test_a_namesake_that_is_missing_in_a_restored_cluster_may_be_alive(
    clusters: CapiFixture, vpc: Vpc, api: TestApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, source = api.namespace(), next(iter(clusters.settings.sources))
    clusters.settings = msgspec.structs.replace(clusters.settings, watch=WatchSettings(namespace=home))

    def places() -> SourceClusters:
        return build_source_clusters(clusters.settings, {"local": clusters.cluster}, clusters.installation)

    monkeypatch.setattr(clusters, "places", places)
    found = clusters.delete_marked("prod", vpc)
    await clusters.planned(found)
    uid = made_lease(api.kube, home, share_lease(source, 0), 3)
    await noted(clusters.installation, clusters.identity, f"{home}/{share_lease(source, 0)}", uid, 9)
    assert "`knell clusters accept-restore local`" in (await clusters.held(found)).reason
