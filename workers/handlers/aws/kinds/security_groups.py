"""Security groups, the last of a cluster's network. `groups` waits for what uses them and says what stands against
them, `revoking` frees them of rules that refer to them."""

from workers.handlers.aws.groups import DELETE, GROUPS, INTERFACES, around, attached, before, drained, group_of, refused
from workers.handlers.aws.groups import revoking as lane_of
from workers.handlers.aws.model import Calls, Found, Kind, Step
from workers.handlers.aws.reading.ec2 import Ec2Reader
from workers.handlers.aws.revoking import step


async def _delete(calls: Calls, found: Found) -> None:
    await calls.call("ec2", "delete_security_group", GroupId=found.id)


_READER = Ec2Reader("describe_security_groups", "SecurityGroups", "group-id", group_of)

SECURITY_GROUP = Kind(
    name="aws.security-group",
    task="security-group",
    service="ec2",
    chain="network",
    stage=1,
    operation=DELETE,
    checking=GROUPS,
    arn=("ec2", "security-group"),
    read=_READER.read,
    reads=(GROUPS,),
    list_all=_READER.list_all,
    delete=_delete,
    of_lbc=True,
    look=around,
    looks=(INTERFACES, GROUPS, GROUPS),
    before=before,
    blocked=refused,
    steps={
        INTERFACES: Step(act=drained, look=attached, judged=False),
        lane_of(egress=False): step(egress=False),
        lane_of(egress=True): step(egress=True),
    },
)
