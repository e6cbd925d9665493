"""A request as AWS's services read it: which action of which service, in whose account and which region.
The account comes from the access key: one with twelve digits in it belongs to the account of that number."""

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

SETUP: Final = "knell-world"
"""Who has this in its user agent builds the world: it is not throttled, sees no fault and is not counted."""

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
class Call:
    service: str
    action: str
    account: str
    region: str
    key: str
    setup: bool
    # Of the query protocols: as they came, `Filter.1.Name`. Of the JSON ones: the document.
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
        """A list of the query protocols: `Name.member.1` in ELB's, `Name.1` in EC2's."""
        found = [
            (int(key.rsplit(".", 1)[1]), str(value))
            for key, value in self.params.items()
            if key.startswith((f"{name}.member.", f"{name}.")) and key.rsplit(".", 1)[1].isdigit()
        ]
        return [value for _, value in sorted(found)]

    def chooses(self) -> bool:
        """Whether a describe of EC2 names what it wants, or takes it page by page."""
        return any(key.split(".")[0].endswith(("Filter", "Id", "MaxResults", "NextToken")) for key in self.params)

    def values(self) -> list[str]:
        return [str(value) for value in self.params.values()] + [self.path]


def read(method: str, path: str, headers: Any, body: bytes, issued: dict[str, str]) -> Call | None:
    """None for what no signed request of AWS looks like. `issued` are keys of which it is known whose they are."""
    scope = _SCOPE.search(headers.get("Authorization", ""))
    if scope is None:
        return _unsigned(body, headers)
    key, region, signed_for = scope.groups()
    target = headers.get("X-Amz-Target", "")
    params: dict[str, Any]
    if target or signed_for == "eks":
        document = msgspec.json.decode(body) if body else {}
        params = document if isinstance(document, dict) else {}
    else:
        params = dict(parse_qsl(body.decode(), keep_blank_values=True))
    service, action = _named(signed_for, target, method, path, params)
    account = issued.get(key) or (named.group() if (named := _ACCOUNT.search(key)) else "123456789012")
    return Call(
        service=service,
        action=action,
        account=account,
        region=region,
        key=key,
        setup=SETUP in headers.get("User-Agent", ""),
        params=params,
        path=path,
    )


def _unsigned(body: bytes, headers: Any) -> Call | None:
    """The one call that a token vouches for, not a key: it acts in the account of the role that it asks for."""
    try:
        params = dict(parse_qsl(body.decode()))
    except UnicodeDecodeError:
        return None
    if params.get("Action") != WEB_IDENTITY:
        return None
    account = found.group() if (found := _ACCOUNT.search(params.get("RoleArn", ""))) else ""
    return Call(
        service="sts",
        action=WEB_IDENTITY,
        account=account,
        region="us-east-1",
        key="",
        setup=SETUP in headers.get("User-Agent", ""),
        params=params,
    )


def _named(signed_for: str, target: str, method: str, path: str, params: dict[str, Any]) -> tuple[str, str]:
    if signed_for == "tagging":
        return "tagging", target.rpartition(".")[2]
    if signed_for == "eks":
        parts = path.split("?")[0].strip("/").split("/")
        known = parts[0] == "clusters" and len(parts) <= 2
        return "eks", _EKS.get((method, len(parts) == 2), "Other") if known else "Other"
    action = str(params.get("Action", ""))
    if signed_for == "elasticloadbalancing":
        return "elbv2" if params.get("Version") == _ELB_V2 else "elb", action
    return signed_for, action
