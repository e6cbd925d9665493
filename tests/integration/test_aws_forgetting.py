"""`knell kept` on AWS: forgetting takes the service's tag off the resources and then removes the record; listing shows
both. Resources carry the tags that a release, or another object's release, wrote."""

import random
from base64 import b64encode
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract import VERSION
from service.contract.aws import AWS_CLUSTERS
from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG, Decision, KeptResource, retained_value
from service.contract.names import DELETION_POLICY, PREFIX
from service.engine.kept import KeptMemory
from standins.aws.behaviour import Fault
from standins.aws.tags import by_cloud_provider, pairs
from standins.aws.world import REGION, World
from tests.capi import CLUSTERS, STATIC_IDENTITIES
from tests.integration.clustered import UNMANAGED, Clustered, marked
from tests.integration.operating import Answer, knell
from tests.integration.test_aws_kept import known, retained
from tests.scenarios.aws.holdings import holdings

UID = "0c9f4c0e-45f4-4d7c-9d43-3a76ad0d1c11"
OTHER = "e7f1b7a6-8f2e-4a4e-8a0e-5c0f7d0f2b22"


@pytest.fixture
def config(clustered: Clustered, tmp_path: Path) -> Path:
    """Settings for a command, in a file."""
    namespace = clustered.capi.namespace
    found = {
        "clusters": {"local": {"kubeconfig": str(clustered.settings.clusters["local"].kubeconfig), "context": "local"}},
        "features": {"ExternalResourceGC": True},
        "sources": {UNMANAGED: {"resource": AWS_CLUSTERS, "collector": "capa", "namespaces": [namespace]}},
        "aws": {"endpoint": clustered.aws.address, "identity_namespace": namespace},
    }  # fmt: skip
    path = tmp_path / "knell.yaml"
    path.write_bytes(msgspec.json.encode(found))
    return path


def place(clustered: Clustered, account: str = "") -> str:
    return f"aws/{account or clustered.account}/{REGION}"


async def forget(clustered: Clustered, config: Path, *words: str, name: str = "prod", account: str = "") -> Answer:
    called = f"{place(clustered, account)}/{name}"
    return await knell(clustered, "--config", str(config), "kept", "forget", called, "--yes", *words)


def value(uid: str = UID) -> str:
    return retained_value("cluster", AWS_CLUSTERS, "tenant", "prod", uid)


async def remember(clustered: Clustered, *resources: KeptResource, uid: str = UID, **given: Any) -> Decision:
    decision = Decision(**{
        "v": VERSION, "place": place(clustered), "name": "prod", "object": f"{AWS_CLUSTERS} tenant/prod", "uid": uid,
        "source": UNMANAGED, "why": "retain: so", "at": 1, "resources": resources, **given,
    })  # fmt: skip
    await KeptMemory(clustered.installation).remember(decision)
    return decision


async def tagged_volume(clustered: Clustered, uid: str = UID, **more: str) -> KeptResource:
    tags = {**by_cloud_provider("prod"), RETAINED_TAG: value(uid), **more}
    return KeptResource("aws.volume", await clustered.resources.volume(tags))


async def tags_of(world: World, volume: str) -> Mapping[str, str]:
    (found,) = (await world.ec2.describe_volumes(VolumeIds=[volume]))["Volumes"]
    return {tag["Key"]: tag["Value"] for tag in found.get("Tags", ())}


@pytest.mark.invariant(9)
@pytest.mark.invariant(10)
async def test_forgotten_resources_lose_tag_and_record_and_go_with_the_next_cluster_of_that_name(
    clustered: Clustered, stack: AsyncExitStack, config: Path
) -> None:
    clustered.set(tasks=("load-balancer", "target-group", "security-group", "volume"))
    vpc, of_service = await clustered.resources.vpc(), by_cloud_provider("prod", "default/web")
    balancer = await clustered.resources.balancer(vpc, of_service)
    classic = await clustered.resources.classic(vpc, of_service)
    target_group = await clustered.resources.target_group(vpc, of_service, behind=balancer)
    group = await clustered.resources.group(vpc, by_cloud_provider("prod"))
    volume = await clustered.resources.volume(by_cloud_provider("prod"))
    kept = {balancer, classic, target_group, group, volume}
    first = await clustered.going(retained(clustered, vpc))
    await clustered.work(stack)
    await clustered.until_done(first)
    assert all(RETAINED_TAG in text for one, text in (await holdings(clustered.resources)).items() if one in kept)

    answer = await forget(clustered, config)
    assert answer.code == 0, answer.err
    assert "taken off 5 resources" in answer.out
    assert await known(clustered) == []
    found = {one: text for one, text in (await holdings(clustered.resources)).items() if one in kept}
    assert found.keys() == kept
    assert not any(RETAINED_TAG in text for text in found.values())
    # The tags by which the resources are recognised are all there.
    clustered.capi.delete(CLUSTERS, "prod")
    second = await clustered.going(clustered.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clustered.until_done(second)
    assert not kept & (await holdings(clustered.resources)).keys()


@pytest.mark.invariant(10)
async def test_the_tag_of_another_object_and_the_tag_of_a_person_stay(clustered: Clustered, config: Path) -> None:
    ours = await tagged_volume(clustered, **{PREVENT_DELETE_TAG: "true"})
    others = await tagged_volume(clustered, OTHER)
    gone = KeptResource("aws.volume", "vol-0123456789abcdef0")
    await remember(clustered, ours, others, gone)
    answer = await forget(clustered, config)
    assert answer.code == 0, answer.err
    assert f"aws.volume {others.id} keeps its tag, which is of another object: {value(OTHER)}" in answer.out
    assert await known(clustered) == []
    assert await tags_of(clustered.resources, ours.id) == {**by_cloud_provider("prod"), PREVENT_DELETE_TAG: "true"}
    assert (await tags_of(clustered.resources, others.id))[RETAINED_TAG] == value(OTHER)


@pytest.mark.invariant(10)
async def test_a_tag_that_another_decision_of_that_name_needs_stays(clustered: Clustered, config: Path) -> None:
    one, two = await tagged_volume(clustered), await tagged_volume(clustered)
    await remember(clustered, one, two)
    # The later object was kept, too; the earlier one's tag was there already.
    await remember(clustered, one, uid=OTHER)
    answer = await forget(clustered, config, "--uid", UID)
    assert answer.code == 0, answer.err
    assert f"aws.volume {one.id} keeps its tag" in answer.out
    assert [each.uid for each in await known(clustered)] == [OTHER]
    assert RETAINED_TAG in await tags_of(clustered.resources, one.id)
    assert RETAINED_TAG not in await tags_of(clustered.resources, two.id)


@pytest.mark.invariant(10)
async def test_of_several_decisions_of_a_name_only_the_chosen_one_is_lifted(clustered: Clustered, config: Path) -> None:
    one, two = await tagged_volume(clustered), await tagged_volume(clustered, OTHER)
    # The later object found what the earlier one had tagged, and named it as kept, too.
    await remember(clustered, one)
    await remember(clustered, one, two, uid=OTHER)
    answer = await forget(clustered, config, "--uid", OTHER)
    assert answer.code == 0, answer.err
    assert [each.uid for each in await known(clustered)] == [UID]
    assert RETAINED_TAG in await tags_of(clustered.resources, one.id)
    assert RETAINED_TAG not in await tags_of(clustered.resources, two.id)


@pytest.mark.invariant(10)
@pytest.mark.parametrize("fault", [
    Fault(what="deny", action="ec2.DeleteTags"), Fault(what="deny", action="ec2.DescribeVolumes"),
    Fault(what="error", action="ec2.DeleteTags", code="InternalError", status=500),
])  # fmt: skip
async def test_a_tag_that_can_not_be_taken_off_leaves_the_record_and_names_the_command(
    clustered: Clustered, config: Path, fault: Fault
) -> None:
    volume, balancer = await tagged_volume(clustered), await clustered.resources.balancer(
        await clustered.resources.vpc(), {**by_cloud_provider("prod", "default/web"), RETAINED_TAG: value()}
    )  # fmt: skip
    decision = await remember(clustered, volume, KeptResource("aws.balancer", balancer))
    await clustered.aws.trouble(msgspec.structs.replace(fault, account=clustered.account))
    answer = await forget(clustered, config)
    assert answer.code == 1
    by_hand = f"aws ec2 delete-tags --region {REGION} --resources {volume.id} --tags Key={RETAINED_TAG}"
    assert f"aws.volume {volume.id} may still carry the tag: {fault.action.replace('.', ':')}: " in answer.err
    assert by_hand in answer.err
    assert "--record-only" in answer.err
    assert await known(clustered) == [decision]
    # What could be freed is; what is left is freed by the same command later.
    assert RETAINED_TAG not in (await holdings(clustered.resources))[balancer]
    await clustered.aws.trouble()
    answer = await forget(clustered, config)
    assert answer.code == 0, answer.err
    assert await known(clustered) == []
    assert RETAINED_TAG not in await tags_of(clustered.resources, volume.id)


async def test_a_command_that_ended_between_the_tags_and_the_record_can_be_repeated(
    clustered: Clustered, config: Path
) -> None:
    volume = await tagged_volume(clustered)
    decision = await remember(clustered, volume)
    # The tag goes, and the command never hears of it.
    await clustered.aws.trouble(Fault(what="lost", action="ec2.DeleteTags", account=clustered.account, times=1))
    assert (await forget(clustered, config)).code == 1
    assert RETAINED_TAG not in await tags_of(clustered.resources, volume.id)
    assert await known(clustered) == [decision]
    answer = await forget(clustered, config)
    assert answer.code == 0, answer.err
    assert await known(clustered) == []


async def test_the_record_alone_is_forgotten_without_any_call_to_aws(
    clustered: Clustered, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    volume = await tagged_volume(clustered)
    decision = await remember(clustered, volume)
    answer = await forget(clustered, config)
    assert (answer.code, await known(clustered)) == (1, [decision])
    assert f"--resources {volume.id} " in answer.err
    answer = await forget(clustered, config, "--record-only")
    assert answer.code == 0, answer.err
    assert f"--resources {volume.id} " in answer.out
    assert await known(clustered) == []
    assert RETAINED_TAG in await tags_of(clustered.resources, volume.id)
    assert await clustered.calls() == 0


@pytest.mark.invariant(8)
async def test_nothing_is_touched_in_another_account_than_that_of_the_record(
    clustered: Clustered, config: Path
) -> None:
    volume = await tagged_volume(clustered)
    await remember(clustered, volume, place=place(clustered, "999999999999"))
    answer = await forget(clustered, config, account="999999999999")
    assert answer.code == 1
    assert "the resources are in account 999999999999" in answer.err
    assert RETAINED_TAG in await tags_of(clustered.resources, volume.id)


async def test_an_account_is_reached_by_the_identity_of_the_object_which_its_record_names(
    clustered: Clustered, stack: AsyncExitStack, config: Path
) -> None:
    account, namespace = f"{random.randrange(10**11, 10**12)}", clustered.capi.namespace
    clustered.set(identity_namespace=namespace)
    key = {"AccessKeyID": f"AKIA{account}", "SecretAccessKey": "any"}
    data = {name: b64encode(text.encode()).decode() for name, text in key.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "data": data}
    clustered.api.kube.create(f"/api/v1/namespaces/{namespace}/secrets", body)
    kind, name = STATIC_IDENTITIES.kind, f"i{namespace}"
    clustered.capi.identity(
        STATIC_IDENTITIES, name, {"secretRef": "key", "allowedNamespaces": {"list": [namespace]}}
    )  # fmt: skip
    async with World(clustered.aws.address, account=account, region=REGION) as world:
        vpc, volume = await world.vpc(), await world.volume(by_cloud_provider("prod"))
        made = clustered.capi.unmanaged(
            "prod", region=REGION, vpc=vpc.id, identity={"kind": kind, "name": name},
            **marked(annotations={f"{PREFIX}/{DELETION_POLICY}": "retain"}),
        )  # fmt: skip
        one = await clustered.going(made)
        await clustered.work(stack)
        await clustered.until_done(one)
        assert RETAINED_TAG in await tags_of(world, volume)
        (decision,) = await KeptMemory(clustered.installation).decisions(place(clustered, account), "prod")
        assert decision.identity == f"{kind}/{name}"
        answer = await forget(clustered, config, account=account)
        assert answer.code == 0, answer.err
        assert RETAINED_TAG not in await tags_of(world, volume)


@pytest.mark.invariant(10)
async def test_tags_that_an_incomplete_record_does_not_name_are_taken_off_as_well(
    clustered: Clustered, config: Path
) -> None:
    volume, others = await tagged_volume(clustered), await tagged_volume(clustered, OTHER)
    decision = await remember(clustered, remark="not marked: ec2:CreateTags: InternalError")
    denied = Fault(what="deny", action="ec2.DescribeVolumes", account=clustered.account)
    await clustered.aws.trouble(denied)
    answer = await forget(clustered, config)
    assert (answer.code, await known(clustered)) == (1, [decision])
    assert "aws.volume any other may still carry the tag" in answer.err
    await clustered.aws.trouble()
    answer = await forget(clustered, config)
    assert answer.code == 0, answer.err
    assert await known(clustered) == []
    assert RETAINED_TAG not in await tags_of(clustered.resources, volume.id)
    assert RETAINED_TAG in await tags_of(clustered.resources, others.id)


async def test_a_record_that_can_not_be_read_goes_only_by_itself(clustered: Clustered, config: Path) -> None:
    memory, name = KeptMemory(clustered.installation), f"{place(clustered)}/prod"
    await clustered.client.hset(memory.key, name, "earlier {")
    answer = await forget(clustered, config)
    assert answer.code == 1
    assert "--record-only" in answer.err
    assert (await forget(clustered, config, "--record-only")).code == 0
    assert await known(clustered) == []


# ---- list


async def test_the_list_shows_what_is_tagged_and_what_is_not_and_fits_a_terminal(
    clustered: Clustered, config: Path
) -> None:
    denied = KeptResource("aws.volume", "vol-2", "not tagged: ec2:CreateTags: UnauthorizedOperation")
    await remember(clustered, KeptResource("aws.volume", "vol-1"), denied)
    answer = await knell(clustered, "--config", str(config), "kept", "list")
    assert answer.code == 0, answer.err
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    rows = {line.split()[1]: line for line in answer.out.splitlines() if line.startswith("aws.volume")}
    assert "not tagged" not in rows["vol-1"]
    assert "tagged" in rows["vol-1"]
    assert "not tagged: ec2:CreateTags" in rows["vol-2"]
    assert "2 known, 1 not tagged" in answer.out


async def test_tags_without_a_record_are_found_where_it_is_asked_for(clustered: Clustered, config: Path) -> None:
    known_one, lost = await tagged_volume(clustered), await tagged_volume(clustered, OTHER)
    words = ("--config", str(config), "kept", "list", "--tags", "--output", "json")
    assert (await knell(clustered, *words)).json == {"kept": [], "unrecorded": [], "unread": []}
    await remember(clustered, known_one)
    await clustered.aws.trouble(Fault(what="deny", action="ec2.DescribeAddresses", account=clustered.account))
    found = (await knell(clustered, *words)).json
    assert [(one["id"], one["value"]) for one in found["unrecorded"]] == [(lost.id, value(OTHER))]
    assert f"--resources {lost.id} " in found["unrecorded"][0]["command"]
    (unread,) = found["unread"]
    assert unread["place"] == place(clustered)
    assert unread["why"].startswith("aws.elastic-ip: ec2:DescribeAddresses: ")
    # After Redis was lost nothing says where to look, but a person can.
    await KeptMemory(clustered.installation).forget(f"{place(clustered)}/prod", UID)
    found = (await knell(clustered, *words, "--place", place(clustered))).json
    assert {one["id"] for one in found["unrecorded"]} == {known_one.id, lost.id}


async def test_where_to_look_must_be_a_place(clustered: Clustered, config: Path) -> None:
    for words in (["--tags", "--place", "aws/1"], ["--place", place(clustered)]):
        assert (await knell(clustered, "--config", str(config), "kept", "list", *words)).code == 2


async def test_in_the_stand_in_tags_go_as_at_aws(clustered: Clustered) -> None:
    ec2, volume = clustered.resources.ec2, (await tagged_volume(clustered)).id
    await ec2.delete_tags(Resources=[volume], Tags=[{"Key": RETAINED_TAG, "Value": "another"}])
    assert RETAINED_TAG in await tags_of(clustered.resources, volume)
    await ec2.delete_tags(Resources=[volume], Tags=pairs({RETAINED_TAG: value()}))
    assert await tags_of(clustered.resources, volume) == by_cloud_provider("prod")
    # A request that names no tag takes off all: IAM must not let it pass.
    await ec2.delete_tags(Resources=[volume])
    assert await tags_of(clustered.resources, volume) == {}
