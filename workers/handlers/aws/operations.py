"""One operation has three names: the SDK's, the one that IAM policies use, and the one of lanes and limits.
They are made from the first, so that whoever calls names it once."""

from typing import Final, NamedTuple

# Where it is not the SDK's name.
_IAM: Final = {"elb": "elasticloadbalancing", "elbv2": "elasticloadbalancing", "resourcegroupstaggingapi": "tag"}
_SHORT: Final = {"resourcegroupstaggingapi": "tag"}


class Operation(NamedTuple):
    """`action` as in elasticloadbalancing:DeleteLoadBalancer, `limited` as in elbv2.DeleteLoadBalancer."""

    action: str
    limited: str


def operation_of(service: str, operation: str) -> Operation:
    """From the SDK's names, `elbv2` and `delete_load_balancer`."""
    name = "".join(word.capitalize() for word in operation.split("_"))
    return Operation(f"{_IAM.get(service, service)}:{name}", f"{_SHORT.get(service, service)}.{name}")
