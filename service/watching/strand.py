"""A strand: the objects of a source that are listed and watched together, at one resource version.
A source has one, or one for each namespace that its settings name; what is kept of a strand is named after it."""

from dataclasses import dataclass

from service.watching.assignment import Assignment


@dataclass(frozen=True, slots=True)
class Strand:
    assignment: Assignment
    namespace: str | None

    @property
    def label(self) -> str:
        """Empty for the only strand of an undivided source."""
        return ":".join(word for word in (self.assignment.part, self.namespace) if word)

    def field(self, name: str) -> str:
        """Under which the source's hash keeps something of this strand."""
        return f"{name}@{self.label}" if self.label else name

    @property
    def owned_field(self) -> str:
        """The guard adds up `owned` and everything that begins with `owned.`."""
        return f"owned.{self.label}" if self.label else "owned"

    def includes(self, namespace: str) -> bool:
        return self.assignment.share(namespace) and self.namespace in (None, namespace)


def is_former(field: str, assignment: Assignment) -> bool:
    """Whether a field of the source's hash tells of a strand that there is no more: other namespaces, other shares."""
    base, _, label = field.partition(".") if field.startswith("owned.") else field.partition("@")
    if base not in ("owned", "held", "held_why"):
        return False
    part, _, namespace = label.rpartition(":") if ":" in label or "/" not in label else (label, "", "")
    _, _, parts = assignment.part.partition("/")
    return part.partition("/")[2] != parts or (namespace or None) not in (assignment.settings.namespaces or (None,))


def strands_of(assignment: Assignment) -> list[Strand]:
    """Only those of its share; a source that names its namespaces has a list and a watch for each."""
    named = assignment.settings.namespaces
    if not named:
        return [Strand(assignment, None)]
    return [Strand(assignment, one) for one in dict.fromkeys(named) if assignment.share(one)]
