"""Tags and records that keep a resource: the operator's tag, the service's tag, abandoned jobs, and keep decisions.
Tag names have a slash, or an underscore where a provider does not allow slashes."""

import re
from typing import Final

import msgspec

from service.contract.errors import Undecodable
from service.contract.jobs import JobRecord
from service.contract.version import VERSION

PREVENT_DELETE_TAG: Final = "knell.dev/prevent-delete"
"""Set by operators: `true` keeps a resource, whoever owns it. The service never writes or removes this tag."""

RETAINED_TAG: Final = "knell.dev/retained"
"""Set by the service on resources that were retained, abandoned or dropped; the value names the object."""


def is_protection(value: str) -> bool:
    """Whether a value of the operator's tag keeps a resource: all but `false` and the empty text."""
    return value.lower() not in ("", "false")


LONGEST_VALUE: Final = 256
"""Maximum length of a tag's value, the same at all providers so far."""

_UNFIT: Final = re.compile(r"[^0-9A-Za-z .:/=+_@-]")
"""Characters that not every provider allows in a value."""


def retained_value(cluster: str, resource: str, namespace: str, name: str, uid: str) -> str:
    """The value of the service's tag. The uid is always complete; where the value is too long, the name is cut, which
    two dots show. Characters that providers do not allow become underscores."""
    front, back = f"{cluster}/{resource}/{namespace}/", f"/{uid}"
    room = LONGEST_VALUE - len(front) - len(back)
    if len(name) > room:
        name = f"{name[: max(0, room - 2)]}.."
    return _UNFIT.sub("_", f"{front}{name}{back}")[-LONGEST_VALUE:]


class KeptResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kept resource. `tag` says why it does not have the service's tag; empty where it has."""

    kind: str
    id: str
    tag: str = ""


class KeepDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The decision to keep what one object owned in one place. `place` begins with the provider and its account; `name`
    identifies the resources there. `resources` are the known ones; `remark` says why there may be others. `identity` is
    the one to act as there; without one the credentials of the process are used."""

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
        """The resource of the object, as `plural.group`."""
        return self.object.partition(" ")[0]

    @property
    def namespace(self) -> str:
        """The namespace of the object; empty for a cluster-scoped one."""
        return self.object.partition(" ")[2].rpartition("/")[0]

    @property
    def object_name(self) -> str:
        return self.object.partition(" ")[2].rpartition("/")[2]

    def wrote_tag(self, value: str) -> bool:
        """Whether a value of the service's tag was written for this decision: it names the same object and uid."""
        cluster = value.partition("/")[0]
        return value == retained_value(cluster, self.resource, self.namespace, self.object_name, self.uid)

    @property
    def key(self) -> str:
        return f"{self.place}/{self.name}"

    @property
    def hold_reason(self) -> str:
        """Why the deletion of a later object of that name is held."""
        return (
            f"{self.object} (uid {self.uid}) was recognised by the same name, {self.name}, and what it owned was kept "
            f"on purpose ({self.why}): see `knell kept list`; `knell kept forget {self.key}` lifts that"
        )


_decode: Final = msgspec.json.Decoder(KeepDecision).decode


def decode_keep_decision(raw: bytes | str) -> KeepDecision:
    """Raises Undecodable."""
    try:
        found = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"a decision to keep something can't be read: {error}") from None
    if found.v > VERSION:
        raise Undecodable(f"a decision to keep something has version {found.v}, newer than this process knows")
    return found


class Abandoned(msgspec.Struct, frozen=True):
    """Jobs of one deletion whose resources stay where they are: an operator abandoned them, or they were given up.
    `unknown` is the number of records that can't be decoded: any resource may be their target."""

    jobs: tuple[JobRecord, ...] = ()
    unknown: int = 0

    def covers(self, kind: str, target: str, incarnation: str = "") -> bool:
        """With an `incarnation`, a job that has another one does not count."""
        return bool(self.unknown) or any(
            (job.kind, job.target) == (kind, target)
            and (not incarnation or not job.incarnation or job.incarnation == incarnation)
            for job in self.jobs
        )


NOTHING_ABANDONED: Final = Abandoned()
