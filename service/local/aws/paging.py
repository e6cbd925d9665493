"""Pages of EC2's describes for who asks for them: moto ignores MaxResults and answers with everything.
The whole answer is made once; its pages are cut from it, so that a deletion in between shortens none."""

import uuid
import xml.etree.ElementTree as Xml
from typing import Final

from service.local.aws.answers import Answer, failed
from service.local.aws.calls import Call

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


class Paging:
    def __init__(self) -> None:
        self._rests: dict[str, list[Xml.Element]] = {}

    def following(self, call: Call) -> Answer | None:
        """The page that a token stands for; None for a call that brings none."""
        token = call.text("NextToken")
        if call.service != "ec2" or call.action not in _LISTS or not token:
            return None
        if (left := self._rests.pop(token, None)) is None:
            return failed(call, "InvalidParameterValue", "The token is not valid")
        return self._page(call, left)

    def first(self, call: Call, answer: Answer) -> Answer:
        """The first page of a whole answer, if pages are wanted."""
        if call.service != "ec2" or call.action not in _LISTS or not call.text("MaxResults") or answer.status != 200:
            return answer
        whole = Xml.fromstring(answer.body)  # noqa: S314 - moto wrote it, in this process
        held = next((one for one in whole if one.tag.rpartition("}")[2] == _LISTS[call.action]), None)
        return answer if held is None else self._page(call, list(held))

    def _page(self, call: Call, items: list[Xml.Element]) -> Answer:
        size = call.number("MaxResults") or 1000
        root = Xml.Element(f"{_SPACE}{call.action}Response")
        Xml.SubElement(root, f"{_SPACE}requestId").text = str(uuid.uuid4())
        Xml.SubElement(root, f"{_SPACE}{_LISTS[call.action]}").extend(items[:size])
        if len(items) > size:
            token = str(uuid.uuid4())
            self._rests[token] = items[size:]
            Xml.SubElement(root, f"{_SPACE}nextToken").text = token
        return Answer(200, Xml.tostring(root), {"Content-Type": "text/xml;charset=UTF-8"})
