"""Pages of EC2's describes, also for requests without a page size, and the limit on filter values; moto has neither.
The whole response is built once and cut into pages, so a deletion in between shortens none."""

import re
import uuid
import xml.etree.ElementTree as Xml
from typing import Final

from standins.aws.behaviour import AwsBehaviour
from standins.aws.calls import AwsCall
from standins.aws.responses import AwsResponse, failed

# DescribeAddresses is not among them: it has no pages.
_LISTS: Final = {
    "DescribeSecurityGroups": "securityGroupInfo",
    "DescribeSecurityGroupRules": "securityGroupRuleSet",
    "DescribeNetworkInterfaces": "networkInterfaceSet",
    "DescribeVolumes": "volumeSet",
    "DescribeSnapshots": "snapshotSet",
    "DescribeNatGateways": "natGatewaySet",
    "DescribeVpcEndpoints": "vpcEndpointSet",
    "DescribeInstances": "reservationSet",
    "DescribeVpcs": "vpcSet",
    "DescribeSubnets": "subnetSet",
}
_SPACE: Final = "{http://ec2.amazonaws.com/doc/2016-11-15/}"
_VALUE: Final = re.compile(r"Filter\.\d+\.Value\.\d+")
_MOST_VALUES: Final = 200


def too_many_filter_values(call: AwsCall) -> AwsResponse | None:
    """The error for a request with too many filter values, counted over all filters."""
    if call.service != "ec2" or sum(_VALUE.fullmatch(key) is not None for key in call.params) <= _MOST_VALUES:
        return None
    message = f"The maximum number of filter values specified on a single call is {_MOST_VALUES}"
    return failed(call, "FilterLimitExceeded", message)


class Ec2Paging:
    def __init__(self) -> None:
        self._remaining: dict[str, list[Xml.Element]] = {}

    def following(self, call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse | None:
        """The page of a token; None for a call without one."""
        token = call.text("NextToken")
        if call.service != "ec2" or call.action not in _LISTS or not token:
            return None
        if (left := self._remaining.pop(token, None)) is None:
            return failed(call, "InvalidParameterValue", "The token is not valid")
        return self._page(call, left, behaviour)

    def first(self, call: AwsCall, answer: AwsResponse, behaviour: AwsBehaviour) -> AwsResponse:
        """The first page of a whole response."""
        if call.service != "ec2" or call.action not in _LISTS or answer.status != 200:
            return answer
        # Items are nested: if even their total count fits, it is one page.
        if answer.body.count(b"<item>") <= _size(call, behaviour):
            return answer
        whole = Xml.fromstring(answer.body)  # noqa: S314 - moto wrote it, in this process
        held = next((one for one in whole if one.tag.rpartition("}")[2] == _LISTS[call.action]), None)
        return answer if held is None else self._page(call, list(held), behaviour)

    def _page(self, call: AwsCall, items: list[Xml.Element], behaviour: AwsBehaviour) -> AwsResponse:
        size = _size(call, behaviour)
        root = Xml.Element(f"{_SPACE}{call.action}Response")
        Xml.SubElement(root, f"{_SPACE}requestId").text = str(uuid.uuid4())
        Xml.SubElement(root, f"{_SPACE}{_LISTS[call.action]}").extend(items[:size])
        if len(items) > size:
            token = str(uuid.uuid4())
            self._remaining[token] = items[size:]
            Xml.SubElement(root, f"{_SPACE}nextToken").text = token
        return AwsResponse(200, Xml.tostring(root), {"Content-Type": "text/xml;charset=UTF-8"})


def _size(call: AwsCall, behaviour: AwsBehaviour) -> int:
    return min(call.number("MaxResults") or behaviour.ec2_page_size, behaviour.ec2_page_size)
