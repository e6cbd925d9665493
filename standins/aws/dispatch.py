"""Request dispatcher of the AWS stand-in: faults, token buckets and checks first, then our handler or moto.
It handles one request at a time, so that nothing changes between a check and its effect."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from standins.aws import databases, elb_describe, load_balancers, log_groups, slow_operations
from standins.aws.balancer_interfaces import BalancerInterfaces
from standins.aws.behaviour import AwsBehaviour, AwsFault
from standins.aws.buckets import bucket_refusal, list_uploads, undeletable
from standins.aws.calls import WEB_IDENTITY, AwsCall, parse_call
from standins.aws.cloud_control import CloudControl
from standins.aws.cloud_control_tags import instance_profile_tags, retag
from standins.aws.dependencies import CHECKS
from standins.aws.iam_and_kms import bounded_entities, key_described
from standins.aws.journal import AwsJournal
from standins.aws.moto_backends import Moto, ec2_of
from standins.aws.moto_patches import patch_moto
from standins.aws.paging import Ec2Paging, too_many_filter_values
from standins.aws.responses import AwsResponse, denied, failed, proxy_page, succeeded, throttled
from standins.aws.roles import RoleChecks
from standins.aws.tagging_api import DeletedTags, TaggingApi, tags_before_delete
from standins.aws.throttling import AwsThrottle
from standins.clock import Clock
from standins.fault_injection import FaultInjector

_CREATING = ("Create", "Run", "Allocate", "Add")


@dataclass(frozen=True, slots=True)
class RawRequest:
    method: str
    path: str
    headers: Any
    body: bytes


class AwsDispatcher:
    def __init__(self, behaviour: AwsBehaviour, rate: float = 1.0) -> None:
        patch_moto()
        self.behaviour = behaviour
        self.clock, self.journal, self.faults = Clock(rate), AwsJournal(), FaultInjector(_matches, ("slow",))
        self._buckets, self._paging, self._moto = AwsThrottle(), Ec2Paging(), Moto()
        self._roles, self._deleted = RoleChecks(self.clock), DeletedTags(self.clock)
        self._interfaces = BalancerInterfaces(self.clock, self.journal)
        self._tagging = TaggingApi(self.clock, self._deleted)
        self._cloud_control = CloudControl(self.clock, self.journal, self.faults_for)
        self._handlers = self._own_handlers()
        self._follow_up = self._follow_ups()

    def parse_call(self, request: RawRequest) -> AwsCall | None:
        return parse_call(request.method, request.path, request.headers, request.body, self._roles.accounts)

    def faults_for(self, call: AwsCall) -> list[AwsFault]:
        return [] if call.setup else self.faults.of(call, self.behaviour.faults)

    def answer(
        self, call: AwsCall, request: RawRequest, fault: AwsFault | None, delayed: float = 0.0
    ) -> AwsResponse | None:
        """None closes the connection without a response. The journal records the request in either case."""
        self.clock.catch_up()
        answer = self._response(call, request, fault)
        cut = fault is not None and fault.what in ("close", "lost")
        at = self.clock.now()
        self.journal.request(call, at, self.clock.real(at), 0 if cut else answer.status, answer.code, delayed)
        return None if cut else answer

    def _response(self, call: AwsCall, request: RawRequest, fault: AwsFault | None) -> AwsResponse:
        match fault:
            # A request that never reaches AWS takes no token.
            case AwsFault(what="html", status=status):
                return proxy_page(status)
            case AwsFault(what="close"):
                return AwsResponse(0, b"", code="closed")
        if not call.setup and self.behaviour.buckets and not self._buckets.take(call, self.clock.now()):
            return throttled(call)
        match fault:
            case AwsFault(what="deny"):
                return denied(call)
            case AwsFault(what="throttle"):
                return throttled(call)
            case AwsFault(what="error", code=code, message=message, status=status):
                return failed(call, code, message, status)
        return self._handle(call, request)

    def _handle(self, call: AwsCall, request: RawRequest) -> AwsResponse:
        refusal = self._roles.expired(call) or self._roles.refused(call, self.behaviour) or too_many_filter_values(call)
        refusal = refusal or bucket_refusal(call)
        if (early := refusal or self._paging.following(call, self.behaviour)) is not None:
            return early
        creates = call.action.startswith(_CREATING)
        if creates:
            self._tagging.note(call, self.behaviour)
        deleted = tags_before_delete(call)
        check = CHECKS.get(call.name)
        answer = check(call) if check is not None else None
        own = self._handlers.get(call.name)
        if answer is None and own is not None:
            answer = own(call)
        if answer is None:
            answer = self._moto.answer(call, request.method, request.path, request.headers, request.body)
            answer = self._paging.first(call, answer, self.behaviour)
        if (after := self._follow_up.get(call.name)) is not None:
            answer = after(call, answer)
        if deleted and answer.status == 200:
            self._deleted.add(call, deleted)
        if creates:
            self._tagging.note(call, self.behaviour)
        return answer

    def _own_handlers(self) -> dict[str, Callable[[AwsCall], AwsResponse | None]]:
        """Handlers that replace moto's; one that returns None leaves the request to moto."""
        return {
            "cloudcontrol.CancelResourceRequest": lambda call: self._cloud_control.cancel(call, self.behaviour),
            "cloudcontrol.DeleteResource": lambda call: self._cloud_control.delete_resource(call, self.behaviour),
            "cloudcontrol.GetResource": self._cloud_control.get_resource,
            "cloudcontrol.GetResourceRequestStatus": lambda call: self._cloud_control.status(call, self.behaviour),
            "cloudcontrol.ListResourceRequests": self._cloud_control.requests,
            "ec2.DeleteSecurityGroup": _delete_security_group,
            "ec2.DeleteTags": _delete_all_tags,
            "ec2.DeleteNatGateway": lambda call: slow_operations.delete_nat_gateway(call, self.clock, self.behaviour),
            "ec2.DeleteVpcEndpoints": lambda call: slow_operations.delete_vpc_endpoints(
                call, self.clock, self.behaviour
            ),
            "eks.DeleteCluster": lambda call: slow_operations.delete_eks_cluster(call, self.clock, self.behaviour),
            "elb.AddTags": elb_describe.classic_retagged,
            "elb.RemoveTags": elb_describe.classic_retagged,
            "elb.DeleteLoadBalancer": lambda call: load_balancers.delete_classic(
                call, self._interfaces, self.behaviour
            ),
            "elb.DescribeLoadBalancers": lambda call: elb_describe.classic_balancers(call, self.behaviour),
            "elb.DescribeTags": elb_describe.classic_tags,
            "elbv2.AddTags": elb_describe.retagged,
            "elbv2.RemoveTags": elb_describe.retagged,
            "elbv2.DeleteLoadBalancer": lambda call: load_balancers.delete(call, self._interfaces, self.behaviour),
            "elbv2.DeleteTargetGroup": load_balancers.delete_target_group,
            "elbv2.DescribeLoadBalancers": lambda call: elb_describe.balancers(call, self.behaviour),
            "elbv2.DescribeTargetGroups": lambda call: elb_describe.target_groups(call, self.behaviour),
            "elbv2.DescribeTags": elb_describe.tags,
            "iam.ListEntitiesForPolicy": bounded_entities,
            "iam.ListInstanceProfileTags": instance_profile_tags,
            "logs.DeleteLogGroup": lambda call: log_groups.delete(call, self.behaviour),
            "logs.PutLogGroupDeletionProtection": log_groups.switch,
            "rds.DeleteDBCluster": lambda call: databases.delete_cluster(call, self.clock, self.behaviour),
            "rds.DeleteDBInstance": lambda call: databases.delete_instance(call, self.clock, self.behaviour),
            "s3.DeleteObjects": lambda _call: undeletable(self.behaviour.undeletable),
            "s3.ListMultipartUploads": list_uploads,
            "tagging.GetResources": lambda call: self._tagging.get_resources(call, self.behaviour),
            "tagging.TagResources": retag,
            "tagging.UntagResources": retag,
        }

    def _follow_ups(self) -> dict[str, Callable[[AwsCall, AwsResponse], AwsResponse]]:
        """What is done after moto has responded."""
        return {
            "ec2.CreateSnapshot": lambda call, it: slow_operations.begin_snapshot(call, it, self.clock, self.behaviour),
            "ec2.TerminateInstances": slow_operations.terminated,
            "elb.ApplySecurityGroupsToLoadBalancer": lambda call, it: load_balancers.regrouped(
                call, it, self._interfaces
            ),
            "elb.CreateLoadBalancer": lambda call, it: load_balancers.made_classic(call, it, self._interfaces),
            "elbv2.CreateLoadBalancer": lambda call, it: load_balancers.made(call, it, self._interfaces),
            "elbv2.DeleteListener": load_balancers.delete_listener,
            "elbv2.SetSecurityGroups": lambda call, it: load_balancers.regrouped(call, it, self._interfaces),
            "kms.DescribeKey": key_described,
            "logs.DescribeLogGroups": lambda call, it: log_groups.described(call, it, self.behaviour),
            "rds.CreateDBInstance": databases.made_instance,
            "sts.AssumeRole": self._roles.issued,
            f"sts.{WEB_IDENTITY}": self._roles.issued,
        }


def _delete_all_tags(call: AwsCall) -> AwsResponse | None:
    """A request without tag names removes all tags but AWS's own; moto would remove none. None leaves it to moto."""
    if any(name.startswith("Tag.") for name in call.params):
        return None
    known = ec2_of(call).tags
    for one in call.many("ResourceId"):
        known[one] = {key: value for key, value in known.get(one, {}).items() if key.startswith("aws:")}
    return succeeded(call)


def _delete_security_group(call: AwsCall) -> AwsResponse:
    """Called after the checks. moto's own handler would search every VPC through its server."""
    ec2, group = ec2_of(call), call.text("GroupId")
    ec2.delete_security_group(group_id=group)
    ec2.tags.pop(group, None)
    return succeeded(call)


def _matches(fault: AwsFault, call: AwsCall) -> bool:
    return (
        fnmatchcase(call.name, fault.action)
        and fault.account in ("", call.account)
        and fault.region in ("", call.region)
        and (not fault.about or any(fault.about in value for value in call.values()))
    )
