"""Names of an AWS operation: the SDK's, the one in IAM policies, and the one in lanes and limits. The latter two are
derived from the first."""

from typing import Final, NamedTuple

# Services whose prefix differs from the SDK's name.
_IAM_PREFIXES: Final = {
    "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing",
    "resourcegroupstaggingapi": "tag",
}
_LIMIT_PREFIXES: Final = {"resourcegroupstaggingapi": "tag"}


class OperationNames(NamedTuple):
    """`action` as in elasticloadbalancing:DeleteLoadBalancer, `limited` as in elbv2.DeleteLoadBalancer."""

    action: str
    limited: str


def operation_names(service: str, operation: str) -> OperationNames:
    """From the SDK's names, `elbv2` and `delete_load_balancer`."""
    name = "".join(word.capitalize() for word in operation.split("_"))
    return OperationNames(
        f"{_IAM_PREFIXES.get(service, service)}:{name}", f"{_LIMIT_PREFIXES.get(service, service)}.{name}"
    )
