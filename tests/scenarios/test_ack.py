"""Objects of ACK through the whole service, with elastic IPs of EC2: what ACK leaves behind is removed by its
identifier, and nothing that the object does not prove to be its own."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from service.contract.kept import RETAINED_TAG
from service.engine.inventory import Inventory
from service.engine.kept_store import KeptStore
from service.sources.ack import ACCOUNT_MAP, ACK, ADOPTED, CONTROLLER_TAG, NAMESPACE_TAG, OWNER_ACCOUNT
from standins.aws import AssumableRole, LocalAws
from standins.aws.builder import REGION, AwsBuilder
from tests.api_servers import TestApi
from tests.redis_servers import TestServer
from tests.scenarios.ack_scenario import ELASTIC_IPS, SOURCE, AckScenario
from tests.scenarios.own_account import own_account

__all__ = ["own_account"]

ACK_FINALIZER: Final = "finalizers.ec2.services.k8s.aws/ElasticIPAddress"
POLICY: Final = "services.k8s.aws/deletion-policy"


@pytest.fixture
async def ack(
    api: TestApi, embedded_server: TestServer, local_aws: LocalAws, own_account: AwsBuilder, tmp_path: Path
) -> AsyncIterator[AckScenario]:
    made = AckScenario(api, embedded_server, local_aws, own_account, tmp_path)
    try:
        yield made
    finally:
        await made.aclose()


# ---- observed


async def test_what_ack_left_behind_goes_and_nothing_else(ack: AckScenario) -> None:
    await ack.start()
    mine, other, foreign = await ack.address(), await ack.address(), await ack.address(owner="x")
    await ack.seen("mine", mine)
    await ack.seen("other", other)
    await ack.delete("mine")
    await ack.until_gone(mine)
    await ack.until_done()
    assert set(await ack.there()) == {other, foreign}


@pytest.mark.long
async def test_what_ack_removed_itself_is_proven_gone(ack: AckScenario) -> None:
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine)
    await ack.builder.ec2.release_address(AllocationId=mine)
    await ack.delete("mine")
    await ack.until_done()


@pytest.mark.long
async def test_a_lost_status_that_ack_takes_for_not_found_leaves_nothing_behind(ack: AckScenario) -> None:
    """Without an id in the status ACK does not call AWS, and drops its finalizer."""
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine, finalizers=[ACK_FINALIZER])
    await asyncio.to_thread(
        ack.kube.patch, f"{ack.path('mine')}/status", {"status": {"allocationID": None, "conditions": []}}
    )
    await ack.delete("mine")
    await ack.patch("mine", finalizers=[])
    await ack.until_gone(mine)
    await ack.until_done()


@pytest.mark.invariant(8)
@pytest.mark.long
async def test_an_object_that_was_never_synced_is_held(ack: AckScenario) -> None:
    await ack.start()
    mine = await ack.address()
    await ack.object("mine", mine, synced="False")
    await ack.delete("mine")
    await ack.until_held("the inventory never saw it synced")
    assert mine in await ack.there()


@pytest.mark.invariant(2)
@pytest.mark.long
async def test_an_address_with_the_tags_of_another_namespace_is_refused(ack: AckScenario) -> None:
    await ack.start()
    theirs = await ack.address(**{NAMESPACE_TAG: "elsewhere", CONTROLLER_TAG: "ec2-v1.4.0"})
    await ack.seen("mine", theirs)
    await ack.delete("mine")
    await ack.until_job(f"{theirs} is not tagged {NAMESPACE_TAG}={ack.namespace}")
    assert theirs in await ack.there()


@pytest.mark.invariant(11)
@pytest.mark.long
async def test_another_account_than_the_credentials_is_held(ack: AckScenario) -> None:
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine, account="999999999999")
    await ack.delete("mine")
    await ack.until_held(
        "its status says account 999999999999", f"the credentials are of account {ack.builder.account}"
    )
    assert mine in await ack.there()


@pytest.mark.invariant(11)
@pytest.mark.long
async def test_a_namespace_of_another_account_is_held_without_a_role(ack: AckScenario) -> None:
    body = {"metadata": {"annotations": {OWNER_ACCOUNT: "999999999999"}}}
    await asyncio.to_thread(ack.kube.patch, f"/api/v1/namespaces/{ack.namespace}", body)
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine)
    await ack.delete("mine")
    await ack.until_held(f"lead namespace {ack.namespace} to account 999999999999")
    assert mine in await ack.there()


@pytest.mark.invariant(9)
@pytest.mark.long
async def test_an_address_that_an_object_in_another_namespace_names_too_is_held(ack: AckScenario, api: TestApi) -> None:
    await ack.start()
    mine, elsewhere = await ack.address(), api.namespace()
    await ack.seen("mine", mine)
    await ack.object("twin", mine, namespace=elsewhere)
    await ack.delete("mine")
    await ack.until_held(f"{ELASTIC_IPS.resource} {elsewhere}/{ack.name('twin')} of cluster here names {mine} as well")
    assert mine in await ack.there()
    await asyncio.to_thread(ack.kube.delete, ack.path("twin", elsewhere))
    await ack.until_gone(mine)


@pytest.mark.long
async def test_an_adopted_object_is_held(ack: AckScenario) -> None:
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine, annotations={ADOPTED: "true"})
    await ack.delete("mine")
    await ack.until_held(f"annotation {ADOPTED} says 'true'")
    assert mine in await ack.there()


@pytest.mark.long
async def test_leftovers_of_a_deleted_namespace_go_too(ack: AckScenario) -> None:
    await ack.start()
    mine = [await ack.address() for _ in range(12)]
    for number, one in enumerate(mine):
        await ack.seen(f"b{number}", one, finalizers=[ACK_FINALIZER] if number % 2 else [])
    foreign = await ack.address(owner="x")
    await asyncio.to_thread(ack.kube.delete, f"/api/v1/namespaces/{ack.namespace}")

    async def going() -> bool:
        found = [await ack.read(f"b{number}") for number in range(12)]
        return all(one is None or one["metadata"].get("deletionTimestamp") for one in found)

    await ack.until("all objects are going", going)
    for number in range(1, 12, 2):
        await ack.patch(f"b{number}", finalizers=[])
    await ack.until_gone(*mine)
    await ack.until_done(12)
    assert set(await ack.there()) == {foreign}


@pytest.mark.long
async def test_an_address_of_another_account_goes_by_the_role_of_acks_map(ack: AckScenario) -> None:
    account = str(uuid.uuid4().int)[-12:]
    role = f"arn:aws:iam::{account}:role/ack"
    trusted = {role: msgspec.to_builtins(AssumableRole(principals=(ack.builder.account,)))}
    await ack.aws.behave(roles=trusted)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ACCOUNT_MAP}, "data": {account: role}}
    await asyncio.to_thread(ack.kube.create, f"/api/v1/namespaces/{ack.system}/configmaps", config)
    owner = {"metadata": {"annotations": {OWNER_ACCOUNT: account}}}
    await asyncio.to_thread(ack.kube.patch, f"/api/v1/namespaces/{ack.namespace}", owner)
    await ack.start()
    async with AwsBuilder(ack.aws.address, account=account, region=REGION) as theirs:
        mine, elsewhere = ack.builder, await ack.address()
        ack.builder = theirs
        address = await ack.address()
        await ack.seen("mine", address)
        await ack.delete("mine")
        await ack.until_gone(address)
        await ack.until_done()
        ack.builder = mine
    assert elsewhere in await ack.there()


# ---- policy


@pytest.mark.invariant(10)
async def test_what_is_retained_stays_is_marked_and_holds_a_later_object_that_names_it(ack: AckScenario) -> None:
    await ack.start()
    mine = await ack.address()
    uid = await ack.seen("mine", mine, annotations={POLICY: "retain"})
    await ack.delete("mine")
    await ack.until_done()
    assert uid in (await ack.there())[mine][RETAINED_TAG]
    place, name = f"aws/{ack.builder.account}/{REGION}", f"aws.elastic-ip:{mine}"
    (kept,) = await KeptStore(ack.installation).decisions(place, name)
    assert kept.uid == uid
    await ack.seen("later", mine)
    await ack.delete("later")
    await ack.until_held("knell kept forget")
    assert mine in await ack.there()


@pytest.mark.parametrize(
    ("args", "stays"),
    [((), False), (("--deletion-policy", "delete"), False), (("--deletion-policy=retain",), True)],
)
async def test_without_a_setting_the_controllers_own_policy_counts(
    ack: AckScenario, args: tuple[str, ...], stays: bool
) -> None:
    del ack.document["policy"]
    await ack.controller(*args)
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine)
    await ack.delete("mine")
    await ack.until_done()
    assert (mine in await ack.there()) is stays


@pytest.mark.invariant(7)
@pytest.mark.long
async def test_without_setting_and_controller_it_is_held_until_there_is_one(ack: AckScenario) -> None:
    del ack.document["policy"]
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine)
    await ack.delete("mine")
    await ack.until_held(f"there is no controller of ACK for ec2 in namespace {ack.system}", "policy.services.ec2")
    assert mine in await ack.there()
    await ack.controller()
    await ack.until_gone(mine)


# ---- finalizer mode


async def test_in_finalizer_mode_the_object_stays_until_its_address_is_gone(ack: AckScenario) -> None:
    ack.document["sources"][SOURCE]["mode"] = "finalizer"
    ack.document["watch"]["relist"] = "1s"
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine)
    await ack.until_marked("mine")
    await ack.delete("mine")
    await ack.until_gone(mine)
    await ack.until_done()

    async def look() -> bool:
        key = ack.installation.keys.of(0, f"inventory:{SOURCE}")
        return await ack.read("mine") is None and not await ack.installation.caller.command("HLEN", key)

    await ack.until("object and record are gone", look)


@pytest.mark.invariant(9)
@pytest.mark.long
@pytest.mark.parametrize("other", ["delete", "retain"])
async def test_two_objects_of_one_address_do_not_wait_for_each_other_if_both_are_deleted_with_it(
    ack: AckScenario, other: str
) -> None:
    ack.document["sources"][SOURCE]["mode"] = "finalizer"
    await ack.start()
    shared = await ack.address()
    await ack.seen("one", shared)
    uid = await ack.seen("two", shared, annotations={POLICY: other})
    for suffix in ("one", "two"):
        await ack.until_marked(suffix)
    for suffix in ("one", "two"):
        await ack.delete(suffix)
    if other == "retain":
        await ack.until_held("knell kept forget")
        assert uid in (await ack.there())[shared][RETAINED_TAG]
        return
    await ack.until_gone(shared)
    await ack.until_done(2)
    assert [await ack.read(suffix) for suffix in ("one", "two")] == [None, None]


@pytest.mark.long
async def test_a_finalizer_that_acks_patch_dropped_is_put_back_while_the_object_lives(ack: AckScenario) -> None:
    ack.document["sources"][SOURCE]["mode"] = "finalizer"
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine)
    await ack.until_marked("mine")
    await ack.patch("mine", finalizers=[ACK_FINALIZER])
    await ack.until_marked("mine")
    assert ACK_FINALIZER in (await ack.read("mine"))["metadata"]["finalizers"]


@pytest.mark.parametrize("when", ["before the deletion", "after it"])
async def test_a_finalizer_that_was_dropped_at_the_end_is_no_consent_withdrawn(ack: AckScenario, when: str) -> None:
    ack.document["sources"][SOURCE]["mode"] = "finalizer"
    await ack.controller("--deletion-policy=delete")
    service = await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine, finalizers=[ACK_FINALIZER])
    await ack.until_marked("mine")
    if when == "before the deletion":
        # Nothing watches meanwhile, so that it is not put back.
        await service.stop()
        ack.services.remove(service)
        await ack.patch("mine", finalizers=[ACK_FINALIZER])
        await ack.delete("mine")
        await ack.start()
    else:
        await ack.delete("mine")
    await ack.patch("mine", finalizers=[])
    await ack.until_gone(mine)
    await ack.until_done()
    assert await ack.read("mine") is None


@pytest.mark.invariant(8)
@pytest.mark.long
async def test_in_finalizer_mode_a_status_that_was_forged_at_the_end_is_held(ack: AckScenario) -> None:
    ack.document["sources"][SOURCE]["mode"] = "finalizer"
    await ack.start()
    mine, theirs = await ack.address(), await ack.address()
    await ack.seen("mine", mine)
    await ack.until_marked("mine")
    await ack.patch("mine", annotations={"knell.dev/dry-run": "true"})
    await ack.delete("mine")
    await ack.until_held("dry-run", mine)
    await asyncio.to_thread(ack.kube.patch, f"{ack.path('mine')}/status", {"status": {"allocationID": theirs}})
    await ack.patch("mine", annotations={"knell.dev/dry-run": None})
    await ack.until_held(f"it does not name {mine} any more")
    assert {mine, theirs} <= set(await ack.there())


@pytest.mark.invariant(7)
@pytest.mark.long
async def test_in_finalizer_mode_an_object_whose_record_cant_be_read_is_held(ack: AckScenario) -> None:
    ack.document["sources"][SOURCE]["mode"] = "finalizer"
    await ack.start()
    mine = await ack.address()
    await ack.seen("mine", mine)
    await ack.until_marked("mine")

    async def dry_run(value: str | None) -> None:
        """By the Namespace: a change of the object would have it recorded anew."""
        change = {"metadata": {"annotations": {"knell.dev/dry-run": value}}}
        await asyncio.to_thread(ack.kube.patch, f"/api/v1/namespaces/{ack.namespace}", change)

    await dry_run("true")
    await ack.delete("mine")
    await ack.until_held("dry-run", mine)
    uid = (await ack.read("mine"))["metadata"]["uid"]
    records = Inventory(ack.installation, SOURCE).records_key
    await ack.installation.caller.command("HSET", records, uid, "garbage")
    await dry_run(None)
    await ack.until_held("the inventory's record can't be read")
    assert mine in await ack.there()


# ---- commands


@pytest.mark.long
async def test_a_plan_shows_what_would_be_removed_by_the_short_name_of_the_group(ack: AckScenario) -> None:
    mine = await ack.address()
    await ack.object("mine", mine)
    planned = await ack.command("plan", f"elasticipaddress.ec2/{ack.name('mine')}", "-n", ack.namespace)
    (target,) = planned["targets"]
    lane = f"aws/{ack.builder.account}/{REGION}/ec2.ReleaseAddress"
    assert (target["kind"], target["id"], target["lane"]) == ("aws.elastic-ip", mine, lane)
    assert (planned["collector"], planned["held"], planned["mode"]) == (ACK, "", "observe")
    await ack.builder.ec2.release_address(AllocationId=mine)
    planned = await ack.command("plan", f"elasticipaddress.ec2/{ack.name('mine')}", "-n", ack.namespace)
    assert planned["targets"] == []


@pytest.mark.long
async def test_the_doctor_knows_the_controller_the_maps_and_the_kinds(ack: AckScenario) -> None:
    async def found() -> dict[str, dict[str, str]]:
        answer = await asyncio.to_thread(ack.knell, "doctor", "--output", "json")
        return {one["check"]: one for one in answer.json["findings"]}

    first = await found()
    assert first["ACK controller"]["state"] == "warning"
    assert "no controller of ACK for ec2" in first["ACK controller"]["what"]
    assert (first["ACK kind"]["state"], first["ACK roles"]["state"]) == ("fine", "fine")
    assert "ElasticIPAddress is removed as aws.elastic-ip" in first["ACK kind"]["what"]
    assert first["AWS identity"]["state"] == "fine"
    del ack.document["policy"]
    assert (await found())["ACK controller"]["state"] == "wrong"
    await ack.controller("--deletion-policy=retain")
    assert "says retain" in (await found())["ACK controller"]["what"]


@pytest.mark.long
async def test_its_rules_are_in_the_roles(ack: AckScenario) -> None:
    made = (await ack.command("role"))["items"]
    rules = {(one["metadata"]["name"], rule["resources"][0]): rule for one in made for rule in one.get("rules", ())}
    assert rules["knell-ack", "configmaps"]["resourceNames"] == ["ack-role-account-map", "ack-role-team-map"]
    assert rules["knell-ack", "deployments"]["verbs"] == ["list"]
    assert rules["knell", "iamroleselectors"]["verbs"] == ["list"]
    # Objects in other namespaces that name the same resource.
    assert rules["knell", "elasticipaddresses"]["verbs"] == ["list"]
    assert rules["knell-sources", "elasticipaddresses"]["verbs"] == ["get", "list", "watch"]


@pytest.mark.long
async def test_its_iam_policy_has_the_services_of_the_sources(ack: AckScenario) -> None:
    answer = await asyncio.to_thread(ack.knell, "role", "--aws-policy")
    statements = {one["Sid"]: one["Action"] for one in answer.json["Statement"]}
    assert "ec2:ReleaseAddress" in statements["AckEc2"]
    assert not any(sid.startswith("Ack") and sid != "AckEc2" for sid in statements)
