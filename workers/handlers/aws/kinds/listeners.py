"""A target group that a listener still forwards to. A listener goes with its balancer; it is deleted on its own only
where it blocks a target group of the same owner, and its balancer is the owner's as well."""

from collections.abc import AsyncIterator
from typing import Any, Final

from service.contract import Blocked, Verdict
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.kinds.balancers import BALANCER
from workers.handlers.aws.model import Turn
from workers.handlers.aws.ownership import owned
from workers.handlers.aws.rounds import until_round

DELETE_LISTENER: Final = "elbv2.DeleteListener"
DELETE_TARGET_GROUP: Final = "elbv2.DeleteTargetGroup"
READS: Final = (
    "elbv2.DescribeLoadBalancers", "elbv2.DescribeTags", "elbv2.DescribeListeners", "elbv2.DescribeRules",
)  # fmt: skip


async def in_use(turn: Turn, error: AwsError) -> Verdict:
    """First it is waited for the balancer, which may just be going; then it is looked what the listener is."""
    balancers = ", ".join(turn.found.facts) or error.message
    if not turn.job.record.waits:
        return Blocked(f"used by {balancers}", until=until_round(turn.settings.check_after, 0.5))
    return turn.hop(DELETE_LISTENER, f"still used by {balancers}")


async def unblock(turn: Turn) -> Verdict:
    balancers = await BALANCER.read(turn.calls, turn.found.facts) if turn.found.facts else {}
    for arn in turn.found.facts:
        found = balancers.get(arn)
        if found is not None and (foreign := owned(found, turn.owner, BALANCER)):
            return Blocked(f"used by a balancer that is not the cluster's: {foreign}")
    for arn in balancers:
        async for listener in _forwarding(turn, arn):
            await turn.clear()
            try:
                await turn.calls.call("elbv2", "delete_listener", ListenerArn=listener)
            except AwsError as error:
                if error.what != "gone":
                    raise
            return turn.hop(DELETE_TARGET_GROUP, f"deleted listener {listener}, which used it")
    # Nothing that uses it is to be seen: its balancer went a moment ago, and AWS has not caught up yet.
    after = until_round(turn.settings.check_after, 0.5)
    return turn.hop(DELETE_TARGET_GROUP, "no listener that uses it is left", after=after)


async def _forwarding(turn: Turn, balancer: str) -> AsyncIterator[str]:
    """The listeners of a balancer that forward to the target group, by default or by a rule."""
    try:
        async for page in turn.calls.pages("elbv2", "describe_listeners", "Listeners", LoadBalancerArn=balancer):
            for listener in page:
                arn = listener["ListenerArn"]
                if _forwards(listener.get("DefaultActions", ()), turn.found.id) or await _by_rule(turn, arn):
                    yield arn
    except AwsError as error:
        # The balancer went meanwhile, and its listeners with it.
        if error.what != "gone":
            raise


async def _by_rule(turn: Turn, listener: str) -> bool:
    async for page in turn.calls.pages("elbv2", "describe_rules", "Rules", ListenerArn=listener):
        if any(_forwards(rule.get("Actions", ()), turn.found.id) for rule in page):
            return True
    return False


def _forwards(actions: Any, target_group: str) -> bool:
    for action in actions:
        several = (action.get("ForwardConfig") or {}).get("TargetGroups") or ()
        if target_group in (action.get("TargetGroupArn"), *(one.get("TargetGroupArn") for one in several)):
            return True
    return False
