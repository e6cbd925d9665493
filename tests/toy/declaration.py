"""Source of ToyBoxes, which own DHCP options on AWS: its names, settings, permissions and declaration."""

from datetime import timedelta
from typing import Annotated, Final

import msgspec

from service.durations import NotNegative, Positive
from service.sources.aws import AWS_PLACES
from service.sources.declaration import AccessRules, NamespaceRules, Rule, Section, Sections, Source

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
