"""Removal of AWS resources through Cloud Control: what is removed and proven gone, what stays, what proves nothing."""

from datetime import timedelta

import msgspec
import pytest

from service.contract import Blocked, Gone, Left, Pause, Pending, Refused, Throttled
from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG
from standins.aws import AwsFault
from tests.cloud_control_types import CLOUD_CONTROL_TYPES
from tests.integration.aws_cloud_control import OURS, QUEUE, SCOPE, THEIRS, CloudControlFixture, control
from workers.handlers.protocol import NotCleared
from workers.providers.aws.checks import IdentityCheck, check_identity, probes_for
from workers.providers.aws.cloud_control_ids import REFUSED_TYPES
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.cloud_control import CLOUD_CONTROL, DELETE, FOLLOW, READ
from workers.providers.aws.retained_tag_calls import remove_retained_tag, write_retained_tag

__all__ = ["control"]

BUCKET = "eu-west-1/cloudcontrol.all"


async def test_a_resource_is_read_deleted_by_one_request_and_proven_gone(control: CloudControlFixture) -> None:
    queue, other = await control.create(), await control.create()
    going = await control.remove(queue)
    record = await control.job(going, queue)
    assert (record["state"], record.get("attempts", "0")) == ("gone", "0")
    asked = await control.asked()
    assert asked[:2] == [READ, DELETE]
    assert set(asked[2:-1]) == {FOLLOW}
    assert asked[-1] == READ
    assert not await control.exists(queue)
    assert await control.exists(other)
    (request,) = await control.requests()
    assert (request["OperationStatus"], request["Identifier"]) == ("SUCCESS", queue.partition("/")[2])


@pytest.mark.long
@pytest.mark.parametrize("type_", CLOUD_CONTROL_TYPES)
async def test_every_type_is_removed_by_identifier_and_those_of_others_stay(
    control: CloudControlFixture, type_: str
) -> None:
    ours, theirs = await control.create(type_), await control.create(type_, THEIRS)
    await control.start()
    going = await control.go(ours, theirs)
    await control.until(going, ours, "gone")
    await control.until(going, theirs, "refused", "theirs")
    assert not await control.exists(ours)
    assert await control.exists(theirs)
    assert await control.deletes() == 1


@pytest.mark.long
async def test_many_are_removed_within_the_limit_of_the_account(control: CloudControlFixture) -> None:
    queues = [await control.create() for _ in range(80)]
    await control.remove(*queues)
    refused = [one for one in await control.journal() if one.code == "ThrottlingException"]
    assert refused == []
    requests = {one["Identifier"] async for one in control.every_request()}
    assert requests == {one.partition("/")[2] for one in queues}
    # Read, requested, followed, read; some are followed more than once.
    assert len(await control.asked()) < 7 * len(queues)
    assert await control.deletes() == len(queues)


async def test_what_is_gone_already_is_gone_without_a_change(control: CloudControlFixture) -> None:
    assert await control.one("AWS::DynamoDB::Table/missing") == Gone()
    assert await control.asked() == [READ]


@pytest.mark.invariant(2)
async def test_a_resource_of_another_owner_is_never_deleted(control: CloudControlFixture) -> None:
    theirs, untagged = await control.create(tags=THEIRS), await control.create(tags={})
    found = await control.attempt(control.batch(theirs, untagged))
    for one in (theirs, untagged):
        assert isinstance(found[one], Refused)
        assert await control.exists(one)
    assert await control.deletes() == 0


@pytest.mark.invariant(10)
async def test_what_is_protected_or_kept_by_a_tag_stays(control: CloudControlFixture) -> None:
    protected = await control.create(tags={**OURS, PREVENT_DELETE_TAG: "true"})
    kept = await control.create(tags={**OURS, RETAINED_TAG: "kept/1"})
    found = await control.attempt(control.batch(protected, kept))
    assert isinstance(found[protected], Refused)
    assert isinstance(found[kept], Left)
    assert await control.deletes() == 0


@pytest.mark.invariant(3)
async def test_without_consent_nothing_is_requested(control: CloudControlFixture) -> None:
    queue = await control.create()
    assert isinstance(await control.one(queue, clear=NotCleared("paused")), NotCleared)
    assert await control.asked() == [READ]


@pytest.mark.invariant(7)
async def test_types_that_are_not_safe_this_way_are_refused_before_any_call(control: CloudControlFixture) -> None:
    for operation in (DELETE, READ):
        found = await control.attempt(control.batch(*(f"{type_}/a" for type_ in REFUSED_TYPES), operation=operation))
        for type_ in REFUSED_TYPES:
            verdict = found[f"{type_}/a"]
            assert isinstance(verdict, Refused)
            assert f"{type_} is not removed through Cloud Control" in verdict.reason
    assert await control.asked() == []


@pytest.mark.invariant(1)
async def test_an_identifier_of_another_place_or_form_is_neither_read_nor_absent(control: CloudControlFixture) -> None:
    for id_ in ("AWS::SNS::Topic/arn:aws:sns:us-east-1:111122223333:news", "AWS::SNS::Topic", "orders"):
        for operation in (DELETE, READ):
            assert isinstance(await control.one(id_, operation=operation), Refused)
    assert await control.asked() == []


@pytest.mark.invariant(7)
@pytest.mark.long
async def test_a_type_that_cloud_control_does_not_know_is_refused_with_its_words(control: CloudControlFixture) -> None:
    verdict = await control.one("AWS::No::Such/a")
    assert isinstance(verdict, Refused)
    assert "TypeNotFoundException: The type 'AWS::No::Such' cannot be found" in verdict.reason


async def test_a_failed_read_concerns_its_own_resource_alone(control: CloudControlFixture) -> None:
    queue, broken = await control.create(), await control.create()
    fault = AwsFault(what="error", action=READ, about=broken.partition("/")[2], code="HandlerFailureException")
    await control.aws.set_faults(fault)
    found = await control.attempt(control.batch(queue, broken, "AWS::No::Such/a", "AWS::SQS::Queue/missing"))
    assert isinstance(found[queue], Pending)
    assert isinstance(found[broken], AwsError)
    assert isinstance(found["AWS::No::Such/a"], Refused)
    assert found["AWS::SQS::Queue/missing"] == Gone()


@pytest.mark.invariant(1)
@pytest.mark.parametrize(
    "fault",
    [
        AwsFault(what="html", action=READ, status=200),
        AwsFault(what="html", action=READ, status=404),
        AwsFault(what="close", action=READ),
        AwsFault(what="error", action=READ, code="HandlerFailureException", message="not found", status=404),
        AwsFault(what="error", action=READ, code="NoSuchEntity", message="not found", status=400),
        AwsFault(what="error", action=READ, code="GeneralServiceException", message="it was not found", status=400),
    ],
    ids=lambda fault: f"{fault.what}-{fault.code or fault.status}",
)
async def test_only_the_answer_that_says_so_proves_absence(control: CloudControlFixture, fault: AwsFault) -> None:
    queue = await control.create()
    await control.aws.set_faults(fault)
    for operation in (DELETE, READ):
        assert isinstance(await control.one(queue, operation=operation, resume=" 1 0"), AwsError)
    assert await control.deletes() == 0


async def test_the_bucket_that_was_short_is_paused_whatever_was_refused(control: CloudControlFixture) -> None:
    queue = await control.create()
    accepted = await control.one(queue)
    for operation, resume in ((READ, ""), (DELETE, ""), (FOLLOW, accepted.resume)):  # type: ignore[union-attr]
        await control.aws.set_faults(AwsFault(what="throttle", action=operation, times=1))
        batch = control.batch(queue, operation=operation, resume=resume)
        assert isinstance((await control.attempt(batch))[queue], Throttled)
        assert batch.told == [Pause(BUCKET)]


async def test_a_denied_call_is_named_as_in_a_policy(control: CloudControlFixture) -> None:
    queue = await control.create()
    for operation, action in ((READ, "cloudformation:GetResource"), (DELETE, "cloudformation:DeleteResource")):
        await control.aws.set_faults(AwsFault(what="deny", action=operation))
        verdict = await control.one(queue)
        assert isinstance(verdict, Refused)
        assert f"{action} is denied" in verdict.reason


@pytest.mark.long
async def test_an_instance_profile_is_known_by_its_own_list_of_tags(control: CloudControlFixture) -> None:
    profile = await control.create("AWS::IAM::InstanceProfile")
    tags = "iam.ListInstanceProfileTags"
    await control.aws.set_faults(AwsFault(what="deny", action=tags))
    denied = await control.one(profile)
    assert isinstance(denied, Refused)
    assert "iam:ListInstanceProfileTags is denied" in denied.reason
    await control.aws.set_faults()
    await control.remove(profile)
    assert not await control.exists(profile)
    assert await control.asked(tags)


@pytest.mark.long
async def test_another_target_of_the_plan_that_blocks_it_goes_first(control: CloudControlFixture) -> None:
    """A VPC with a subnet is requested again once the subnet is gone."""
    vpc = await control.create("AWS::EC2::VPC")
    made = await control.cloud.builder.ec2.create_subnet(
        VpcId=vpc.partition("/")[2], CidrBlock="10.1.0.0/24",
        TagSpecifications=[{"ResourceType": "subnet", "Tags": [{"Key": key, "Value": OURS[key]} for key in OURS]}],
    )  # fmt: skip
    subnet = f"AWS::EC2::Subnet/{made['Subnet']['SubnetId']}"
    blocked = await control.next(vpc, await _until_ended(control, vpc, await control.one(vpc)))
    assert isinstance(blocked, Blocked)
    assert "ResourceConflict" in blocked.by
    await control.remove(subnet, vpc)
    assert not await control.exists(vpc)


async def _until_ended(control: CloudControlFixture, id_: str, accepted: object) -> Pending:
    """The verdict that leads to the attempt that finds the request ended."""
    assert isinstance(accepted, Pending)

    async def ended() -> bool:
        return (await control.requests())[0]["OperationStatus"] not in ("PENDING", "IN_PROGRESS")

    await control.engine.until(f"the request for {id_} has ended", ended)
    return accepted


# ---- marked as kept


@pytest.mark.parametrize("type_", [QUEUE, "AWS::EC2::VPC", "AWS::Route53::HostedZone"])
@pytest.mark.long
async def test_what_is_kept_is_tagged_by_its_arn_and_can_be_released(control: CloudControlFixture, type_: str) -> None:
    kept, client = await control.create(type_), await control.reach.client(SCOPE)
    (marked,) = await write_retained_tag(client, [(CLOUD_CONTROL, kept)], "kept/1")
    assert (marked.kind, marked.id, marked.tag) == (CLOUD_CONTROL.name, kept, "")
    assert isinstance(await control.one(kept), Left)
    assert await remove_retained_tag(client, CLOUD_CONTROL, [kept], "kept/1") == {kept: None}
    assert isinstance(await control.one(kept), Pending)


@pytest.mark.long
async def test_what_can_not_be_tagged_is_recorded_with_the_reason(control: CloudControlFixture) -> None:
    client = await control.reach.client(SCOPE)
    queue = await control.create()
    await control.aws.set_faults(AwsFault(what="deny", action="tagging.TagResources"))
    resources = [(CLOUD_CONTROL, one) for one in (queue, "AWS::SQS::Queue/missing", "AWS::S3::Bucket/b")]
    marked = {one.id: one.tag for one in await write_retained_tag(client, resources, "kept/1")}
    assert marked == {
        queue: "not tagged: tag:TagResources: AccessDeniedException",
        "AWS::S3::Bucket/b": "not tagged: cloudformation:GetResource: NotAsked",
    }
    await control.aws.set_faults(AwsFault(what="throttle", action=READ))
    with pytest.raises(AwsError, match="Throttling"):
        await write_retained_tag(client, resources[:1], "kept/1")


# ---- with the settings


@pytest.mark.long
async def test_a_check_is_made_as_soon_as_the_settings_say(control: CloudControlFixture) -> None:
    control.settings = msgspec.structs.replace(control.settings, check_after=timedelta(seconds=7))
    accepted = await control.one(await control.create())
    assert isinstance(accepted, Pending)
    assert accepted.check_after == timedelta(seconds=7)


# ---- knell doctor


@pytest.mark.long
async def test_the_probes_of_the_doctor_tell_a_missing_permission(control: CloudControlFixture) -> None:
    reads = tuple(probes_for({"cloudformation:GetResource", "cloudformation:GetResourceRequestStatus"}))
    assert {read.operation for read in reads} == {"get_resource", "get_resource_request_status"}
    check = IdentityCheck(SCOPE, own=True, account=control.cloud.account, reads=reads)
    assert [one.state for one in await check_identity(control.reach, check)] == ["fine", "fine"]
    for operation in (READ, FOLLOW):
        await control.aws.set_faults(AwsFault(what="deny", action=operation))
        (_, denied) = await check_identity(control.reach, check)
        assert denied.state == "wrong"
        assert f"cloudformation:{operation.partition('.')[2]}" in denied.what
