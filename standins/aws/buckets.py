"""AWS's token buckets per account and region, as they are documented and measured, kept by the stand-in's clock.
They are written independently of the limits that Knell keeps, which they are there to test."""

from typing import Final

from standins.aws.calls import Call
from standins.bucket import Bucket

_READING: Final = ("Describe", "Get", "List")
# Capacity and refill per second.
_EC2_READ, _EC2_READ_ALL, _EC2_CHANGE = (100.0, 20.0), (50.0, 10.0), (50.0, 5.0)
_EC2: Final = {
    "DeleteNetworkInterface": (100.0, 5.0),
    "DeleteVolume": (100.0, 5.0),
    "DeleteSnapshot": (100.0, 5.0),
    "DeleteNatGateway": (10.0, 1.0),
    "DeleteVpcEndpoints": (4.0, 0.3),
}
_ELB_CHANGE, _ELB_READ, _ELB_ALL = (20.0, 3.0), (40.0, 10.0), (40.0, 10.0)
_TAGGING: Final = (15.0, 15.0)


class Buckets:
    def __init__(self) -> None:
        self._all: dict[tuple[str, str, str], Bucket] = {}

    def take(self, call: Call, now: float) -> bool:
        """A token of each bucket that the call draws on, or none of any."""
        wanted = [self._bucket(call, name, size, now) for name, size in drawn(call)]
        if any(bucket.left < 1 - 1e-9 for bucket in wanted):
            return False
        for bucket in wanted:
            bucket.left -= 1
        return True

    def _bucket(self, call: Call, name: str, size: tuple[float, float], now: float) -> Bucket:
        key = (call.account, call.region, name)
        if (bucket := self._all.get(key)) is None:
            bucket = self._all[key] = Bucket(*size, left=size[0], since=now)
        bucket.refill(now)
        return bucket


def drawn(call: Call) -> list[tuple[str, tuple[float, float]]]:
    """The buckets of a call by name, with their sizes."""
    reads = call.action.startswith(_READING)
    match call.service:
        case "ec2" if not reads:
            return [(call.name, _EC2.get(call.action, _EC2_CHANGE))]
        case "ec2" if call.chooses():
            return [(call.name, _EC2_READ)]
        case "ec2":
            return [(f"{call.name} of everything", _EC2_READ_ALL)]
        case "elb" | "elbv2":
            own = ("reads", _ELB_READ) if reads else ("changes", _ELB_CHANGE)
            return [(f"{call.service} {own[0]}", own[1]), (f"{call.service} all", _ELB_ALL)]
        case "tagging" if reads:
            return [(call.name, _TAGGING)]
    return []
