"""Security groups, deleted last in a network. `security_group_dependencies` waits for what uses them,
`security_group_rules` revokes rules that refer to them."""

from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind, KindStep
from workers.providers.aws.kinds.security_group_dependencies import (
    DELETE,
    GROUPS,
    INTERFACES,
    check_dependencies,
    find_dependencies,
    find_interfaces,
    on_unseen_dependency,
    parse_group,
    wait_for_interfaces,
)
from workers.providers.aws.kinds.security_group_dependencies import revoke_operation as lane_of
from workers.providers.aws.kinds.security_group_rules import revoke_step
from workers.providers.aws.reading.ec2 import Ec2Reader


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("ec2", "delete_security_group", GroupId=attempt.resource.id)


_READER = Ec2Reader("describe_security_groups", "SecurityGroups", "group-id", parse_group)

SECURITY_GROUP = AwsKind(
    name="aws.security-group",
    service="ec2",
    delete_operation=DELETE,
    check_operation=GROUPS,
    arn=("ec2", "security-group"),
    read=_READER.read,
    read_operations=(GROUPS,),
    list_all=_READER.list_all,
    delete=_delete,
    lookup=find_dependencies,
    lookup_operations=(INTERFACES, GROUPS, GROUPS),
    precheck=check_dependencies,
    on_dependency=on_unseen_dependency,
    steps={
        INTERFACES: KindStep(run=wait_for_interfaces, lookup=find_interfaces, checks_ownership=False),
        lane_of(egress=False): revoke_step(egress=False),
        lane_of(egress=True): revoke_step(egress=True),
    },
)
