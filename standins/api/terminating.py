"""What a Namespace that is going says about what still keeps it.
People look there first when `kubectl delete namespace` hangs."""

from collections import Counter

from standins.api.documents import Document, decode
from standins.api.world import World, condition


def remaining_conditions(world: World, namespace: str) -> list[Document]:
    kinds: Counter[str] = Counter()
    finalizers: Counter[str] = Counter()
    for resource in world.registry:
        if not resource.namespaced or resource.table:
            continue
        for _, raw in world.store.table(resource.stored_in).within(namespace):
            kinds[resource.name] += 1
            finalizers.update(decode(raw)["metadata"].get("finalizers", ()))
    content = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(kinds.items()))
    keeping = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    return [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        condition(
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        condition(
            "NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {content}"
        ),
        condition(
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {keeping}",
        ),
    ]
