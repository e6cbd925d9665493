"""ACK's own maps of Namespaces to roles: ConfigMaps by account and team, and IAMRoleSelectors. Pure, but for the reads
of the maps. Whatever is in doubt is refused, since it could be another tenant's account."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from service.kubernetes import NotServed
from service.sources.ack import ACCOUNT_MAP, OWNER_ACCOUNT, ROLE_SELECTORS, TEAM, TEAM_MAP
from workers.handlers.source_clusters import SourceCluster
from workers.providers.aws.errors import NoAccess

MAX_SELECTORS: Final = 2000

_ROLE: Final = re.compile(r"arn:(?P<partition>aws[a-z-]*):iam::(?P<account>\d{12}):role/\S+")


class RoleIdentity(NamedTuple):
    """Which credentials reach a namespace's resources. `label` is what a scope stores: empty for the process's own;
    `account` is where they must lead, empty if no map says it; `role` is the one to assume."""

    label: str = ""
    account: str = ""
    role: str = ""


class _MatchLabels(msgspec.Struct, frozen=True):
    match: dict[str, str] | None = msgspec.field(default=None, name="matchLabels")
    expressions: list[msgspec.Raw] | None = msgspec.field(default=None, name="matchExpressions")


class _NamespaceSelector(msgspec.Struct, frozen=True):
    names: tuple[str, ...] | None = None
    labels: _MatchLabels | None = msgspec.field(default=None, name="labelSelector")


class _ResourceType(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _SelectorSpec(msgspec.Struct, frozen=True):
    arn: str = ""
    namespaces: _NamespaceSelector | None = msgspec.field(default=None, name="namespaceSelector")
    types: tuple[_ResourceType, ...] | None = msgspec.field(default=None, name="resourceTypeSelector")
    labels: _MatchLabels | None = msgspec.field(default=None, name="resourceLabelSelector")


class _SelectorMetadata(msgspec.Struct, frozen=True):
    name: str


class RoleSelector(msgspec.Struct, frozen=True):
    """An IAMRoleSelector as it was read."""

    metadata: _SelectorMetadata
    spec: _SelectorSpec = _SelectorSpec()


class _RolesConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


class RoleMaps(NamedTuple):
    """All maps of one cluster."""

    accounts: Mapping[str, str]
    teams: Mapping[str, str]
    selectors: Sequence[RoleSelector]


class Subject(NamedTuple):
    """What the maps go by: an object, and its Namespace's annotations and labels."""

    service: str
    group: str
    version: str
    kind: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    namespace_labels: Mapping[str, str]


_selectors: Final = msgspec.json.Decoder(RoleSelector)
_config_maps: Final = msgspec.json.Decoder(_RolesConfigMap)


async def read_role_maps(place: SourceCluster, namespace: str) -> RoleMaps:
    """`namespace` has the ConfigMaps. Raises ClusterError, and NoAccess for a map that can't be understood."""
    return RoleMaps(
        await _config_map(place, namespace, ACCOUNT_MAP),
        await _config_map(place, namespace, TEAM_MAP),
        await _role_selectors(place),
    )


async def _config_map(place: SourceCluster, namespace: str, name: str) -> Mapping[str, str]:
    found = await place.get("configmaps", namespace, name)
    if found is None:
        return {}
    try:
        return _config_maps.decode(found.raw).data or {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoAccess(f"ConfigMap {namespace}/{name} can't be understood: {error}") from None


async def _role_selectors(place: SourceCluster) -> Sequence[RoleSelector]:
    """Empty where the CRD is not installed: then ACK does not use them."""
    try:
        served = await place.served(ROLE_SELECTORS)
    except NotServed:
        return ()
    found: list[RoleSelector] = []
    async for page in place.client.pages(served, None):
        if page.unreadable or len(found) + len(page.items) > MAX_SELECTORS:
            raise NoAccess(f"the IAMRoleSelectors of cluster {place.name} can't all be read")
        for item in page.items:
            try:
                found.append(_selectors.decode(item.raw))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise NoAccess(f"IAMRoleSelector {item.name} can't be understood: {error}") from None
    return found


def identity_of(maps: RoleMaps, subject: Subject) -> RoleIdentity:
    """As ACK chooses it: selectors exclude the maps, and a team comes before an account. Raises NoAccess."""
    chosen = [one for one in maps.selectors if _selects(one, subject)]
    if len(chosen) > 1:
        names = ", ".join(one.metadata.name for one in chosen)
        raise NoAccess(f"IAMRoleSelectors {names} all select it, and ACK refuses that; let one of them select it")
    if chosen:
        return role_of_selector(chosen[0])
    if team := subject.annotations.get(TEAM, ""):
        return role_of_team(maps, team)
    if account := subject.annotations.get(OWNER_ACCOUNT, ""):
        return role_of_account(maps, subject.service, account)
    return RoleIdentity()


def role_of_selector(selector: RoleSelector) -> RoleIdentity:
    label = f"selector/{selector.metadata.name}"
    return _identity(label, selector.spec.arn, f"spec.arn of IAMRoleSelector {selector.metadata.name}")


def role_of_team(maps: RoleMaps, team: str) -> RoleIdentity:
    if team not in maps.teams:
        raise NoAccess(f"the Namespace is of team {team!r}, which ConfigMap {TEAM_MAP} does not have")
    return _identity(f"team/{team}", maps.teams[team], f"ConfigMap {TEAM_MAP}, {team}")


def role_of_account(maps: RoleMaps, service: str, account: str) -> RoleIdentity:
    """Without a role in the map the process's own credentials must be of the account."""
    role = maps.accounts.get(f"{service}.{account}") or maps.accounts.get(account)
    if not role:
        return RoleIdentity(account=account)
    found = _identity(f"account/{service}/{account}", role, f"ConfigMap {ACCOUNT_MAP}, {account}")
    if found.account != account:
        raise NoAccess(f"the role of account {account} in ConfigMap {ACCOUNT_MAP} is of another account: {role}")
    return found


def _identity(label: str, role: str, where: str) -> RoleIdentity:
    parts = _ROLE.fullmatch(role.strip())
    if parts is None:
        raise NoAccess(f"{where} is {role!r}, which is no role that could be assumed")
    return RoleIdentity(label, parts["account"], role.strip())


def partition_of_role(role: str) -> str:
    return role.split(":")[1]


# ---- selectors


def _selects(selector: RoleSelector, subject: Subject) -> bool:
    spec = selector.spec
    types = spec.types or ()
    return (
        selects_namespace(selector, subject.namespace, subject.namespace_labels)
        and (not types or any(_is_of_type(one, subject) for one in types))
        and (spec.labels is None or _matches(spec.labels, subject.labels, selector))
    )


def selects_namespace(selector: RoleSelector, namespace: str, labels: Mapping[str, str]) -> bool:
    wanted = selector.spec.namespaces
    if wanted is None:
        return True
    if wanted.names and namespace not in wanted.names:
        return False
    return wanted.labels is None or _matches(wanted.labels, labels, selector)


def _is_of_type(wanted: _ResourceType, subject: Subject) -> bool:
    pairs = ((wanted.group, subject.group), (wanted.version, subject.version), (wanted.kind, subject.kind))
    return all(not one or one == other for one, other in pairs)


def _matches(wanted: _MatchLabels, labels: Mapping[str, str], selector: RoleSelector) -> bool:
    if wanted.expressions:
        raise NoAccess(f"IAMRoleSelector {selector.metadata.name} has matchExpressions, which ACK does not know")
    return all(labels.get(key) == value for key, value in (wanted.match or {}).items())
