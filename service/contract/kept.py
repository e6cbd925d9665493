"""Tags and records that keep a resource: a person's tag, the service's tag, abandoned jobs, and stored decisions.
Tag names have a slash on AWS; Azure does not allow one there, so it has an underscore instead."""

import re
from typing import Final

import msgspec

from service.contract.errors import Undecodable
from service.contract.jobs import Record
from service.contract.version import VERSION

PREVENT_DELETE_TAG: Final = "knell.dev/prevent-delete"
"""A person's: `true` on a resource keeps it, whoever it belongs to, until it is taken off. It is never written or taken
off by the service."""

RETAINED_TAG: Final = "knell.dev/retained"
"""The service's own: it keeps what was retained, abandoned or dropped with an object, which its value names."""


def is_protection(value: str) -> bool:
    """Whether a value of the person's tag keeps a resource: any that does not plainly say no."""
    return value.lower() not in ("", "false")


LONGEST_VALUE: Final = 256
"""Characters of a tag's value, on AWS and on Azure."""

_UNFIT: Final = re.compile(r"[^0-9A-Za-z .:/=+_@-]")
"""What a value on AWS may not have; Azure allows more."""


def retained_value(cluster: str, resource: str, namespace: str, name: str, uid: str) -> str:
    """The value of the service's own tag. The uid is always whole; where all of it is too long, the name is cut, which
    two dots show. What providers do not allow is written as an underscore."""
    front, back = f"{cluster}/{resource}/{namespace}/", f"/{uid}"
    room = LONGEST_VALUE - len(front) - len(back)
    if len(name) > room:
        name = f"{name[: max(0, room - 2)]}.."
    return _UNFIT.sub("_", f"{front}{name}{back}")[-LONGEST_VALUE:]


class KeptResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """One resource that stays. `tag` says why it does not carry the service's tag; empty where it does."""

    kind: str
    id: str
    tag: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """That what one object owned in one place stays. `place` is PROVIDER/ACCOUNT/REGION on AWS and
    PROVIDER/SUBSCRIPTION/GROUP on Azure; `name` is what its resources are recognised by there. `resources` are those
    that are known; `remark` says why there may be others. `identity` is the Cluster API identity by which the account
    is reached, as KIND/NAME; without one it is reached by the credentials of the process itself."""

    v: int
    place: str
    name: str
    object: str
    uid: str
    source: str
    why: str
    at: int
    resources: tuple[KeptResource, ...] = ()
    remark: str = ""
    identity: str = ""

    @property
    def resource(self) -> str:
        """Of the object, as `plural.group`."""
        return self.object.partition(" ")[0]

    @property
    def namespace(self) -> str:
        """Of the object; empty for one of the whole cluster."""
        return self.object.partition(" ")[2].rpartition("/")[0]

    @property
    def object_name(self) -> str:
        return self.object.partition(" ")[2].rpartition("/")[2]

    def wrote(self, value: str) -> bool:
        """Whether this is a value of the service's tag that the decision wrote: it names the same object and uid."""
        cluster = value.partition("/")[0]
        return value == retained_value(cluster, self.resource, self.namespace, self.object_name, self.uid)

    @property
    def key(self) -> str:
        return f"{self.place}/{self.name}"

    @property
    def words(self) -> str:
        """Why a later object of that name is held."""
        return (
            f"{self.object} (uid {self.uid}) was recognised by the same name, {self.name}, and what it owned was kept "
            f"on purpose ({self.why}): see `knell kept list`; `knell kept forget {self.key}` lifts that"
        )


_decision: Final = msgspec.json.Decoder(Decision).decode


def decode_decision(raw: bytes | str) -> Decision:
    """Raises Undecodable."""
    try:
        found = _decision(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"a decision to keep something can't be read: {error}") from None
    if found.v > VERSION:
        raise Undecodable(f"a decision to keep something has version {found.v}, newer than this process knows")
    return found


class Abandoned(msgspec.Struct, frozen=True):
    """Jobs of one deletion that a person gave up. `unknown` counts those whose record no longer names its target: any
    resource may be the one that was meant."""

    jobs: tuple[Record, ...] = ()
    unknown: int = 0

    def covers(self, kind: str, target: str) -> bool:
        return bool(self.unknown) or any((job.kind, job.target) == (kind, target) for job in self.jobs)


NOTHING_ABANDONED: Final = Abandoned()
