"""Removal by identifier, for every kind: a leftover goes and is proven gone, and what is another's, kept, or only has
the name stays."""

from datetime import datetime, timedelta

import msgspec
import pytest

from service.contract import VERSION, Blocked, Gone, JobRecord, Left, Pending, Refused, Throttled
from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG, Abandoned, KeepDecision, KeptResource
from standins.aws import AwsFault
from tests.aws_identifier_kinds import IDENTIFIER_ROWS
from tests.integration.aws_identified import KINDS, OURS, SCOPE, THEIRS, IdentifiedRemovalFixture, identified
from workers.handlers.kept_resources import OTHERS, NoKeptRecords
from workers.handlers.protocol import NotCleared
from workers.providers.aws.checks import probes_for
from workers.providers.aws.errors import AwsError
from workers.providers.aws.permissions import action_of
from workers.providers.aws.retained_tag_calls import remove_retained_tag, write_retained_tag
from workers.providers.aws.retained_tags import AwsRetainedTags

__all__ = ["identified"]

EVERY = pytest.mark.parametrize("kind", IDENTIFIER_ROWS)
REUSED = pytest.mark.parametrize("kind", [row.name for row in IDENTIFIER_ROWS.values() if row.reused])
QUICK = {"database_goes": 0.5, "snapshot_takes": 0.5}


async def buckets(identified: IdentifiedRemovalFixture) -> dict[str, datetime]:
    listed = await (await identified.cloud.builder.client("s3")).list_buckets()
    return {one["Name"]: one["CreationDate"] for one in listed["Buckets"]}


@EVERY
async def test_a_leftover_goes_by_one_call_and_one_of_another_owner_stays(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    await identified.cloud.aws.behave(**QUICK)
    ours, theirs = [await identified.make(kind, tags) for tags in (OURS, THEIRS)]
    going = await identified.remove(*identified.targets(kind, ours))
    assert not await identified.exists(kind, ours)
    assert (await identified.job(going, ours))["verdict"] == "gone"
    row = IDENTIFIER_ROWS[kind]
    assert await identified.asked(row.delete_operation) == [row.delete_operation]
    refused = (await identified.attempt(kind, theirs))[theirs]
    assert isinstance(refused, Refused)
    assert "belongs to theirs" in refused.reason
    assert await identified.exists(kind, theirs)
    assert await identified.asked(row.delete_operation) == [row.delete_operation]


@EVERY
async def test_what_does_not_exist_is_gone(identified: IdentifiedRemovalFixture, kind: str) -> None:
    missing = IDENTIFIER_ROWS[kind].missing.replace("111122223333", identified.cloud.account)
    for operation in ("", KINDS[kind].check_operation):
        assert await identified.attempt(kind, missing, operation=operation) == {missing: Gone()}


@EVERY
@pytest.mark.invariant(10)
async def test_one_that_is_tagged_as_retained_or_protected_stays(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    retained, protected = [
        await identified.make(kind, OURS | tags)
        for tags in ({RETAINED_TAG: "cluster/kind/ns/name/uid"}, {PREVENT_DELETE_TAG: "true"})
    ]
    found = await identified.attempt(kind, retained, protected)
    assert isinstance(found[retained], Left)
    assert isinstance(found[protected], Refused)
    assert PREVENT_DELETE_TAG in str(found[protected])
    assert await identified.asked(IDENTIFIER_ROWS[kind].delete_operation) == []


@EVERY
@pytest.mark.invariant(1)
async def test_a_denied_or_throttled_call_or_a_page_of_a_proxy_proves_nothing(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    ours, row = await identified.make(kind), IDENTIFIER_ROWS[kind]
    check = KINDS[kind].check_operation
    for what, verdict in (("deny", Refused), ("throttle", Throttled), ("html", AwsError), ("close", AwsError)):
        for action, operation in ((check, ""), (check, check), (row.delete_operation, "")):
            await identified.cloud.aws.set_faults(AwsFault(what=what, action=action))  # type: ignore[arg-type]
            found = (await identified.attempt(kind, ours, operation=operation))[ours]
            assert isinstance(found, verdict), (what, action, found)
    await identified.cloud.aws.set_faults()
    assert await identified.exists(kind, ours)


@EVERY
@pytest.mark.invariant(3)
async def test_without_consent_nothing_is_changed(identified: IdentifiedRemovalFixture, kind: str) -> None:
    ours = await identified.make(kind)
    objection = NotCleared("it is wanted", 1000)
    assert (await identified.attempt(kind, ours, clear=objection))[ours] is objection
    assert await identified.exists(kind, ours)


@REUSED
@pytest.mark.invariant(9)
async def test_a_later_resource_of_the_name_stays(identified: IdentifiedRemovalFixture, kind: str) -> None:
    await identified.cloud.aws.behave(database_goes=0.0)
    build, row = identified.cloud.builder, IDENTIFIER_ROWS[kind]
    name = "namesake-of-a-test"
    ours = await row.create(build, name, OURS)
    before = await buckets(identified)
    deleted = (await identified.attempt(kind, ours))[ours]
    if isinstance(deleted, Pending) and str(deleted.lane).endswith(row.delete_operation):
        deleted = (await identified.attempt(kind, ours, resume=deleted.resume))[ours]
    assert isinstance(deleted, Pending)
    assert not await identified.exists(kind, ours)
    assert await row.create(build, name, OURS) == ours
    while kind == "aws.s3-bucket" and await buckets(identified) == before:
        # Creation dates of buckets are whole seconds.
        await row.remove(build, ours)
        await row.create(build, name, OURS)
    for operation in (KINDS[kind].check_operation, ""):
        found = (await identified.attempt(kind, ours, operation=operation, resume=deleted.resume))[ours]
        assert isinstance(found, Gone), (operation, found)
        assert "another one has its name by now" in found.detail
    assert await identified.exists(kind, ours)


@REUSED
@pytest.mark.invariant(9)
async def test_only_the_incarnation_that_was_planned_goes(identified: IdentifiedRemovalFixture, kind: str) -> None:
    ours, row = await identified.make(kind), IDENTIFIER_ROWS[kind]
    found = (await identified.attempt(kind, ours, incarnation="an-earlier-one"))[ours]
    # A bucket's creation date may change, so another one proves nothing.
    assert isinstance(found, Refused if kind == "aws.s3-bucket" else Gone)
    assert await identified.exists(kind, ours)
    assert await identified.asked(row.delete_operation) == []


async def test_a_resource_that_may_not_be_read_does_not_hold_the_others(identified: IdentifiedRemovalFixture) -> None:
    closed, open_ = [await identified.make("aws.kms-key") for _ in range(2)]
    await identified.cloud.aws.set_faults(AwsFault(what="deny", action="kms.DescribeKey", about=closed))
    found = await identified.attempt("aws.kms-key", closed, open_)
    assert isinstance(found[closed], Refused)
    assert isinstance(found[open_], Pending)


@pytest.mark.invariant(1)
@pytest.mark.parametrize("kind", ["aws.secret", "aws.iam-policy"])
async def test_an_arn_of_another_account_is_refused_and_not_read(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    missing = IDENTIFIER_ROWS[kind].missing
    found = (await identified.attempt(kind, missing))[missing]
    assert isinstance(found, Refused)
    assert "111122223333" in found.reason
    assert await identified.asked() == []


async def test_an_arn_of_another_region_or_type_and_a_name_are_refused(identified: IdentifiedRemovalFixture) -> None:
    arn = f"arn:aws:secretsmanager:us-east-1:{identified.cloud.account}:secret:a-AbCdEf"
    for kind, one in (("aws.secret", arn), ("aws.secret", "a-name"), ("aws.iam-policy", arn)):
        assert isinstance((await identified.attempt(kind, one))[one], Refused)
    assert await identified.asked() == []


@pytest.mark.long
@EVERY
async def test_the_probes_of_the_doctor_are_answered_and_a_denied_one_is_named(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    client, reads = await identified.reach.client(SCOPE), {action_of(one) for one in KINDS[kind].read_operations}
    probes = list(probes_for(reads))
    assert {one.action for one in probes} == reads

    async def answers() -> set[str]:
        found = set[str]()
        for one in probes:
            try:
                await client.call(one.service, one.operation, **one.arguments_for(client))
            except AwsError as error:
                found.add(error.what)
        return found

    assert await answers() <= {"gone"}
    await identified.cloud.aws.set_faults(AwsFault(what="deny"))
    assert await answers() == {"denied"}


class AbandonedBefore(NoKeptRecords):
    def __init__(self, *jobs: JobRecord) -> None:
        self._jobs = jobs

    async def abandoned(self, deletion: str) -> Abandoned:
        del deletion
        return Abandoned(self._jobs)


@REUSED
@pytest.mark.invariant(10)
async def test_what_was_abandoned_stays_when_it_is_planned_anew_also_a_bucket_whose_creation_date_has_changed(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    ours, row = await identified.make(kind), IDENTIFIER_ROWS[kind]
    read = (await KINDS[kind].read(await identified.reach.client(SCOPE), [ours]))[ours]
    (job,) = identified.batch(kind, ours).jobs
    found = []
    for incarnation in (KINDS[kind].incarnation_of(read), "another"):
        record = msgspec.structs.replace(job.record, incarnation=incarnation)
        identified.kept_records = AbandonedBefore(record)
        batch = identified.batch(kind, ours, plan=2)
        found.append((await identified.attempt_batch(batch))[ours])
    assert isinstance(found[0], Left)
    assert isinstance(found[1], Left if kind == "aws.s3-bucket" else Pending)
    assert (await identified.asked(row.delete_operation) == []) == (kind == "aws.s3-bucket")


async def test_nothing_is_sent_on_the_strength_of_a_read_that_has_grown_old(
    identified: IdentifiedRemovalFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    identified.set(empty_buckets=True)
    bucket, role = await identified.make("aws.s3-bucket"), await identified.make("aws.iam-role")
    await (await identified.cloud.builder.client("s3")).put_object(Bucket=bucket, Key="key", Body=b"")
    policy = await identified.make("aws.iam-policy")
    await (await identified.cloud.builder.client("iam")).attach_role_policy(RoleName=role, PolicyArn=policy)
    monkeypatch.setattr("workers.handlers.evidence_age.FRESH", timedelta(0))
    for kind, one, operation in (
        ("aws.s3-bucket", bucket, "s3.DeleteObjects"),
        ("aws.iam-role", role, "iam.DetachRolePolicy"),
        ("aws.iam-policy", policy, "iam.DeletePolicyVersion"),
    ):
        found = (await identified.attempt(kind, one, operation=operation))[one]
        assert isinstance(found, Blocked | Pending), found
    assert {one for one in await identified.asked() if ".Delete" in one or ".Detach" in one} == set()


@pytest.mark.long
@EVERY
async def test_the_retained_tag_is_written_and_removed_and_no_other_tag_changes(
    identified: IdentifiedRemovalFixture, kind: str
) -> None:
    ours, other = [await identified.make(kind) for _ in range(2)]
    client, declared = await identified.reach.client(SCOPE), KINDS[kind]

    async def tags() -> list[dict[str, str]]:
        found = await declared.read(client, [ours, other])
        return [dict(found[one].tags) for one in (ours, other)]

    (marked,) = await write_retained_tag(client, [(declared, ours)], "kept/1")
    if declared.tagging is None:
        assert marked.tag.startswith("not tagged: the tags of a bucket can only be replaced as a whole")
        assert await tags() == [OURS, OURS]
        return
    assert marked == KeptResource(kind, ours)
    assert await tags() == [OURS | {RETAINED_TAG: "kept/1"}, OURS]
    assert isinstance((await identified.attempt(kind, ours))[ours], Left)
    assert await remove_retained_tag(client, declared, [ours], "kept/1") == {ours: None}
    assert await tags() == [OURS, OURS]


async def test_resources_of_one_name_and_different_kinds_are_tagged_each_by_itself(
    identified: IdentifiedRemovalFixture,
) -> None:
    instance, cluster = [
        await identified.make(kind, name="of-both") for kind in ("aws.rds-instance", "aws.rds-cluster")
    ]
    client = await identified.reach.client(SCOPE)
    both = [(KINDS["aws.rds-instance"], instance), (KINDS["aws.rds-cluster"], cluster)]
    marked = await write_retained_tag(client, both, "kept/1")
    assert {(one.kind, one.id, one.tag) for one in marked} == {(kind.name, "of-both", "") for kind, _ in both}
    for kind, one in both:
        assert (await kind.read(client, [one]))[one].tags[RETAINED_TAG] == "kept/1"


@pytest.mark.long
async def test_a_search_for_the_tag_names_the_kinds_that_can_not_be_searched(
    identified: IdentifiedRemovalFixture,
) -> None:
    role = await identified.make("aws.iam-role")
    client, declared = await identified.reach.client(SCOPE), KINDS["aws.iam-role"]
    await write_retained_tag(client, [(declared, role)], "c/k/n/name/1")
    tags = AwsRetainedTags(identified.reach, {"aws.iam-role": declared})
    place = f"aws/{identified.cloud.account}/{SCOPE.region}"
    found = await tags.find(place, [])
    assert (list(found.found), len(found.unread)) == ([], 1)
    assert found.unread[0].startswith("aws.iam-role: such resources are found by identifier only")
    decision = KeepDecision(
        v=VERSION, place=place, name="name", object="o", uid="1", source="", why="retain", at=1,
        resources=(KeptResource("aws.iam-role", role),), remark="not all",
    )  # fmt: skip
    removed, others = [one async for one in tags.remove(decision, [decision])]
    assert (removed.id, removed.others) == (role, "c/k/n/name/1")
    assert (others.id, "can't be searched" in others.failed) == (OTHERS, True)
    # A decision that names no such resource is not held up by the kind.
    of_another = msgspec.structs.replace(decision, resources=())
    assert [one async for one in tags.remove(of_another, [of_another])] == []
