"""Two clusters of one name share the tag: while another one lives, what is tagged may be its, and nothing is taken.
A kind that can't be listed may have namesakes, too; only one that is not installed has none."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from service.contract.aws import AWS_ACCOUNT, AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, EXTERNAL_RESOURCE_TASKS
from service.contract.names import share_lease
from service.kubernetes import connect
from service.settings import ClusterSettings, WatchSettings
from standins.api import EmbeddedApi
from standins.aws.networks import Vpc
from standins.aws.process import LocalAws
from standins.aws.tags import by_cloud_provider
from standins.aws.world import REGION
from tests import capi
from tests.capi import Capi
from tests.clusters import TestApi
from tests.integration.clustered import Clustered, clusters_on
from tests.integration.front import Front
from tests.integration.witnessed import made_lease, noted
from tests.servers import TestServer
from workers.handlers.places import Places
from workers.judging.wiring import places_in


@pytest.mark.invariant(9)
async def test_a_live_namesake_of_the_same_account_and_region_holds(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    other = await clustered.resources.vpc()
    elsewhere.unmanaged("prod", region=REGION, vpc=other.id)
    found = clustered.delete_marked("prod", vpc)
    hold = await clustered.held(found)
    assert f"{elsewhere.namespace}/prod" in hold.reason
    elsewhere.delete(capi.AWS_CLUSTERS, "prod")
    await clustered.planned(found)


@pytest.mark.invariant(7)
@pytest.mark.invariant(9)
async def test_a_live_one_of_that_name_whose_region_is_not_known_holds(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    elsewhere.unmanaged("prod", region="")
    found = clustered.delete_marked("prod", vpc)
    assert f"{elsewhere.namespace}/prod" in (await clustered.held(found)).reason


async def test_a_managed_cluster_can_be_a_namesake_of_an_unmanaged_one(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    elsewhere.managed("payments", eks="prod", region=REGION)
    found = clustered.delete_marked("prod", vpc)
    assert "awsmanagedcontrolplanes" in (await clustered.held(found)).reason


async def test_one_of_another_region_or_account_is_no_namesake(clustered: Clustered, vpc: Vpc, api: TestApi) -> None:
    first, second = Capi(api.kube, api.namespace()), Capi(api.kube, api.namespace())
    clustered.watch_also(first.namespace, second.namespace)
    first.unmanaged("prod", region="us-west-2")
    second.unmanaged("prod", region=REGION, annotations={AWS_ACCOUNT: "999999999999"})
    await clustered.planned(clustered.delete_marked("prod", vpc))


async def test_a_namesake_is_seen_when_the_version_that_was_known_is_no_longer_served(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    """A list at an address that is gone must not be taken for a kind that was never installed."""
    found = clustered.delete_marked("prod", vpc)
    async with clustered.side() as side:
        await clustered.planned(found, side)
        place = clustered.lately.of("unmanaged")
        assert place is not None
        served = await place.served(AWS_CLUSTERS)
        place._served[AWS_CLUSTERS] = msgspec.structs.replace(served, version="v1alpha3")
        elsewhere.unmanaged("prod", region=REGION)
        hold = await clustered.held(found, side)
        assert f"{elsewhere.namespace}/prod" in hold.reason


@pytest.mark.invariant(9)
@pytest.mark.invariant(11)
async def test_a_namesake_in_a_namespace_that_is_not_watched_holds_what_a_tenant_deletes(
    clustered: Clustered, vpc: Vpc, api: TestApi
) -> None:
    """A tenant makes a Cluster of a living one's name, to have that one's volumes removed."""
    volume = await clustered.resources.volume(by_cloud_provider("prod"))
    victim = Capi(api.kube, api.namespace())
    victim.unmanaged("prod", region=REGION)
    found = clustered.delete_marked("prod", vpc, annotations={EXTERNAL_RESOURCE_TASKS: "volume"})
    hold = await clustered.held(found)
    assert f"{victim.namespace}/prod" in hold.reason
    # Going alone does not make it ours to collect: no source is about it.
    victim.delete(capi.AWS_CLUSTERS, "prod")
    assert volume in {target.id for target in await clustered.planned(found)}


@pytest.mark.invariant(7)
async def test_a_list_of_all_namespaces_that_is_forbidden_holds_and_says_what_is_missing(
    clustered: Clustered, vpc: Vpc, api: TestApi, tmp_path: Path
) -> None:
    found = clustered.delete_marked("prod", vpc)
    async with Front(api) as front:
        way = ClusterSettings(kubeconfig=front.kubeconfig(tmp_path / "front"), context="local")
        async with await connect("local", way) as clustered.cluster:
            front.refuse(403, lambda _method, path: "/namespaces/" not in path and "/awsclusters" in path)
            async with clustered.side() as side:
                reason = (await clustered.held(found, side)).reason
                assert f"{AWS_CLUSTERS} can't be listed in all namespaces of cluster local" in reason
                assert "`knell role`" in reason
                hold = await side.collector.objects_to(await clustered.facts(found))
                assert hold is not None
                assert hold.reason == reason


async def test_a_namesake_of_an_identity_that_leads_elsewhere_is_none(
    clustered: Clustered, vpc: Vpc, elsewhere: Capi
) -> None:
    name = f"role-{elsewhere.namespace}"
    identity = {"kind": "AWSClusterRoleIdentity", "name": name}
    elsewhere.unmanaged("prod", region=REGION, identity=identity)
    found = clustered.delete_marked("prod", vpc)
    # It can't be told where it leads.
    assert f"{elsewhere.namespace}/prod" in (await clustered.held(found)).reason
    elsewhere.identity(
        capi.ROLE_IDENTITIES, name, {"roleARN": "arn:aws:iam::999999999999:role/tenant", "allowedNamespaces": {}}
    )
    await clustered.planned(found)


# ---- kinds that can't be listed


@pytest.fixture
async def without_eks(
    clustered: Clustered, embedded_server: TestServer, local_aws: LocalAws, tmp_path: Path
) -> AsyncIterator[tuple[Clustered, Capi]]:
    """On a server of their own where managed control planes are not installed, in the same account."""
    with EmbeddedApi() as server:
        api = TestApi("embedded", server)
        async with clusters_on(api, embedded_server, local_aws, tmp_path) as made:
            beside = Capi(api.kube, api.namespace())
            made.watch_also(beside.namespace)
            api.kube.delete(capi.AWS_MANAGED_CONTROL_PLANES.own_path)
            sources = {name: one for name, one in made.settings.sources.items() if one.resource == AWS_CLUSTERS}
            made.settings = msgspec.structs.replace(made.settings, sources=sources)
            yield made, beside


async def test_a_kind_that_is_not_installed_has_no_namesakes_and_the_other_kind_is_still_looked_at(
    without_eks: tuple[Clustered, Capi],
) -> None:
    clustered, beside = without_eks
    assert await clustered.cluster.crd_state(AWS_MANAGED_CONTROL_PLANES) == "absent"
    found = clustered.delete_marked("prod", await clustered.resources.vpc())
    await clustered.planned(found)
    beside.unmanaged("prod", region=REGION)
    assert f"{beside.namespace}/prod" in (await clustered.held(found)).reason


async def test_a_kind_that_is_installed_but_not_served_for_a_moment_may_have_namesakes(
    clustered: Clustered, vpc: Vpc, api: TestApi, tmp_path: Path
) -> None:
    found = clustered.delete_marked("prod", vpc)
    async with Front(api) as front:
        way = ClusterSettings(kubeconfig=front.kubeconfig(tmp_path / "front"), context="local")
        async with await connect("local", way) as clustered.cluster:
            group = AWS_MANAGED_CONTROL_PLANES.partition(".")[2]
            front.refuse(404, lambda _method, path: path.startswith(f"/apis/{group}"))
            reason = (await clustered.held(found)).reason
            assert f"{AWS_MANAGED_CONTROL_PLANES} of cluster local can't be listed now" in reason
            assert "its CRD is established" in reason
            front.pass_on()
            await clustered.planned(found)


@pytest.mark.invariant(9)
async def test_a_namesake_that_is_missing_in_a_restored_cluster_may_be_alive(
    clustered: Clustered, vpc: Vpc, api: TestApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, source = api.namespace(), next(iter(clustered.settings.sources))
    clustered.settings = msgspec.structs.replace(clustered.settings, watch=WatchSettings(namespace=home))

    def places() -> Places:
        return places_in(clustered.settings, {"local": clustered.cluster}, clustered.installation)

    monkeypatch.setattr(clustered, "places", places)
    found = clustered.delete_marked("prod", vpc)
    await clustered.planned(found)
    uid = made_lease(api.kube, home, share_lease(source, 0), 3)
    await noted(clustered.installation, clustered.identity, f"{home}/{share_lease(source, 0)}", uid, 9)
    assert "`knell clusters accept-restore local`" in (await clustered.held(found)).reason
