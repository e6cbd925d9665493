"""Requests of Cloud Control, followed to their end: crashes at every step, requests of others, tokens that expire, and
every way in which a request fails."""

from datetime import timedelta
from typing import Any

import pytest

from service.contract import Blocked, Gone, Pending, Refused, Throttled, Verdict
from standins.aws import AwsFault
from tests.integration.aws_cloud_control import QUEUE, THEIRS, CloudControlFixture, control
from workers.providers.aws.cloud_control_ids import NOTES, split_cloud_control_id
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.cloud_control import DELETE, FOLLOW, LONGEST_REPEAT, LONGEST_RETRY_AFTER, READ
from workers.removal import RemovalProgress

__all__ = ["control"]

HANDLER = "cloudcontrol.Handler"
HOUR = 3600.0
"""How long a request takes that must not end by itself."""


def lane_of(verdict: Verdict | Exception) -> str:
    assert isinstance(verdict, Pending), verdict
    return (verdict.lane or "").rpartition("/")[2]


def progress_of(verdict: Verdict | Exception) -> RemovalProgress:
    assert isinstance(verdict, Pending), verdict
    return RemovalProgress.read(verdict.resume)


async def ended(control: CloudControlFixture) -> dict[str, Any]:
    """The latest request, once it has ended."""

    async def look() -> dict[str, Any]:
        latest = (await control.requests())[0]
        return {} if latest["OperationStatus"] in ("PENDING", "IN_PROGRESS") else latest

    return await control.engine.until("the latest request has ended", look)


async def requested(control: CloudControlFixture, id_: str) -> Pending:
    """A job whose request was accepted."""
    accepted = await control.one(id_)
    assert lane_of(accepted) == FOLLOW
    assert isinstance(accepted, Pending)
    return accepted


async def failing(control: CloudControlFixture, fault: AwsFault, id_: str = "") -> tuple[str, Pending]:
    """A job whose request has failed as the fault says, and is to be followed."""
    id_ = id_ or await control.create()
    await control.aws.set_faults(fault)
    accepted = await requested(control, id_)
    assert (await ended(control))["OperationStatus"] == "FAILED"
    return id_, accepted


# ---- the course of a request


async def test_its_token_and_the_number_of_requests_are_in_the_record(control: CloudControlFixture) -> None:
    queue = await control.create()
    accepted = await requested(control, queue)
    (request,) = await control.requests()
    assert progress_of(accepted) == RemovalProgress("", 1, 0, request["RequestToken"])
    await ended(control)
    carried_out = await control.next(queue, accepted)
    assert lane_of(carried_out) == READ
    assert progress_of(carried_out) == RemovalProgress("", 1, 0)
    assert await control.next(queue, carried_out) == Gone()


@pytest.mark.long
async def test_a_request_that_takes_long_is_checked_later_and_later(control: CloudControlFixture) -> None:
    await control.aws.behave(cloud_control_takes=10_000)
    queue = await control.create()
    verdict: Verdict | Exception = await requested(control, queue)
    waits = []
    for _ in range(6):
        verdict = await control.next(queue, verdict)
        assert lane_of(verdict) == FOLLOW
        waits.append(verdict.check_after)  # type: ignore[union-attr]
    assert waits == sorted(waits)
    assert waits[-1] >= 4 * waits[0]
    assert progress_of(verdict).checks == 6
    assert await control.exists(queue)
    assert await control.deletes() == 1


@pytest.mark.long
async def test_it_is_not_checked_before_aws_says(control: CloudControlFixture) -> None:
    await control.aws.behave(cloud_control_takes=10_000, cloud_control_retry_after=60)
    queue = await control.create()
    verdict: Verdict | Exception = await requested(control, queue)
    for _ in range(2):
        assert timedelta(seconds=40) < verdict.check_after < timedelta(seconds=80)  # type: ignore[union-attr]
        verdict = await control.next(queue, verdict)
    # The clock of this machine may be wrong.
    await control.aws.behave(cloud_control_retry_after=10**7)
    verdict = await control.next(queue, verdict)
    assert verdict.check_after == LONGEST_RETRY_AFTER  # type: ignore[union-attr]


@pytest.mark.parametrize("accepted", [True, False])
async def test_a_resource_that_vanished_before_the_call_is_proven_gone(
    control: CloudControlFixture, accepted: bool
) -> None:
    """AWS accepts the request and fails it later, or refuses it."""
    await control.aws.behave(cloud_control_accepts_missing=accepted)
    gone = AwsFault(what="slow", action=DELETE, seconds=0.01)
    await control.aws.set_faults(gone)
    queue = await control.create()
    batch = control.batch(queue)
    clear = batch.clear

    async def vanish(*jobs: Any) -> None:
        await clear(*jobs)
        sqs = await control.cloud.client("sqs")
        await sqs.delete_queue(QueueUrl=split_cloud_control_id(queue).identifier)

    batch.clear = vanish  # type: ignore[method-assign]
    verdict = (await control.attempt(batch))[queue]
    if accepted:
        assert (await ended(control))["ErrorCode"] == "NotFound"
        verdict = await control.next(queue, verdict)
    assert lane_of(verdict) == READ
    assert await control.next(queue, verdict) == Gone()


@pytest.mark.long
async def test_a_resource_of_another_owner_that_took_the_name_meanwhile_stays(control: CloudControlFixture) -> None:
    queue = await control.create()
    accepted = await requested(control, queue)
    await ended(control)
    name = queue.rpartition("/")[2]
    await (await control.cloud.client("sqs")).create_queue(QueueName=name, tags=THEIRS)
    checked = await control.next(queue, await control.next(queue, accepted))
    assert lane_of(checked) == DELETE
    assert isinstance(await control.next(queue, checked), Refused)
    assert await control.deletes() == 1
    assert await control.exists(queue)


@pytest.mark.long
async def test_what_may_be_left_behind_is_said(control: CloudControlFixture) -> None:
    (type_,) = NOTES
    accepted = await requested(control, await control.create(type_))
    assert NOTES[type_] in accepted.detail


# ---- crashes


async def test_a_crash_between_the_call_and_the_record_makes_no_second_request(control: CloudControlFixture) -> None:
    queue = await control.create()
    first, again = await requested(control, queue), await requested(control, queue)
    assert again.resume == first.resume
    assert len(await control.requests()) == 1


@pytest.mark.long
async def test_a_client_token_that_is_said_to_be_used_leads_to_its_request(control: CloudControlFixture) -> None:
    await control.aws.behave(cloud_control_token_conflicts=True)
    queue = await control.create()
    first, again = await requested(control, queue), await requested(control, queue)
    assert again.resume == first.resume
    assert "ClientTokenConflictException" in again.detail


async def test_a_lost_answer_is_repeated_as_the_same_request(control: CloudControlFixture) -> None:
    await control.aws.behave(cloud_control_takes=1.0)
    await control.aws.set_faults(AwsFault(what="lost", action=DELETE, times=1))
    queue = await control.create()
    going = await control.remove(queue)
    assert (await control.job(going, queue))["attempts"] == "1"
    assert len(await control.requests()) == 1


async def test_a_crash_while_the_request_runs_or_after_it_ended_repeats_a_read(control: CloudControlFixture) -> None:
    await control.aws.behave(cloud_control_takes=HOUR)
    queue = await control.create()
    accepted = await requested(control, queue)
    assert await control.next(queue, accepted) == await control.next(queue, accepted)
    await control.aws.advance(HOUR)
    await ended(control)
    done, again = await control.next(queue, accepted), await control.next(queue, accepted)
    assert lane_of(done) == READ
    assert done == again
    assert await control.next(queue, done) == await control.next(queue, done) == Gone()
    assert await control.deletes() == 1


@pytest.mark.long
async def test_workers_that_crash_at_every_step_make_one_request(control: CloudControlFixture) -> None:
    await control.aws.behave(cloud_control_takes=3.0)
    queue = await control.create()
    going = await control.go(queue)
    quick = {"lease": timedelta(seconds=1), "attempt_timeout": timedelta(milliseconds=900)}
    for action in (READ, DELETE, FOLLOW, READ):
        await control.aws.set_faults(AwsFault(what="slow", action=action, seconds=0.3))
        worker = await control.start(**quick)

        async def arrived(action: str = action) -> bool:
            return action in await control.aws.delayed()

        await control.engine.until(f"{action} is on its way", arrived)
        await worker.crash()
    await control.aws.set_faults()
    await control.start(**quick)
    await control.engine.until_done(going)
    assert len(await control.requests()) == 1
    assert not await control.exists(queue)


# ---- requests of others, and tokens that are not known any more


async def test_a_request_of_another_client_is_followed(control: CloudControlFixture) -> None:
    await control.aws.behave(cloud_control_takes=HOUR)
    queue = await control.create()
    named = split_cloud_control_id(queue)
    theirs = await control.client.delete_resource(TypeName=named.type, Identifier=named.identifier)
    accepted = await requested(control, queue)
    assert "ConcurrentOperationException" in accepted.detail
    assert progress_of(accepted).state == theirs["ProgressEvent"]["RequestToken"]
    await control.aws.advance(HOUR)
    await ended(control)
    assert await control.next(queue, await control.next(queue, accepted)) == Gone()


@pytest.mark.long
async def test_a_request_in_the_way_that_is_not_named_is_waited_for(control: CloudControlFixture) -> None:
    queue = await control.create()
    said = AwsFault(what="error", action=DELETE, code="ConcurrentOperationException", message="busy", status=400)
    await control.aws.set_faults(said)
    assert isinstance(await control.one(queue), Blocked)
    used = AwsFault(what="error", action=DELETE, code="ClientTokenConflictException", message="used", status=400)
    await control.aws.set_faults(used)
    verdict = await control.one(queue)
    # Read again, and requested with another client token.
    assert lane_of(verdict) == READ
    assert progress_of(verdict) == RemovalProgress("", 1, 0)


async def test_a_request_that_expired_is_read_again_and_made_anew(control: CloudControlFixture) -> None:
    await control.aws.behave(cloud_control_takes=30 * 24 * 3600.0)
    queue = await control.create()
    accepted = await requested(control, queue)
    await control.aws.advance(8 * 24 * 3600)
    unknown = await control.next(queue, accepted)
    assert lane_of(unknown) == READ
    back = await control.next(queue, unknown)
    assert lane_of(back) == DELETE
    again = await control.next(queue, back)
    assert progress_of(again).deletes == 2
    assert progress_of(again).state != progress_of(accepted).state


async def test_a_job_without_a_token_is_read_again(control: CloudControlFixture) -> None:
    queue = await control.create()
    assert lane_of(await control.one(queue, operation=FOLLOW, resume=" 1 0", verdict="check")) == READ
    assert await control.asked() == []


@pytest.mark.long
async def test_a_cancelled_request_is_shown_to_a_person_before_it_is_made_again(control: CloudControlFixture) -> None:
    await control.aws.behave(cloud_control_takes=1000)
    queue = await control.create()
    accepted = await requested(control, queue)
    await control.client.cancel_resource_request(RequestToken=progress_of(accepted).state)
    verdict = await control.next(queue, accepted)
    assert isinstance(verdict, Blocked)
    assert verdict.person
    assert lane_of(await control.next(queue, accepted, verdict="blocked")) == DELETE


@pytest.mark.invariant(1)
@pytest.mark.parametrize("status", [200, 404])
async def test_a_page_of_a_proxy_is_no_end_of_a_request(control: CloudControlFixture, status: int) -> None:
    queue = await control.create()
    accepted = await requested(control, queue)
    await control.aws.set_faults(AwsFault(what="html", status=status))
    assert isinstance(await control.next(queue, accepted), AwsError)
    assert isinstance(await control.one(queue), AwsError)


# ---- failures


@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        ("ResourceConflict", "has dependencies", "has dependencies"),
        ("NotStabilized", "still there", "still there"),
        (
            "GeneralServiceException",
            "Cannot delete entity, must detach all policies first. (Status Code: 409)",
            "detach",
        ),
        ("InvalidRequest", "it is in use by another", "in use"),
    ],
)
async def test_a_conflict_waits_and_is_requested_again(
    control: CloudControlFixture, code: str, message: str, words: str
) -> None:
    queue, accepted = await failing(control, AwsFault(what="error", action=HANDLER, code=code, message=message))
    blocked = await control.next(queue, accepted)
    assert isinstance(blocked, Blocked)
    assert words in blocked.by
    assert blocked.until is not None
    await control.aws.set_faults()
    again = await control.next(queue, accepted, verdict="blocked")
    assert lane_of(again) == DELETE
    second = await control.next(queue, again)
    assert progress_of(second).deletes == 2
    assert len(await control.requests()) == 2


@pytest.mark.long
async def test_conflicts_in_a_row_wait_longer_and_longer(control: CloudControlFixture) -> None:
    fault = AwsFault(what="error", action=HANDLER, code="ResourceConflict", message="no")
    queue, accepted = await failing(control, fault)
    token, waits = progress_of(accepted).state, []
    for deletes in (1, 2, 3, 4, 5000):
        resume = str(RemovalProgress("", deletes, 0, token))
        blocked = await control.one(queue, operation=FOLLOW, verdict="check", resume=resume)
        assert isinstance(blocked, Blocked)
        waits.append((blocked.until or timedelta(0)).total_seconds())
    assert waits == [5, 10, 20, 40, LONGEST_REPEAT.total_seconds()]


async def test_a_throttled_handler_pauses_no_bucket_of_cloud_control(control: CloudControlFixture) -> None:
    queue, accepted = await failing(control, AwsFault(what="throttle", action=HANDLER))
    batch = control.batch(queue, operation=FOLLOW, resume=accepted.resume, verdict="check")
    throttled = (await control.attempt(batch))[queue]
    assert isinstance(throttled, Throttled)
    assert throttled.unasked
    assert batch.told == []
    await control.aws.set_faults()
    assert lane_of(await control.next(queue, accepted, verdict="throttled")) == DELETE


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (AwsFault(what="deny", action=HANDLER, code="sqs:DeleteQueue"), "sqs:DeleteQueue is denied to its handler"),
        (AwsFault(what="error", action=HANDLER, code="NotUpdatable", message="on"), "it is protected"),
        (
            AwsFault(what="error", action=HANDLER, code="InvalidRequest", message="DeletionProtectionEnabled is True"),
            "it is protected",
        ),
    ],
    ids=["denied", "not updatable", "protected"],
)
@pytest.mark.long
async def test_what_only_a_person_can_change_is_refused(
    control: CloudControlFixture, fault: AwsFault, words: str
) -> None:
    queue, accepted = await failing(control, fault)
    refused = await control.next(queue, accepted)
    assert isinstance(refused, Refused)
    assert words in refused.reason
    assert lane_of(await control.next(queue, accepted, verdict="refused")) == DELETE


@pytest.mark.parametrize(
    "code",
    [
        "InternalFailure",
        *(pytest.param(code, marks=pytest.mark.long) for code in (
            "ServiceInternalError", "ServiceTimeout", "NetworkFailure", "InvalidCredentials", "ServiceLimitExceeded",
            "GeneralServiceException", "InvalidRequest", "AlreadyExists", "SomethingNew",
        )),
    ],
)  # fmt: skip
async def test_any_other_failure_spends_an_attempt_before_the_next_request(
    control: CloudControlFixture, code: str
) -> None:
    fault = AwsFault(what="error", action=HANDLER, code=code, message="something went wrong")
    queue, accepted = await failing(control, fault)
    failed = await control.next(queue, accepted)
    assert isinstance(failed, AwsError)
    assert "something went wrong" in str(failed)
    again = await control.next(queue, accepted, verdict="retry")
    assert lane_of(again) == DELETE
    await control.aws.set_faults()
    second = await control.next(queue, again)
    assert progress_of(second).state != progress_of(accepted).state
    await ended(control)
    assert await control.next(queue, await control.next(queue, second)) == Gone()


@pytest.mark.long
async def test_failures_in_a_row_are_shown_and_end_when_the_handler_works(control: CloudControlFixture) -> None:
    control.engine.change("retry", base=timedelta(milliseconds=10), cap=timedelta(milliseconds=50), held_after=2)
    fault = AwsFault(what="error", action=HANDLER, code="InternalFailure", message="broken", times=3)
    await control.aws.set_faults(fault)
    queue = await control.create()
    going = await control.remove(queue)
    record = await control.job(going, queue)
    assert record["attempts"] == "3"
    assert "broken" in record["last_error"]
    assert len(await control.requests()) == 4
    assert not await control.exists(queue)


@pytest.mark.long
async def test_conflicts_of_the_call_itself_wait(control: CloudControlFixture) -> None:
    queue = await control.create()
    for code in ("ResourceConflictException", "NotStabilizedException"):
        await control.aws.set_faults(AwsFault(what="error", action=DELETE, code=code, message="in use", status=400))
        assert isinstance(await control.one(queue), Blocked)


@pytest.mark.long
async def test_a_status_that_is_not_known_holds(control: CloudControlFixture) -> None:
    """Neither an end nor a reason for another request."""
    queue = await control.create(QUEUE)
    accepted = await requested(control, queue)
    await control.aws.set_faults(AwsFault(what="error", action=FOLLOW, code="SomethingNew", status=400))
    for verdict in ("check", "retry"):
        assert isinstance(await control.next(queue, accepted, verdict=verdict), AwsError)
