"""`knell kept` on AWS: forgetting removes the service's tag from the resources and then the record; listing shows both.
Resources carry the tags that a release, or another object's release, wrote."""

import random
from base64 import b64encode
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract import VERSION
from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG, KeepDecision, KeptResource, retained_value
from service.contract.names import DELETION_POLICY, PREFIX
from service.engine.kept_store import KeptStore
from service.sources.capa import AWS_CLUSTERS
from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION, AwsBuilder
from standins.aws.tags import by_cloud_provider, pairs
from tests.capi import CLUSTERS, STATIC_IDENTITIES
from tests.integration.capi_fixture import UNMANAGED, CapiFixture, marked
from tests.integration.command_line import CommandResult, knell
from tests.integration.test_aws_retention import known, retained
from tests.scenarios.aws.account_contents import account_contents

pytestmark = pytest.mark.long

UID = "0c9f4c0e-45f4-4d7c-9d43-3a76ad0d1c11"
OTHER = "e7f1b7a6-8f2e-4a4e-8a0e-5c0f7d0f2b22"


@pytest.fixture
def config(clusters: CapiFixture, tmp_path: Path) -> Path:
    """Settings for a command, in a file."""
    namespace = clusters.capi.namespace
    found = {
        "clusters": {"local": {"kubeconfig": str(clusters.settings.clusters["local"].kubeconfig), "context": "local"}},
        "features": {"ExternalResourceGC": True},
        "sources": {UNMANAGED: {"resource": AWS_CLUSTERS, "collector": "capa", "namespaces": [namespace]}},
        "aws": {"endpoint": clusters.aws.address, "identity_namespace": namespace},
    }  # fmt: skip
    path = tmp_path / "knell.yaml"
    path.write_bytes(msgspec.json.encode(found))
    return path


def place(clusters: CapiFixture, account: str = "") -> str:
    return f"aws/{account or clusters.account}/{REGION}"


async def forget(
    clusters: CapiFixture, config: Path, *words: str, name: str = "prod", account: str = ""
) -> CommandResult:
    called = f"{place(clusters, account)}/{name}"
    return await knell(clusters, "--config", str(config), "kept", "forget", called, "--yes", *words)


def value(uid: str = UID) -> str:
    return retained_value("cluster", AWS_CLUSTERS, "tenant", "prod", uid)


async def remember(clusters: CapiFixture, *resources: KeptResource, uid: str = UID, **given: Any) -> KeepDecision:
    decision = KeepDecision(**{
        "v": VERSION, "place": place(clusters), "name": "prod", "object": f"{AWS_CLUSTERS} tenant/prod", "uid": uid,
        "source": UNMANAGED, "why": "retain: so", "at": 1, "resources": resources, **given,
    })  # fmt: skip
    await KeptStore(clusters.installation).save(decision)
    return decision


async def tagged_volume(clusters: CapiFixture, uid: str = UID, **more: str) -> KeptResource:
    tags = {**by_cloud_provider("prod"), RETAINED_TAG: value(uid), **more}
    return KeptResource("aws.volume", await clusters.resources.volume(tags))


async def tags_of(builder: AwsBuilder, volume: str) -> Mapping[str, str]:
    (found,) = (await builder.ec2.describe_volumes(VolumeIds=[volume]))["Volumes"]
    return {tag["Key"]: tag["Value"] for tag in found.get("Tags", ())}


@pytest.mark.invariant(9)
@pytest.mark.invariant(10)
async def test_forgotten_resources_lose_tag_and_record_and_go_with_the_next_cluster_of_that_name(
    clusters: CapiFixture, stack: AsyncExitStack, config: Path
) -> None:
    clusters.set(tasks=("load-balancer", "target-group", "security-group", "volume"))
    vpc, of_service = await clusters.resources.vpc(), by_cloud_provider("prod", "default/web")
    balancer = await clusters.resources.balancer(vpc, of_service)
    classic = await clusters.resources.classic(vpc, of_service)
    target_group = await clusters.resources.target_group(vpc, of_service, behind=balancer)
    group = await clusters.resources.group(vpc, by_cloud_provider("prod"))
    volume = await clusters.resources.volume(by_cloud_provider("prod"))
    kept = {balancer, classic, target_group, group, volume}
    first = await clusters.going(retained(clusters, vpc))
    await clusters.work(stack)
    await clusters.until_done(first)
    assert all(
        RETAINED_TAG in text for one, text in (await account_contents(clusters.resources)).items() if one in kept
    )

    answer = await forget(clusters, config)
    assert answer.code == 0, answer.err
    assert "taken off 5 resources" in answer.out
    assert await known(clusters) == []
    found = {one: text for one, text in (await account_contents(clusters.resources)).items() if one in kept}
    assert found.keys() == kept
    assert not any(RETAINED_TAG in text for text in found.values())
    # The tags that identify the resources are all there.
    clusters.capi.delete(CLUSTERS, "prod")
    second = await clusters.going(clusters.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked()))
    await clusters.until_done(second)
    assert not kept & (await account_contents(clusters.resources)).keys()


@pytest.mark.invariant(10)
async def test_the_tag_of_another_object_and_a_protection_tag_stay(clusters: CapiFixture, config: Path) -> None:
    ours = await tagged_volume(clusters, **{PREVENT_DELETE_TAG: "true"})
    others = await tagged_volume(clusters, OTHER)
    gone = KeptResource("aws.volume", "vol-0123456789abcdef0")
    await remember(clusters, ours, others, gone)
    answer = await forget(clusters, config)
    assert answer.code == 0, answer.err
    assert f"aws.volume {others.id} keeps its tag, which is of another object: {value(OTHER)}" in answer.out
    assert await known(clusters) == []
    assert await tags_of(clusters.resources, ours.id) == {**by_cloud_provider("prod"), PREVENT_DELETE_TAG: "true"}
    assert (await tags_of(clusters.resources, others.id))[RETAINED_TAG] == value(OTHER)


@pytest.mark.invariant(10)
async def test_a_tag_that_another_decision_of_that_name_needs_stays(clusters: CapiFixture, config: Path) -> None:
    one, two = await tagged_volume(clusters), await tagged_volume(clusters)
    await remember(clusters, one, two)
    # The later object was kept, too; the earlier one's tag was there already.
    await remember(clusters, one, uid=OTHER)
    answer = await forget(clusters, config, "--uid", UID)
    assert answer.code == 0, answer.err
    assert f"aws.volume {one.id} keeps its tag" in answer.out
    assert [each.uid for each in await known(clusters)] == [OTHER]
    assert RETAINED_TAG in await tags_of(clusters.resources, one.id)
    assert RETAINED_TAG not in await tags_of(clusters.resources, two.id)


@pytest.mark.invariant(10)
async def test_of_several_decisions_of_a_name_only_the_chosen_one_is_lifted(
    clusters: CapiFixture, config: Path
) -> None:
    one, two = await tagged_volume(clusters), await tagged_volume(clusters, OTHER)
    # The later object found what the earlier one had tagged, and named it as kept, too.
    await remember(clusters, one)
    await remember(clusters, one, two, uid=OTHER)
    answer = await forget(clusters, config, "--uid", OTHER)
    assert answer.code == 0, answer.err
    assert [each.uid for each in await known(clusters)] == [UID]
    assert RETAINED_TAG in await tags_of(clusters.resources, one.id)
    assert RETAINED_TAG not in await tags_of(clusters.resources, two.id)


@pytest.mark.invariant(10)
@pytest.mark.parametrize("fault", [
    AwsFault(what="deny", action="ec2.DeleteTags"), AwsFault(what="deny", action="ec2.DescribeVolumes"),
    AwsFault(what="error", action="ec2.DeleteTags", code="InternalError", status=500),
])  # fmt: skip
async def test_a_tag_that_can_not_be_taken_off_leaves_the_record_and_names_the_command(
    clusters: CapiFixture, config: Path, fault: AwsFault
) -> None:
    volume, balancer = await tagged_volume(clusters), await clusters.resources.balancer(
        await clusters.resources.vpc(), {**by_cloud_provider("prod", "default/web"), RETAINED_TAG: value()}
    )  # fmt: skip
    decision = await remember(clusters, volume, KeptResource("aws.balancer", balancer))
    await clusters.aws.set_faults(msgspec.structs.replace(fault, account=clusters.account))
    answer = await forget(clusters, config)
    assert answer.code == 1
    by_hand = f"aws ec2 delete-tags --region {REGION} --resources {volume.id} --tags Key={RETAINED_TAG}"
    assert f"aws.volume {volume.id} may still carry the tag: {fault.action.replace('.', ':')}: " in answer.err
    assert by_hand in answer.err
    assert "--record-only" in answer.err
    assert await known(clusters) == [decision]
    # What could be untagged is; the same command does the rest later.
    assert RETAINED_TAG not in (await account_contents(clusters.resources))[balancer]
    await clusters.aws.set_faults()
    answer = await forget(clusters, config)
    assert answer.code == 0, answer.err
    assert await known(clusters) == []
    assert RETAINED_TAG not in await tags_of(clusters.resources, volume.id)


async def test_a_command_that_ended_between_the_tags_and_the_record_can_be_repeated(
    clusters: CapiFixture, config: Path
) -> None:
    volume = await tagged_volume(clusters)
    decision = await remember(clusters, volume)
    # The tag is removed, and the command never gets the response.
    await clusters.aws.set_faults(AwsFault(what="lost", action="ec2.DeleteTags", account=clusters.account, times=1))
    assert (await forget(clusters, config)).code == 1
    assert RETAINED_TAG not in await tags_of(clusters.resources, volume.id)
    assert await known(clusters) == [decision]
    answer = await forget(clusters, config)
    assert answer.code == 0, answer.err
    assert await known(clusters) == []


async def test_the_record_alone_is_forgotten_without_any_call_to_aws(
    clusters: CapiFixture, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    volume = await tagged_volume(clusters)
    decision = await remember(clusters, volume)
    answer = await forget(clusters, config)
    assert (answer.code, await known(clusters)) == (1, [decision])
    assert f"--resources {volume.id} " in answer.err
    answer = await forget(clusters, config, "--record-only")
    assert answer.code == 0, answer.err
    assert f"--resources {volume.id} " in answer.out
    assert await known(clusters) == []
    assert RETAINED_TAG in await tags_of(clusters.resources, volume.id)
    assert await clusters.calls() == 0


@pytest.mark.invariant(8)
async def test_nothing_is_touched_in_another_account_than_that_of_the_record(
    clusters: CapiFixture, config: Path
) -> None:
    volume = await tagged_volume(clusters)
    await remember(clusters, volume, place=place(clusters, "999999999999"))
    answer = await forget(clusters, config, account="999999999999")
    assert answer.code == 1
    assert "the resources are in account 999999999999" in answer.err
    assert RETAINED_TAG in await tags_of(clusters.resources, volume.id)


async def test_an_account_is_reached_by_the_identity_of_the_object_which_its_record_names(
    clusters: CapiFixture, stack: AsyncExitStack, config: Path
) -> None:
    account, namespace = f"{random.randrange(10**11, 10**12)}", clusters.capi.namespace
    clusters.set(identity_namespace=namespace)
    key = {"AccessKeyID": f"AKIA{account}", "SecretAccessKey": "any"}
    data = {name: b64encode(text.encode()).decode() for name, text in key.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "data": data}
    clusters.api.kube.create(f"/api/v1/namespaces/{namespace}/secrets", body)
    kind, name = STATIC_IDENTITIES.kind, f"i{namespace}"
    clusters.capi.identity(
        STATIC_IDENTITIES, name, {"secretRef": "key", "allowedNamespaces": {"list": [namespace]}}
    )  # fmt: skip
    async with AwsBuilder(clusters.aws.address, account=account, region=REGION) as builder:
        vpc, volume = await builder.vpc(), await builder.volume(by_cloud_provider("prod"))
        made = clusters.capi.unmanaged(
            "prod", region=REGION, vpc=vpc.id, identity={"kind": kind, "name": name},
            **marked(annotations={f"{PREFIX}/{DELETION_POLICY}": "retain"}),
        )  # fmt: skip
        one = await clusters.going(made)
        await clusters.work(stack)
        await clusters.until_done(one)
        assert RETAINED_TAG in await tags_of(builder, volume)
        (decision,) = await KeptStore(clusters.installation).decisions(place(clusters, account), "prod")
        assert decision.identity == f"{kind}/{name}"
        answer = await forget(clusters, config, account=account)
        assert answer.code == 0, answer.err
        assert RETAINED_TAG not in await tags_of(builder, volume)


@pytest.mark.invariant(10)
async def test_tags_that_an_incomplete_record_does_not_name_are_taken_off_as_well(
    clusters: CapiFixture, config: Path
) -> None:
    volume, others = await tagged_volume(clusters), await tagged_volume(clusters, OTHER)
    decision = await remember(clusters, remark="not marked: ec2:CreateTags: InternalError")
    denied = AwsFault(what="deny", action="ec2.DescribeVolumes", account=clusters.account)
    await clusters.aws.set_faults(denied)
    answer = await forget(clusters, config)
    assert (answer.code, await known(clusters)) == (1, [decision])
    assert "aws.volume any other may still carry the tag" in answer.err
    await clusters.aws.set_faults()
    answer = await forget(clusters, config)
    assert answer.code == 0, answer.err
    assert await known(clusters) == []
    assert RETAINED_TAG not in await tags_of(clusters.resources, volume.id)
    assert RETAINED_TAG in await tags_of(clusters.resources, others.id)


async def test_a_record_that_can_not_be_read_goes_only_by_itself(clusters: CapiFixture, config: Path) -> None:
    memory, name = KeptStore(clusters.installation), f"{place(clusters)}/prod"
    await clusters.client.hset(memory.key, name, "earlier {")
    answer = await forget(clusters, config)
    assert answer.code == 1
    assert "--record-only" in answer.err
    assert (await forget(clusters, config, "--record-only")).code == 0
    assert await known(clusters) == []


# ---- list


async def test_the_list_shows_what_is_tagged_and_what_is_not_and_fits_a_terminal(
    clusters: CapiFixture, config: Path
) -> None:
    denied = KeptResource("aws.volume", "vol-2", "not tagged: ec2:CreateTags: UnauthorizedOperation")
    await remember(clusters, KeptResource("aws.volume", "vol-1"), denied)
    answer = await knell(clusters, "--config", str(config), "kept", "list")
    assert answer.code == 0, answer.err
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    rows = {line.split()[1]: line for line in answer.out.splitlines() if line.startswith("aws.volume")}
    assert "not tagged" not in rows["vol-1"]
    assert "tagged" in rows["vol-1"]
    assert "not tagged: ec2:CreateTags" in rows["vol-2"]
    assert "2 known, 1 not tagged" in answer.out


async def test_tags_without_a_record_are_found_in_the_given_place(clusters: CapiFixture, config: Path) -> None:
    known_one, lost = await tagged_volume(clusters), await tagged_volume(clusters, OTHER)
    words = ("--config", str(config), "kept", "list", "--tags", "--output", "json")
    assert (await knell(clusters, *words)).json == {"kept": [], "unrecorded": [], "unread": []}
    await remember(clusters, known_one)
    await clusters.aws.set_faults(AwsFault(what="deny", action="ec2.DescribeAddresses", account=clusters.account))
    found = (await knell(clusters, *words)).json
    assert [(one["id"], one["value"]) for one in found["unrecorded"]] == [(lost.id, value(OTHER))]
    assert f"--resources {lost.id} " in found["unrecorded"][0]["command"]
    (unread,) = found["unread"]
    assert unread["place"] == place(clusters)
    assert unread["why"].startswith("aws.elastic-ip: ec2:DescribeAddresses: ")
    # After Redis was lost nothing says where to search, but an operator can.
    await KeptStore(clusters.installation).remove(f"{place(clusters)}/prod", UID)
    found = (await knell(clusters, *words, "--place", place(clusters))).json
    assert {one["id"] for one in found["unrecorded"]} == {known_one.id, lost.id}


async def test_where_to_look_must_be_a_place(clusters: CapiFixture, config: Path) -> None:
    for words in (["--tags", "--place", "aws/1"], ["--place", place(clusters)]):
        assert (await knell(clusters, "--config", str(config), "kept", "list", *words)).code == 2


async def test_in_the_stand_in_tags_go_as_at_aws(clusters: CapiFixture) -> None:
    ec2, volume = clusters.resources.ec2, (await tagged_volume(clusters)).id
    await ec2.delete_tags(Resources=[volume], Tags=[{"Key": RETAINED_TAG, "Value": "another"}])
    assert RETAINED_TAG in await tags_of(clusters.resources, volume)
    await ec2.delete_tags(Resources=[volume], Tags=pairs({RETAINED_TAG: value()}))
    assert await tags_of(clusters.resources, volume) == by_cloud_provider("prod")
    # A request without tag keys removes all tags: IAM must refuse it.
    await ec2.delete_tags(Resources=[volume])
    assert await tags_of(clusters.resources, volume) == {}
