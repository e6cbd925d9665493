"""AWS requests, parsed: service, action, account and region.
The account comes from the access key: a key with twelve digits belongs to the account of that number."""

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from standins.aws.s3_requests import parse_s3

SETUP: Final = "knell-world"
"""User agent of `builder`: its requests are not throttled, get no faults and are marked in the journal."""

WEB_IDENTITY: Final = "AssumeRoleWithWebIdentity"
_SCOPE: Final = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/")
_ACCOUNT: Final = re.compile(r"(?<!\d)\d{12}(?!\d)")
_ELB_V2: Final = "2015-12-01"
_EKS: Final = {
    ("GET", False): "ListClusters",
    ("POST", False): "CreateCluster",
    ("GET", True): "DescribeCluster",
    ("DELETE", True): "DeleteCluster",
}


@dataclass(frozen=True, slots=True)
class AwsCall:
    service: str
    action: str
    account: str
    region: str
    key: str
    setup: bool
    # Query protocols: parameters as sent, `Filter.1.Name`. JSON protocols: the document. S3: see `s3_requests`.
    params: dict[str, Any]
    path: str = "/"

    @property
    def name(self) -> str:
        return f"{self.service}.{self.action}"

    @property
    def partition(self) -> str:
        return "aws-cn" if self.region.startswith("cn-") else "aws-us-gov" if "-gov-" in self.region else "aws"

    def text(self, name: str) -> str:
        return str(self.params.get(name, ""))

    def number(self, name: str) -> int | None:
        return int(self.params[name]) if self.params.get(name) else None

    def many(self, name: str) -> list[str]:
        """A list parameter of the query protocols: `Name.member.1` for ELB, `Name.1` for EC2."""
        found = [
            (int(key.rsplit(".", 1)[1]), str(value))
            for key, value in self.params.items()
            if key.startswith((f"{name}.member.", f"{name}.")) and key.rsplit(".", 1)[1].isdigit()
        ]
        return [value for _, value in sorted(found)]

    def chooses(self) -> bool:
        """Whether an EC2 describe has ids, filters or pages."""
        return any(key.split(".")[0].endswith(("Filter", "Id", "MaxResults", "NextToken")) for key in self.params)

    def values(self) -> list[str]:
        return [str(value) for value in self.params.values()] + [self.path]


def parse_call(method: str, path: str, headers: Any, body: bytes, issued: dict[str, str]) -> AwsCall | None:
    """None for a request that is not signed as AWS requests are. `issued` are the accounts of keys from AssumeRole."""
    scope = _SCOPE.search(headers.get("Authorization", ""))
    if scope is None:
        return _unsigned(body, headers)
    key, region, signed_for = scope.groups()
    target = headers.get("X-Amz-Target", "")
    params: dict[str, Any]
    if signed_for == "s3":
        action, params = parse_s3(method, path, headers, body)
        service = "s3"
    elif target or signed_for == "eks":
        document = msgspec.json.decode(body) if body else {}
        params = document if isinstance(document, dict) else {}
        service, action = _named(signed_for, target, method, path, params)
    else:
        params = dict(parse_qsl(body.decode(), keep_blank_values=True))
        service, action = _named(signed_for, target, method, path, params)
    account = issued.get(key) or (named.group() if (named := _ACCOUNT.search(key)) else "123456789012")
    return AwsCall(
        service=service,
        action=action,
        account=account,
        region=region,
        key=key,
        setup=SETUP in headers.get("User-Agent", ""),
        params=params,
        path=path,
    )


def _unsigned(body: bytes, headers: Any) -> AwsCall | None:
    """AssumeRoleWithWebIdentity, the one call without a key: it acts in the account of the requested role."""
    try:
        params = dict(parse_qsl(body.decode()))
    except UnicodeDecodeError:
        return None
    if params.get("Action") != WEB_IDENTITY:
        return None
    account = found.group() if (found := _ACCOUNT.search(params.get("RoleArn", ""))) else ""
    return AwsCall(
        service="sts",
        action=WEB_IDENTITY,
        account=account,
        region="us-east-1",
        key="",
        setup=SETUP in headers.get("User-Agent", ""),
        params=params,
    )


def _named(signed_for: str, target: str, method: str, path: str, params: dict[str, Any]) -> tuple[str, str]:
    if signed_for == "cloudcontrolapi":
        return "cloudcontrol", target.rpartition(".")[2]
    if signed_for == "tagging":
        return "tagging", target.rpartition(".")[2]
    if target:
        return signed_for, target.rpartition(".")[2]
    if signed_for == "eks":
        parts = path.split("?")[0].strip("/").split("/")
        known = parts[0] == "clusters" and len(parts) <= 2
        return "eks", _EKS.get((method, len(parts) == 2), "Other") if known else "Other"
    action = str(params.get("Action", ""))
    if signed_for == "elasticloadbalancing":
        return "elbv2" if params.get("Version") == _ELB_V2 else "elb", action
    return signed_for, action
