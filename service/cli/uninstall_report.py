"""Preview and result of `knell uninstall`, as tables or JSON.
Objects that are being deleted are named one by one, with their protection."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from service.admission.installed_objects import InstalledObject
from service.cli import output
from service.kubernetes import KubernetesClient
from service.watching.uninstall import FinalizedObject, HeldLease, RemainingFinalizers, UninstallFailure

_MAX_NAMED: Final = 20


@dataclass(slots=True)
class ClusterLeftovers:
    """Our objects in one cluster. `admission` is the webhook configuration, policies and bindings; `unread` is what
    could not be read, `failures` what could not be removed."""

    name: str
    cluster: KubernetesClient
    uid: str
    remains: list[RemainingFinalizers]
    leases: list[HeldLease] = field(default_factory=list)
    running: list[HeldLease] = field(default_factory=list)
    admission: list[InstalledObject] = field(default_factory=list)
    unread: list[UninstallFailure] = field(default_factory=list)
    failures: list[UninstallFailure] = field(default_factory=list)

    @property
    def marked(self) -> int:
        return sum(len(one.objects) for one in self.remains)


def deleting_objects(found: Iterable[ClusterLeftovers]) -> list[FinalizedObject]:
    return [one for _, _, one in _deleting_rows(found)]


def _deleting_rows(found: Iterable[ClusterLeftovers]) -> list[tuple[str, str, FinalizedObject]]:
    """Cluster, resource and object; protected objects first."""
    rows = [
        (each.name, one.resource, mark)
        for each in found
        for one in each.remains
        for mark in one.objects
        if mark.going
    ]  # fmt: skip
    return sorted(rows, key=lambda row: not row[2].protection)


def deleting_text(found: Iterable[ClusterLeftovers]) -> str:
    rows = _deleting_rows(found)
    words = [
        f"{resource} {mark}" + (f" (protected: {mark.protection})" if mark.protection else "")
        for _, resource, mark in rows[:_MAX_NAMED]
    ]
    more = f" and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else ""
    return output.clean(", ".join(words)) + more


def preview(found: list[ClusterLeftovers], *, to_stderr: bool) -> None:
    rows = [
        (each.name, one.resource, len(one.objects), sum(mark.going for mark in one.objects), _note(one))
        for each in found
        for one in each.remains
    ]
    columns = ("cluster", "resource", "objects with our finalizer", "of these being deleted", "note")
    parts = [output.table("What would be taken off", columns, rows, numbers=columns[2:4])]
    installed = [
        (each.name, one.served.kind, one.live.name, _admission_note(one)) for each in found for one in each.admission
    ]
    if installed:
        title = "Protection at admission: would be removed first"
        parts.insert(0, output.table(title, ("cluster", "kind", "name", "note"), installed))
    going = [(cluster, resource, str(mark), mark.protection) for cluster, resource, mark in _deleting_rows(found)]
    if going:
        names = ("cluster", "resource", "object", "protected")
        parts.append(output.table("Being deleted: what these own outside would stay behind", names, going))
    parts += [
        output.note(f"{each.name} (uid {each.uid}): {len(each.leases)} Leases and the ConfigMap would be removed.")
        for each in found
    ]
    screen = output.status_line() if to_stderr else output.console()
    for part in parts:
        screen.print(part)


def _admission_note(one: InstalledObject) -> str:
    return "" if one.ours else "without our label: would be left alone"


def _note(one: RemainingFinalizers) -> str:
    only = f"only namespaces {', '.join(one.only)} may be listed" if one.only else ""
    return one.problem or ("not installed" if one.served is None else only)


def show_result(found: list[ClusterLeftovers], failures: list[UninstallFailure]) -> None:
    total = sum(one.marked for one in found)
    output.show([output.note(f"{total} objects had our finalizer; {len(failures)} things could not be done.")])
    if failures:
        rows = [(one.what, one.why) for one in failures]
        output.show([output.table("Not done", ("what", "why"), rows)])


def as_document(found: list[ClusterLeftovers], *, done: bool) -> dict[str, Any]:
    return {
        "done": done,
        "clusters": [
            {
                "name": each.name,
                "uid": each.uid,
                "leases": [lease.name for lease in each.leases],
                "running": sorted({lease.holder for lease in each.running}),
                "resources": [
                    {
                        "resource": one.resource,
                        "marked": len(one.objects),
                        "deleting": [
                            {"object": str(mark), "protected": mark.protection} for mark in one.objects if mark.going
                        ],
                        "note": _note(one),
                    }
                    for one in each.remains
                ],
                "admission": [
                    {"kind": one.served.kind, "name": one.live.name, "note": _admission_note(one)}
                    for one in each.admission
                ],
                "unread": each.unread,
                "failures": each.failures,
            }
            for each in found
        ],
    }
