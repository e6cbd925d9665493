"""A resource as it stands at one moment; every change makes another one.
So who sees the world late, as Resource Graph does, keeps what it saw without a copy."""

import msgspec

from standins.azure.resources import Kind, Made, id_of


class Thing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`key` is its id in small letters. `version` grows with every change of anything. `stamp` is when it was made, by
    the wall clock: callers compare it with theirs. `holder` is the id of what it is attached to, `operation` of what
    deletes it."""

    kind: Kind
    key: str
    version: int
    stamp: float
    state: str
    guid: str
    made: Made
    holder: str = ""
    operation: str = ""

    @property
    def id(self) -> str:
        return id_of(self.made.subscription, self.made.group, self.kind, self.made.name)
