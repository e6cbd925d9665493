"""Into which parts a source is divided, and which part an object belongs to.
The part is a function of the namespace alone, so that all replicas agree on it without asking anybody."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.contract.names import part_of, share_lease
from service.settings import SourceSettings


@dataclass(frozen=True, slots=True)
class Share:
    """One part of one source, counted from 0. A source that is not divided has one part, which has everything."""

    source: str
    part: int = 0
    parts: int = 1

    @property
    def lease(self) -> str:
        """The name of the Lease that its holder has."""
        return share_lease(self.source, self.part)

    @property
    def label(self) -> str:
        """The part among its source's others, empty where there is only one."""
        return f"{self.part + 1}/{self.parts}" if self.parts > 1 else ""

    def strands(self, namespaces: Sequence[str]) -> list[str]:
        """The names of its lists: one, or one for each of the source's namespaces that belong to this part."""
        wanted = [one for one in dict.fromkeys(namespaces) if self.includes(one)] if namespaces else [""]
        return [":".join(word for word in (self.label, one) if word) for one in wanted]

    def includes(self, namespace: str) -> bool:
        """Objects without a namespace belong to the first part."""
        return part_of(namespace, self.parts) == self.part

    def __str__(self) -> str:
        return f"{self.source} {self.label}".strip()


def shares_of(name: str, source: SourceSettings) -> Iterator[Share]:
    return (Share(name, part, source.shares) for part in range(source.shares))
