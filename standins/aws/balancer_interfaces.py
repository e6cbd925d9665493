"""Network interfaces of load balancers, which remain for a while after the load balancer is deleted.
moto's load balancers have none, so their security groups could be deleted at any time."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from moto.ec2.models.elastic_network_interfaces import NetworkInterface

from standins.aws.calls import AwsCall
from standins.aws.journal import AwsJournal
from standins.aws.moto_backends import ec2_of
from standins.clock import Clock

_TYPES = {"network": "network_load_balancer", "gateway": "gateway_load_balancer"}


class BalancerInterface(NetworkInterface):  # type: ignore[misc]
    """Attached by Amazon; a customer cannot detach it."""

    @property
    def attachment(self) -> Any:
        return SimpleNamespace(
            attachment_id=f"ela-attach-{self.id.removeprefix('eni-')}",
            delete_on_termination=False,
            device_index=1,
            network_card_index=0,
            instance_id=None,
            instance_owner_id="amazon-elb",
            attach_time=None,
            status="attached",
        )


def hidden_interfaces(ec2: Any) -> dict[str, Any]:
    """Those that exist but are missing from describes."""
    found: dict[str, Any] = vars(ec2).setdefault("hidden_enis", {})
    return found


class BalancerInterfaces:
    """Load balancers are identified by ARN, classic ones by name."""

    def __init__(self, clock: Clock, journal: AwsJournal) -> None:
        self._clock, self._journal = clock, journal
        self._of: dict[tuple[str, str, str], list[BalancerInterface]] = {}

    def attach(self, call: AwsCall, balancer: str, subnets: Iterable[Any], groups: list[str], kind: str = "") -> None:
        """`kind` is application, network or gateway; empty for a classic balancer."""
        ec2 = ec2_of(call)
        words = f"ELB {balancer.partition('loadbalancer/')[2] or balancer}"
        for subnet in subnets:
            one = BalancerInterface(ec2, subnet, "", group_ids=groups or None, description=words)
            if not groups and kind in ("network", "gateway"):
                one._group_set = []
            one.status, one.requester_managed, one.requester_id = "in-use", True, "amazon-elb"
            one.interface_type = _TYPES.get(kind, "interface")
            ec2.enis[one.id] = one
            self._of.setdefault((call.account, call.region, balancer), []).append(one)

    def regroup(self, call: AwsCall, balancer: str, groups: list[str]) -> None:
        ec2 = ec2_of(call)
        for one in self._of.get((call.account, call.region, balancer), []):
            one._group_set = [ec2.get_security_group_from_id(group) for group in groups]

    def drain(self, call: AwsCall, balancer: str, seconds: float, *, unseen: bool) -> None:
        """Called when the load balancer is deleted; removes its network interfaces later."""
        left = self._of.pop((call.account, call.region, balancer), [])
        ec2 = ec2_of(call)
        hidden = hidden_interfaces(ec2)
        for one in left if unseen else ():
            hidden[one.id] = ec2.enis.pop(one.id)

        def gone(at: float) -> None:
            for one in left:
                ec2.enis.pop(one.id, None)
                hidden.pop(one.id, None)
                ec2.tags.pop(one.id, None)
                groups = [group.id for group in one._group_set]
                self._journal.drained(one.id, groups, at, self._clock.real(at))

        self._clock.after(seconds, gone)
