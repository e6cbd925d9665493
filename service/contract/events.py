"""Event: an object is being deleted, an output was dropped, or an orphan was found.

On the stream it consists of flat text fields, which are readable with any Redis tool.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from service.contract.errors import NewerVersion, Undecodable
from service.contract.version import VERSION

Reason = Literal["deleted", "dropped", "orphan"]
LARGEST = 2**53
"""The largest number that is exact in Lua."""

_UNFIT = re.compile(r"[/#|{}\s]")


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`urgent` is 1 for a deleted object, 0 for what a sweep found."""

    cluster: str
    resource: str
    uid: str
    name: str
    source: str
    namespace: str = ""
    reason: Reason = "deleted"
    round: int = 1
    urgent: int = 1
    at: int = 0
    data: str = ""
    v: int = VERSION

    @property
    def deletion(self) -> str:
        return f"{self.cluster}/{self.resource}/{self.uid}/{self.round}"

    def fields(self) -> dict[str, str | int]:
        """The flat fields, without empty optional ones."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) != ""}


def decode_event(raw: Mapping[bytes, bytes]) -> Event:
    """Decodes a stream entry. Raises Undecodable or NewerVersion."""
    try:
        fields = {name.decode(): value.decode() for name, value in raw.items()}
    except UnicodeDecodeError as error:
        raise Undecodable(f"a field is not UTF-8 text: {error}") from None
    version = fields.get("v", "")
    if not (version.isascii() and version.isdecimal() and len(version) <= 9):
        raise Undecodable(f"field v must be a whole number of at most nine digits, got {version[:40]!r}")
    if int(version) > VERSION:
        raise NewerVersion("the event", int(version))
    try:
        event = msgspec.convert(fields, Event, strict=False)
    except msgspec.ValidationError as error:
        raise Undecodable(str(error)) from None
    for part in ("cluster", "resource", "uid", "name", "source"):
        value = getattr(event, part)
        if not value or (part != "name" and _UNFIT.search(value)):
            raise Undecodable(f"field {part} must be non-empty text without / # | braces or white space, got {value!r}")
    if not (1 <= event.round <= LARGEST and 0 <= event.at <= LARGEST) or event.urgent not in (0, 1):
        raise Undecodable("round must be at least 1, at a time in milliseconds, urgent 0 or 1; got "
                          f"{event.round!s:.40}, {event.at!s:.40} and {event.urgent!s:.40}")  # fmt: skip
    return event
