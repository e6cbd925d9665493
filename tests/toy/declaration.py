"""Source of ToyBoxes, which own DHCP options on AWS: its names, settings, permissions and declaration."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final

import msgspec

from service.durations import NotNegative, Positive
from service.sources.aws import AWS_PLACES
from service.sources.declaration import (
    AccessRules,
    ConfiguredSource,
    NamespaceRules,
    Rule,
    Section,
    Sections,
    Source,
)

TOYBOX: Final = "toybox"
TOYBOXES: Final = "toyboxes.knell.test"

OWNER_TAG: Final = "knell.test/toybox"
"""Tag of a ToyBox's resources, with its name."""

FREEZE: Final = "toybox-freeze"
"""While there is a ConfigMap of this name, nothing is removed."""


class ToyBoxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # Where the resources are, in the account of the section `aws`.
    region: Annotated[str, msgspec.Meta(min_length=1)] = "eu-west-1"
    # The namespace of the ConfigMap.
    namespace: Annotated[str, msgspec.Meta(min_length=1)] = "default"
    # The periodic search for orphans.
    sweep: bool = True
    every: Positive = timedelta(minutes=5)
    age: NotNegative = timedelta(minutes=5)

    def contradictions(self, sources: Mapping[str, ConfiguredSource]) -> list[tuple[str, str]]:
        """The tag names no cluster, so each of two sources would take the other's live resources for orphans."""
        first, *others = [name for name, source in sources.items() if source.collector == TOYBOX] or [""]
        return [
            (
                f"sources.{name}",
                f"is a second source with collector {TOYBOX}, beside {first}; an account has ToyBoxes of one source",
            )
            for name in others
        ]


def _namespace(settings: Sections) -> str:
    return settings.section(ToyBoxSettings).namespace


SOURCE: Final = Source(
    name=TOYBOX,
    components="tests.toy.collector",
    aws_policy="tests.toy.collector",
    resources=(TOYBOXES,),
    # The inventory remembers ToyBoxes whose resources are kept, so that the sweep leaves those alone.
    modes=("observe",),
    sections=(Section(TOYBOX, ToyBoxSettings),),
    rules=AccessRules(
        namespaces=(NamespaceRules(TOYBOX, _namespace, (Rule("", ("configmaps",), ("get",), (FREEZE,)),)),)
    ),
    swept=True,
    # A tag with the name of a ToyBox fits a later one of that name, too.
    kept=AWS_PLACES,
)
