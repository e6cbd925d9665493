"""The layer around moto that makes it honest: each request passes faults, buckets and checks before moto sees it.
One request at a time goes through here, so that nothing happens between a check and what it allowed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from standins.aws import balancers, departures, listing
from standins.aws.answers import Answer, denied, failed, page_of_a_proxy, succeeded, throttled
from standins.aws.behaviour import Behaviour, Fault
from standins.aws.buckets import Buckets
from standins.aws.calls import WEB_IDENTITY, Call, read
from standins.aws.dependencies import CHECKS
from standins.aws.faults import Faults
from standins.aws.ghosts import Ghosts, about_to_go
from standins.aws.interfaces import Interfaces
from standins.aws.journal import Journal
from standins.aws.mending import mend
from standins.aws.moto_side import Moto, ec2_of
from standins.aws.paging import Paging, too_much
from standins.aws.roles import Roles
from standins.aws.tagging import Tagging
from standins.clock import Clock

_MAKING = ("Create", "Run", "Allocate", "Add")


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: Any
    body: bytes


class Layer:
    def __init__(self, behaviour: Behaviour, rate: float = 1.0) -> None:
        mend()
        self.behaviour = behaviour
        self.clock, self.journal, self.faults = Clock(rate), Journal(), Faults()
        self._buckets, self._paging, self._moto = Buckets(), Paging(), Moto()
        self._roles, self._ghosts = Roles(self.clock), Ghosts(self.clock)
        self._interfaces = Interfaces(self.clock, self.journal)
        self._tagging = Tagging(self.clock, self._ghosts)
        self._own = self._own_answers()
        self._after = self._afterthoughts()

    def read(self, request: Request) -> Call | None:
        return read(request.method, request.path, request.headers, request.body, self._roles.accounts)

    def troubles(self, call: Call) -> list[Fault]:
        return [] if call.setup else self.faults.of(call, self.behaviour.faults)

    def answer(self, call: Call, request: Request, trouble: Fault | None, delayed: float = 0.0) -> Answer | None:
        """None: the connection ends without one. The journal has it in either case, with how long it was delayed."""
        self.clock.catch_up()
        answer = self._judged(call, request, trouble)
        cut = trouble is not None and trouble.what in ("close", "lost")
        at = self.clock.now()
        self.journal.request(call, at, self.clock.real(at), 0 if cut else answer.status, answer.code, delayed)
        return None if cut else answer

    def _judged(self, call: Call, request: Request, trouble: Fault | None) -> Answer:
        match trouble:
            # What never reaches AWS draws on no bucket.
            case Fault(what="html", status=status):
                return page_of_a_proxy(status)
            case Fault(what="close"):
                return Answer(0, b"", code="closed")
        if not call.setup and self.behaviour.buckets and not self._buckets.take(call, self.clock.now()):
            return throttled(call)
        match trouble:
            case Fault(what="deny"):
                return denied(call)
            case Fault(what="throttle"):
                return throttled(call)
            case Fault(what="error", code=code, message=message, status=status):
                return failed(call, code, message, status)
        return self._done(call, request)

    def _done(self, call: Call, request: Request) -> Answer:
        refusal = self._roles.expired(call) or self._roles.refused(call, self.behaviour) or too_much(call)
        if (early := refusal or self._paging.following(call, self.behaviour)) is not None:
            return early
        makes = call.action.startswith(_MAKING)
        if makes:
            self._tagging.note(call, self.behaviour)
        going = about_to_go(call)
        check = CHECKS.get(call.name)
        answer = check(call) if check is not None else None
        own = self._own.get(call.name)
        if answer is None and own is not None:
            answer = own(call)
        if answer is None:
            answer = self._moto.answer(call, request.method, request.path, request.headers, request.body)
            answer = self._paging.first(call, answer, self.behaviour)
        if (after := self._after.get(call.name)) is not None:
            answer = after(call, answer)
        if going and answer.status == 200:
            self._ghosts.add(call, going)
        if makes:
            self._tagging.note(call, self.behaviour)
        return answer

    def _own_answers(self) -> dict[str, Callable[[Call], Answer | None]]:
        """What is answered here instead of by moto; None leaves it to moto after all."""
        return {
            "ec2.DeleteSecurityGroup": _delete_security_group,
            "ec2.DeleteTags": _delete_all_tags,
            "ec2.DeleteNatGateway": lambda call: departures.delete_nat_gateway(call, self.clock, self.behaviour),
            "ec2.DeleteVpcEndpoints": lambda call: departures.delete_vpc_endpoints(call, self.clock, self.behaviour),
            "eks.DeleteCluster": lambda call: departures.delete_eks_cluster(call, self.clock, self.behaviour),
            "elb.AddTags": listing.classic_retagged,
            "elb.RemoveTags": listing.classic_retagged,
            "elb.DeleteLoadBalancer": lambda call: balancers.delete_classic(call, self._interfaces, self.behaviour),
            "elb.DescribeLoadBalancers": lambda call: listing.classic_balancers(call, self.behaviour),
            "elb.DescribeTags": listing.classic_tags,
            "elbv2.AddTags": listing.retagged,
            "elbv2.RemoveTags": listing.retagged,
            "elbv2.DeleteLoadBalancer": lambda call: balancers.delete(call, self._interfaces, self.behaviour),
            "elbv2.DeleteTargetGroup": balancers.delete_target_group,
            "elbv2.DescribeLoadBalancers": lambda call: listing.balancers(call, self.behaviour),
            "elbv2.DescribeTargetGroups": lambda call: listing.target_groups(call, self.behaviour),
            "elbv2.DescribeTags": listing.tags,
            "tagging.GetResources": lambda call: self._tagging.get_resources(call, self.behaviour),
        }

    def _afterthoughts(self) -> dict[str, Callable[[Call, Answer], Answer]]:
        """What follows from an answer of moto's."""
        return {
            "ec2.CreateSnapshot": lambda call, it: departures.begin_snapshot(call, it, self.clock, self.behaviour),
            "ec2.TerminateInstances": departures.terminated,
            "elb.ApplySecurityGroupsToLoadBalancer": lambda call, it: balancers.regrouped(call, it, self._interfaces),
            "elb.CreateLoadBalancer": lambda call, it: balancers.made_classic(call, it, self._interfaces),
            "elbv2.CreateLoadBalancer": lambda call, it: balancers.made(call, it, self._interfaces),
            "elbv2.DeleteListener": balancers.delete_listener,
            "elbv2.SetSecurityGroups": lambda call, it: balancers.regrouped(call, it, self._interfaces),
            "sts.AssumeRole": self._roles.issued,
            f"sts.{WEB_IDENTITY}": self._roles.issued,
        }


def _delete_all_tags(call: Call) -> Answer | None:
    """Who names no tag means all but AWS's own; moto takes off none then. None leaves it to moto."""
    if any(name.startswith("Tag.") for name in call.params):
        return None
    known = ec2_of(call).tags
    for one in call.many("ResourceId"):
        known[one] = {key: value for key, value in known.get(one, {}).items() if key.startswith("aws:")}
    return succeeded(call)


def _delete_security_group(call: Call) -> Answer:
    """Its checks are through; moto would look for it in every VPC by way of its server."""
    ec2, group = ec2_of(call), call.text("GroupId")
    ec2.delete_security_group(group_id=group)
    ec2.tags.pop(group, None)
    return succeeded(call)
