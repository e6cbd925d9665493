"""What takes its time at AWS and is done at once in moto: NAT gateways, VPC endpoints, EKS clusters, snapshots.
While they go they show it in their state."""

import re
from functools import partial
from typing import Any

from standins.aws.answers import Answer, failed, succeeded
from standins.aws.behaviour import Behaviour
from standins.aws.calls import Call
from standins.aws.moto_side import ec2_of, eks_of
from standins.clock import Clock

_SNAPSHOT = re.compile(rb"<snapshotId>(snap-[0-9a-f]+)</snapshotId>")


def delete_nat_gateway(call: Call, clock: Clock, behaviour: Behaviour) -> Answer:
    ec2, name = ec2_of(call), call.text("NatGatewayId")
    one = ec2.nat_gateways.get(name)
    if one is None:
        return failed(call, "NatGatewayNotFound", f"The Nat Gateway {name} was not found")

    def gone(_at: float) -> None:
        one.state = "deleted"
        for address in ec2.addresses:
            if address.eni is not None and address.eni.id == one._eni.id:
                address.eni = address.association_id = None
        ec2.enis.pop(one._eni.id, None)
        clock.after(behaviour.nat_gateway_shows, lambda _: ec2.nat_gateways.pop(name, None))

    if one.state == "available":
        one.state = "deleting"
        clock.after(behaviour.nat_gateway_goes, gone)
    return succeeded(call, {"natGatewayId": name})


def delete_vpc_endpoints(call: Call, clock: Clock, behaviour: Behaviour) -> Answer:
    """Succeeds as a whole, and lists what it could not do."""
    ec2 = ec2_of(call)
    unsuccessful: list[dict[str, Any]] = []
    for name in call.many("VpcEndpointId"):
        one = ec2.vpc_end_points.get(name)
        if one is None:
            words = f"The Vpc Endpoint Id '{name}' does not exist"
            error = {"code": "InvalidVpcEndpoint.NotFound", "message": words}
            unsuccessful.append({"error": error, "resourceId": name})
        elif one.state != "deleting":
            one.state = "deleting"
            clock.after(behaviour.endpoint_goes, partial(_endpoint_gone, ec2, name))
    return succeeded(call, {"unsuccessful": unsuccessful})


def _endpoint_gone(ec2: Any, name: str, _at: float) -> None:
    ec2.delete_vpc_endpoints([name])
    ec2.vpc_end_points.pop(name, None)


def delete_eks_cluster(call: Call, clock: Clock, behaviour: Behaviour) -> Answer | None:
    """None where moto's own answer is right: there is no such cluster."""
    eks, name = eks_of(call), call.path.split("?")[0].strip("/").rpartition("/")[2]
    one = eks.clusters.get(name)
    if one is None:
        return None
    if one.status != "DELETING":
        one.status = "DELETING"
        clock.after(behaviour.eks_cluster_goes, lambda _: eks.clusters.pop(name, None))
    body = b'{"cluster": {"name": "%s", "status": "DELETING"}}' % name.encode()
    return Answer(200, body, {"Content-Type": "application/json"})


def terminated(call: Call, answer: Answer) -> Answer:
    """Called with moto's answer: an instance takes its first interface with it."""
    ec2 = ec2_of(call)
    named = set(call.many("InstanceId")) if answer.status == 200 else set()
    for one in list(ec2.enis.values()):
        if one.instance is not None and one.instance.id in named and int(one.device_index or 0) == 0:
            del ec2.enis[one.id]
    return answer


def begin_snapshot(call: Call, answer: Answer, clock: Clock, behaviour: Behaviour) -> Answer:
    """Called with moto's answer, in which the snapshot is complete before it was begun."""
    named = _SNAPSHOT.search(answer.body)
    if answer.status != 200 or named is None or behaviour.snapshot_takes <= 0:
        return answer
    one = ec2_of(call).snapshots[named.group(1).decode()]
    one.status, one.state_message = "pending", behaviour.snapshots_fail
    end = "error" if behaviour.snapshots_fail else "completed"
    clock.after(behaviour.snapshot_takes, lambda _: setattr(one, "status", end))
    return Answer(200, answer.body.replace(b"<status>completed<", b"<status>pending<"), answer.headers)
