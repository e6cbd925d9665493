"""A target group that a listener still forwards to. A listener goes with its balancer; it is deleted on its own only
where it blocks a target group of the same owner, and its balancer is the owner's as well, and to go."""

from collections.abc import AsyncIterator
from typing import Any, Final

from service.contract import Blocked, Verdict
from service.contract.aws import EXTERNAL_RESOURCE_TASKS
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.kinds.balancers import BALANCER
from workers.handlers.aws.model import Found, Overtaken, Turn
from workers.handlers.aws.ownership import owned, protected, retained
from workers.handlers.aws.rounds import until_round
from workers.handlers.aws.trails import VAIN, Trail, trail_of

DELETE_LISTENER: Final = "elbv2.DeleteListener"
DELETE_TARGET_GROUP: Final = "elbv2.DeleteTargetGroup"
DOUBLINGS: Final = 4
"""Of the time until it is tried again, while nothing that uses it is to be seen."""

READS: Final = (
    "elbv2.DescribeLoadBalancers", "elbv2.DescribeTags", "elbv2.DescribeListeners", "elbv2.DescribeRules",
)  # fmt: skip


async def in_use(turn: Turn, error: AwsError) -> Verdict:
    """First it is waited for the balancer, which may just be going; then it is looked what the listener is. Where that
    finds nothing again and again, it is waited longer and longer."""
    balancers, vain = ", ".join(turn.found.facts) or error.message, trail_of(turn.resume).vain
    if turn.job.record.waits:
        return turn.hop(DELETE_LISTENER, f"still used by {balancers}", resume=turn.resume)
    if vain < VAIN:
        return Blocked(f"used by {balancers}", until=until_round(turn.settings.check_after, 0.5))
    return Blocked(
        f"AWS says that something uses it ({error.code}: {balancers}), but no listener and no listener's rule that "
        f"does is to be seen: look for balancers of other accounts that share its VPC",
        until=until_round(turn.settings.check_after * 2 ** (vain - VAIN + 1), 0.5),
        person=True,
    )


async def unblock(turn: Turn) -> Verdict:
    balancers = await _balancers(turn)
    for arn in balancers:
        async for listener in _forwarding(turn, arn):
            # Among many listeners and rules the search takes long.
            young = await turn.renewed()
            if young is not turn and arn not in await _balancers(young):
                return turn.hop(DELETE_TARGET_GROUP, f"not used by {arn} any more")
            owner = await young.live()
            if arn in owner.spared:
                words = f"used by listener {listener} of a balancer that was abandoned: take the listener away"
                return Blocked(words, person=True)
            if owner.by == "ccm" and not owner.balancers:
                return Blocked(
                    f"used by listener {listener} of a balancer of the cluster that is not to go: take the listener "
                    f"away, or add the task load-balancer (annotation {EXTERNAL_RESOURCE_TASKS}), with which it goes",
                    person=True,
                )
            try:
                await turn.calls.call("elbv2", "delete_listener", ListenerArn=listener)
            except AwsError as error:
                if error.what != "gone":
                    raise
            return turn.hop(DELETE_TARGET_GROUP, f"deleted listener {listener}, which used it")
    # Nothing that uses it is to be seen: its balancer went a moment ago, and AWS has not caught up yet.
    after, vain = until_round(turn.settings.check_after, 0.5), trail_of(turn.resume).vain
    resume = Trail(vain=min(vain + 1, VAIN + DOUBLINGS)).text
    return turn.hop(DELETE_TARGET_GROUP, "no listener that uses it is left", after=after, resume=resume)


async def _balancers(turn: Turn) -> dict[str, Found]:
    """Those that use it and are there. Raises Overtaken where one of them is not the owner's, or stays."""
    balancers = await BALANCER.read(turn.calls, turn.found.facts) if turn.found.facts else {}
    for found in balancers.values():
        if foreign := owned(found, turn.owner, BALANCER):
            raise Overtaken(Blocked(f"used by a balancer that is not the cluster's: {foreign}", person=True))
        if kept := protected(found) or retained(found):
            raise Overtaken(Blocked(f"used by a balancer that is not to go: {kept}", person=True))
    return balancers


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
