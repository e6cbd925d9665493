"""Pages of EC2's describes, also for who names no size, and how much one question may ask for: moto knows no limits.
The whole answer is made once; its pages are cut from it, so that a deletion in between shortens none."""

import re
import uuid
import xml.etree.ElementTree as Xml
from typing import Final

from standins.aws.answers import Answer, failed
from standins.aws.behaviour import Behaviour
from standins.aws.calls import Call

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


def too_much(call: Call) -> Answer | None:
    """The refusal of a question with too many values; those of all its filters count together."""
    if call.service != "ec2" or sum(_VALUE.fullmatch(key) is not None for key in call.params) <= _MOST_VALUES:
        return None
    words = f"The maximum number of filter values specified on a single call is {_MOST_VALUES}"
    return failed(call, "FilterLimitExceeded", words)


class Paging:
    def __init__(self) -> None:
        self._rests: dict[str, list[Xml.Element]] = {}

    def following(self, call: Call, behaviour: Behaviour) -> Answer | None:
        """The page that a token stands for; None for a call that brings none."""
        token = call.text("NextToken")
        if call.service != "ec2" or call.action not in _LISTS or not token:
            return None
        if (left := self._rests.pop(token, None)) is None:
            return failed(call, "InvalidParameterValue", "The token is not valid")
        return self._page(call, left, behaviour)

    def first(self, call: Call, answer: Answer, behaviour: Behaviour) -> Answer:
        """The first page of a whole answer."""
        if call.service != "ec2" or call.action not in _LISTS or answer.status != 200:
            return answer
        # Items have items in them: it is one page at any rate if there are no more than that.
        if answer.body.count(b"<item>") <= _size(call, behaviour):
            return answer
        whole = Xml.fromstring(answer.body)  # noqa: S314 - moto wrote it, in this process
        held = next((one for one in whole if one.tag.rpartition("}")[2] == _LISTS[call.action]), None)
        return answer if held is None else self._page(call, list(held), behaviour)

    def _page(self, call: Call, items: list[Xml.Element], behaviour: Behaviour) -> Answer:
        size = _size(call, behaviour)
        root = Xml.Element(f"{_SPACE}{call.action}Response")
        Xml.SubElement(root, f"{_SPACE}requestId").text = str(uuid.uuid4())
        Xml.SubElement(root, f"{_SPACE}{_LISTS[call.action]}").extend(items[:size])
        if len(items) > size:
            token = str(uuid.uuid4())
            self._rests[token] = items[size:]
            Xml.SubElement(root, f"{_SPACE}nextToken").text = token
        return Answer(200, Xml.tostring(root), {"Content-Type": "text/xml;charset=UTF-8"})


def _size(call: Call, behaviour: Behaviour) -> int:
    return min(call.number("MaxResults") or behaviour.ec2_page_size, behaviour.ec2_page_size)
