"""Deletion of listeners that still forward to a target group. A listener is deleted with its load balancer; it is
deleted on its own only if it blocks a target group of the same owner, and its load balancer is the owner's, too, and to
be deleted."""

from collections.abc import AsyncIterator
from typing import Any, Final

from service.contract import Blocked, Verdict
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.blocked_state import MAX_IDLE_ROUNDS, BlockedState, blocked_state_of
from workers.providers.aws.kinds.declaration import AwsAttempt
from workers.providers.aws.kinds.load_balancers import LOAD_BALANCER
from workers.providers.aws.model import AwsResource
from workers.providers.aws.protection import protection_reason, retention_reason
from workers.removal import EarlyVerdict

DELETE_LISTENER: Final = "elbv2.DeleteListener"
DELETE_TARGET_GROUP: Final = "elbv2.DeleteTargetGroup"
MAX_DOUBLINGS: Final = 4
"""Doublings of the retry interval while nothing that uses the target group is found."""

READS: Final = (
    "elbv2.DescribeLoadBalancers", "elbv2.DescribeTags", "elbv2.DescribeListeners", "elbv2.DescribeRules",
)  # fmt: skip


async def wait_for_balancer(attempt: AwsAttempt, error: AwsError) -> Verdict:
    """Waits for the load balancer first, which may be in deletion; then looks for the listener. If none is found
    repeatedly, the interval grows."""
    balancers, idle_rounds = (
        ", ".join(attempt.resource.facts) or error.message,
        blocked_state_of(attempt.resume).idle_rounds,
    )
    if attempt.job.record.waits:
        return attempt.move_to(DELETE_LISTENER, f"still used by {balancers}", resume=attempt.resume)
    if idle_rounds < MAX_IDLE_ROUNDS:
        return Blocked(f"used by {balancers}", until=aligned_delay(attempt.settings.check_after, 0.5))
    return Blocked(
        f"AWS says that something uses it ({error.code}: {balancers}), but no listener and no listener's rule that "
        f"does is visible: look for balancers of other accounts that share its VPC",
        until=aligned_delay(attempt.settings.check_after * 2 ** (idle_rounds - MAX_IDLE_ROUNDS + 1), 0.5),
        person=True,
    )


async def delete_listener(attempt: AwsAttempt) -> Verdict:
    balancers = await _using_balancers(attempt)
    for arn in balancers:
        async for listener in _forwarding(attempt, arn):
            # The search among many listeners and rules takes long.
            young = await attempt.refreshed()
            if young is not attempt and arn not in await _using_balancers(young):
                return attempt.move_to(DELETE_TARGET_GROUP, f"not used by {arn} any more")
            kept = attempt.judge.kept(await young.live_claim(), balancers[arn])
            if kept is not None:
                instead = f", or {kept.remedy}" if kept.remedy else ""
                words = f"used by listener {listener} of a balancer {kept.which}: take the listener away{instead}"
                return Blocked(words, person=True)
            try:
                await attempt.client.call("elbv2", "delete_listener", ListenerArn=listener)
            except AwsError as error:
                if error.what != "gone":
                    raise
            return attempt.move_to(DELETE_TARGET_GROUP, f"deleted listener {listener}, which used it")
    # Nothing that uses it is found: its load balancer was just deleted, and AWS is eventually consistent.
    after, idle_rounds = aligned_delay(attempt.settings.check_after, 0.5), blocked_state_of(attempt.resume).idle_rounds
    resume = BlockedState(idle_rounds=min(idle_rounds + 1, MAX_IDLE_ROUNDS + MAX_DOUBLINGS)).text
    return attempt.move_to(DELETE_TARGET_GROUP, "no listener that uses it is left", after=after, resume=resume)


async def _using_balancers(attempt: AwsAttempt) -> dict[str, AwsResource]:
    """The load balancers that use it and exist. Raises EarlyVerdict if one is not the owner's, or is kept."""
    balancers = await LOAD_BALANCER.read(attempt.client, attempt.resource.facts) if attempt.resource.facts else {}
    for found in balancers.values():
        if foreign := attempt.judge.owns(attempt.claim, found):
            raise EarlyVerdict(Blocked(f"used by a balancer that is not its owner's: {foreign}", person=True))
        if kept := protection_reason(found) or retention_reason(found):
            raise EarlyVerdict(Blocked(f"used by a balancer that is not to go: {kept}", person=True))
    return balancers


async def _forwarding(attempt: AwsAttempt, balancer: str) -> AsyncIterator[str]:
    """The listeners of a load balancer that forward to the target group, by default or by a rule."""
    try:
        async for page in attempt.client.pages("elbv2", "describe_listeners", "Listeners", LoadBalancerArn=balancer):
            for listener in page:
                arn = listener["ListenerArn"]
                if _forwards(listener.get("DefaultActions", ()), attempt.resource.id) or await _forwards_by_rule(
                    attempt, arn
                ):
                    yield arn
    except AwsError as error:
        # The load balancer was deleted meanwhile, and its listeners with it.
        if error.what != "gone":
            raise


async def _forwards_by_rule(attempt: AwsAttempt, listener: str) -> bool:
    async for page in attempt.client.pages("elbv2", "describe_rules", "Rules", ListenerArn=listener):
        if any(_forwards(rule.get("Actions", ()), attempt.resource.id) for rule in page):
            return True
    return False


def _forwards(actions: Any, target_group: str) -> bool:
    for action in actions:
        several = (action.get("ForwardConfig") or {}).get("TargetGroups") or ()
        if target_group in (action.get("TargetGroupArn"), *(one.get("TargetGroupArn") for one in several)):
            return True
    return False
