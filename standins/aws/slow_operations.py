"""Operations that take time at AWS and are immediate in moto: deleting NAT gateways, VPC endpoints and EKS clusters,
and creating snapshots. Meanwhile the state of the resource says so."""

import re
from functools import partial
from typing import Any

from standins.aws.behaviour import AwsBehaviour
from standins.aws.calls import AwsCall
from standins.aws.moto_backends import ec2_of, eks_of
from standins.aws.responses import AwsResponse, failed, succeeded
from standins.clock import Clock

_SNAPSHOT = re.compile(rb"<snapshotId>(snap-[0-9a-f]+)</snapshotId>")


def delete_nat_gateway(call: AwsCall, clock: Clock, behaviour: AwsBehaviour) -> AwsResponse:
    ec2, name = ec2_of(call), call.text("NatGatewayId")
    one = ec2.nat_gateways.get(name)
    if one is None:
        return failed(call, "NatGatewayNotFound", f"The Nat Gateway {name} was not found")

    def gone(_at: float) -> None:
        nat_gateway_gone(ec2, name)
        clock.after(behaviour.nat_gateway_shows, lambda _: ec2.nat_gateways.pop(name, None))

    if one.state == "available":
        one.state = "deleting"
        clock.after(behaviour.nat_gateway_goes, gone)
    return succeeded(call, {"natGatewayId": name})


def nat_gateway_gone(ec2: Any, name: str) -> None:
    """It is shown as deleted, and its address and network interface are free."""
    one = ec2.nat_gateways[name]
    one.state = "deleted"
    for address in ec2.addresses:
        if address.eni is not None and address.eni.id == one._eni.id:
            address.eni = address.association_id = None
    ec2.enis.pop(one._eni.id, None)


def delete_vpc_endpoints(call: AwsCall, clock: Clock, behaviour: AwsBehaviour) -> AwsResponse:
    """The call succeeds and lists the endpoints that it could not delete."""
    ec2 = ec2_of(call)
    unsuccessful: list[dict[str, Any]] = []
    for name in call.many("VpcEndpointId"):
        one = ec2.vpc_end_points.get(name)
        if one is None:
            message = f"The Vpc Endpoint Id '{name}' does not exist"
            error = {"code": "InvalidVpcEndpoint.NotFound", "message": message}
            unsuccessful.append({"error": error, "resourceId": name})
        elif one.state != "deleting":
            one.state = "deleting"
            clock.after(behaviour.endpoint_goes, partial(_endpoint_gone, ec2, name))
    return succeeded(call, {"unsuccessful": unsuccessful})


def _endpoint_gone(ec2: Any, name: str, _at: float) -> None:
    ec2.delete_vpc_endpoints([name])
    ec2.vpc_end_points.pop(name, None)


def delete_eks_cluster(call: AwsCall, clock: Clock, behaviour: AwsBehaviour) -> AwsResponse | None:
    """None leaves the request to moto: there is no such cluster."""
    eks, name = eks_of(call), call.path.split("?")[0].strip("/").rpartition("/")[2]
    one = eks.clusters.get(name)
    if one is None:
        return None
    if one.status != "DELETING":
        one.status = "DELETING"
        clock.after(behaviour.eks_cluster_goes, lambda _: eks.clusters.pop(name, None))
    body = b'{"cluster": {"name": "%s", "status": "DELETING"}}' % name.encode()
    return AwsResponse(200, body, {"Content-Type": "application/json"})


def terminated(call: AwsCall, answer: AwsResponse) -> AwsResponse:
    """Called with moto's response: a terminated instance deletes its first network interface."""
    ec2 = ec2_of(call)
    named = set(call.many("InstanceId")) if answer.status == 200 else set()
    for one in list(ec2.enis.values()):
        if one.instance is not None and one.instance.id in named and int(one.device_index or 0) == 0:
            del ec2.enis[one.id]
    return answer


def begin_snapshot(call: AwsCall, answer: AwsResponse, clock: Clock, behaviour: AwsBehaviour) -> AwsResponse:
    """Called with moto's response, in which the snapshot is complete already."""
    named = _SNAPSHOT.search(answer.body)
    if answer.status != 200 or named is None or behaviour.snapshot_takes <= 0:
        return answer
    one = ec2_of(call).snapshots[named.group(1).decode()]
    one.status, one.state_message = "pending", behaviour.snapshots_fail
    end = "error" if behaviour.snapshots_fail else "completed"
    clock.after(behaviour.snapshot_takes, lambda _: setattr(one, "status", end))
    return AwsResponse(200, answer.body.replace(b"<status>completed<", b"<status>pending<"), answer.headers)
