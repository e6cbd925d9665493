"""Token buckets of AWS per account and region, as documented and measured, on the stand-in's clock.
They are independent of the limits in Knell, which they exist to test."""

from typing import Final

from standins.aws.calls import AwsCall
from standins.token_bucket import TokenBucket

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
# Measured, of all calls together: AWS documents no figure.
CLOUD_CONTROL: Final = (30.0, 30.0)


class AwsThrottle:
    def __init__(self) -> None:
        self._all: dict[tuple[str, str, str], TokenBucket] = {}

    def take(self, call: AwsCall, now: float) -> bool:
        """Takes one token of each bucket that the call draws on, or none at all."""
        wanted = [self._bucket(call, name, size, now) for name, size in drawn(call)]
        if any(bucket.left < 1 - 1e-9 for bucket in wanted):
            return False
        for bucket in wanted:
            bucket.left -= 1
        return True

    def _bucket(self, call: AwsCall, name: str, size: tuple[float, float], now: float) -> TokenBucket:
        key = (call.account, call.region, name)
        if (bucket := self._all.get(key)) is None:
            bucket = self._all[key] = TokenBucket(*size, left=size[0], since=now)
        bucket.refill(now)
        return bucket


def drawn(call: AwsCall) -> list[tuple[str, tuple[float, float]]]:
    """Names and sizes of the buckets that a call draws on."""
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
        case "cloudcontrol":
            return [("cloudcontrol all", CLOUD_CONTROL)]
    return []
