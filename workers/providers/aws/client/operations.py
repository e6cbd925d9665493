"""Names of an AWS operation: the SDK's, the one in IAM policies, and the one in lanes and limits. The latter two are
derived from the first."""

from functools import lru_cache
from typing import NamedTuple

from workers.providers.aws.services import service_named


class OperationNames(NamedTuple):
    """`action` as in elasticloadbalancing:DeleteLoadBalancer, `limited` as in elbv2.DeleteLoadBalancer."""

    action: str
    limited: str


@lru_cache(maxsize=1024)
def operation_names(service: str, operation: str) -> OperationNames:
    """From the SDK's names, `elbv2` and `delete_load_balancer`. Raises Undeclared."""
    row = service_named(service)
    words = operation.split("_")
    name = "".join(word.upper() if word in row.acronyms else word.capitalize() for word in words)
    return OperationNames(row.action(name), row.operation(name))
