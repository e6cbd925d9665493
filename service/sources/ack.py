"""Source of objects of AWS Controllers for Kubernetes (ACK): its names, what is recognised of an object, settings,
permissions and declaration.

Objects and resources carry the names longer than any process lives, so they must not change.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

import msgspec

from service.contract.names import ACK_PREFIX
from service.durations import NotNegative
from service.policy.decisions import DefaultPolicy
from service.policy.services import normalized
from service.sources.ack_controller import read_controller_policy
from service.sources.ack_objects import recognise_ack_object
from service.sources.ack_resources import ACK_SERVICES
from service.sources.aws import AWS_PLACES
from service.sources.declaration import (
    AccessRules,
    ConfiguredSource,
    NamespaceRules,
    ReadCluster,
    Rule,
    Section,
    Sections,
    Source,
)

ACK: Final = "ack"
"""The collector of all objects of ACK."""

ACK_NAMESPACE: Final = "ack-system"
"""The namespace of ACK's controllers and account maps, as its charts have it."""

ACCOUNT_MAP: Final = "ack-role-account-map"
TEAM_MAP: Final = "ack-role-team-map"
"""ConfigMaps with the roles that ACK assumes, by account and by team."""

ROLE_SELECTORS: Final = f"iamroleselectors.{ACK_PREFIX}"
"""The newer form of those maps: objects that select Namespaces."""

OWNER_ACCOUNT: Final = f"{ACK_PREFIX}/owner-account-id"
DEFAULT_REGION: Final = f"{ACK_PREFIX}/default-region"
TEAM: Final = f"{ACK_PREFIX}/team-id"
"""Annotations of a Namespace: where the resources of its objects are."""

ADOPTED: Final = f"{ACK_PREFIX}/adopted"
ADOPTION_POLICY: Final = f"{ACK_PREFIX}/adoption-policy"
READ_ONLY: Final = f"{ACK_PREFIX}/read-only"
"""Annotations of an object whose resource ACK did not create, or does not change."""

NAMESPACE_TAG: Final = f"{ACK_PREFIX}/namespace"
CONTROLLER_TAG: Final = f"{ACK_PREFIX}/controller-version"
"""Tags that ACK writes by default: the object's namespace, and the service with the version of its controller."""

RDS_SNAPSHOTS: Final = frozenset({"dbinstances.rds.services.k8s.aws", "dbclusters.rds.services.k8s.aws"})
"""Resources whose deletion policy may be `snapshot`."""

Account = Annotated[str, msgspec.Meta(pattern=r"\A\d{12}\Z", description="12 digits, in quotes")]


class AckScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the resources of a namespace's objects may be. Without accounts: that of the credentials, or the one that
    ACK's maps and the Namespace lead to; without regions: the Namespace's default region, or any if it has none."""

    accounts: tuple[Account, ...] = ()
    # Patterns, such as eu-*.
    regions: tuple[str, ...] = ()


class AckService(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What shows whose a resource of this service is."""

    # Tags that are required in place of ACK's own; %K8S_NAMESPACE%, %K8S_RESOURCE_NAME% and %K8S_RESOURCE_KIND% stand
    # for those of the object, as in ACK's flag --resource-tags.
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    # A resource without any of these tags: held, or accepted if its object was seen synced with that very identifier.
    untagged: Literal["hold", "seen"] = "hold"


class AckSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of objects of ACK. Accounts and regions are those of the settings and of ACK's own maps: an object's
    status chooses among them."""

    # By namespace, or by a pattern: an exact name comes first, then the patterns in their order.
    namespaces: dict[str, AckScope] = msgspec.field(default_factory=dict)
    # By service, as in the API group: s3, rds.
    services: dict[str, AckService] = msgspec.field(default_factory=dict)
    # Time for ACK to delete the resource itself after its object is deleted.
    grace: NotNegative = timedelta(minutes=2)
    # The namespace of ACK's controllers and of its ConfigMaps with roles.
    controller_namespace: Annotated[str, msgspec.Meta(min_length=1)] = ACK_NAMESPACE
    # Retained, abandoned or dropped resources get the tag knell.dev/retained, where permissions allow it.
    mark_retained: bool = True
    # Else a resource that is more than an hour older than its object is held: ACK may not have created it.
    accept_older: bool = False

    def service(self, name: str) -> AckService:
        return next((one for known, one in self.services.items() if normalized(known) == name), AckService())

    def scope(self, namespace: str) -> AckScope | None:
        """None if the settings have namespaces, and not this one."""
        if (exact := self.namespaces.get(namespace)) is not None:
            return exact
        found = (scope for pattern, scope in self.namespaces.items() if fnmatchcase(namespace, pattern))
        return next(found, None if self.namespaces else AckScope())

    def contradictions(self, sources: Mapping[str, ConfiguredSource]) -> list[tuple[str, str]]:
        ours = {service_of_resource(one.resource) for one in sources.values() if one.collector == ACK}
        listed = ", ".join(sorted(ours)) or "none"
        return [
            (f"ack.services.{name}", f"is not the service of a source with collector {ACK} ({listed})")
            for name in self.services
            if normalized(name) not in ours
        ]


def service_of_resource(resource: str) -> str:
    """`s3` for buckets.s3.services.k8s.aws."""
    return resource.partition(".")[2].removesuffix(f".{ACK_PREFIX}")


async def _controller_policy(cluster: ReadCluster, settings: Sections, resource: str) -> DefaultPolicy:
    namespace = settings.section(AckSettings).controller_namespace
    return await read_controller_policy(cluster, namespace, service_of_resource(resource))


def _controller_namespace(settings: Sections) -> str:
    return settings.section(AckSettings).controller_namespace


def _rules() -> AccessRules:
    selectors, _, group = ROLE_SELECTORS.partition(".")
    maps: Sequence[str] = (ACCOUNT_MAP, TEAM_MAP)
    return AccessRules(
        definitions=(ROLE_SELECTORS,),
        cluster=(Rule(group, (selectors,), ("list",)),),
        # The roles of other accounts, and the deletion policies of the controllers, whose names are their releases'.
        namespaces=(
            NamespaceRules(
                ACK,
                _controller_namespace,
                (Rule("", ("configmaps",), ("get",), tuple(maps)), Rule("apps", ("deployments",), ("list",))),
            ),
        ),
        # An identifier that an object in another namespace names as well is not deleted.
        lists_everywhere=True,
    )


SOURCE: Final = Source(
    name=ACK,
    components="workers.collectors.ack.components",
    aws_policy="workers.collectors.ack.permissions",
    resources=(f"*.{ACK_PREFIX}",),
    groups=ACK_SERVICES,
    # ACK ignores foreign finalizers and deletes at once, so there is little to hold an object for.
    modes=("observe", "finalizer"),
    sections=(Section("ack", AckSettings),),
    recognise=recognise_ack_object,
    remembers=True,
    default_policy=_controller_policy,
    snapshots=RDS_SNAPSHOTS,
    rules=_rules(),
    kept=AWS_PLACES,
)
