"""Sources that are about a whole service of ACK: one for each of its resources that can be removed."""

from pathlib import Path

import pytest

from service.settings import load
from service.settings.problems import SettingsError
from service.sources.ack_resources import ACK_SERVICES
from workers.collectors.ack.types import TYPES

CLUSTERS = "clusters: {main: {in_cluster: true}}\n"


def plural(kind: str) -> str:
    """As ACK names the resources of its kinds."""
    name = kind.lower()
    if name.endswith("y") and name[-2] not in "aeo":
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def resources(folder: Path, sources: str) -> dict[str, tuple[str, str]]:
    file = folder / "knell.yaml"
    file.write_text(f"{CLUSTERS}sources:\n{sources}")
    return {name: (one.resource, one.mode) for name, one in load(file, {}).sources.items()}


def test_the_services_have_every_kind_that_is_removed_and_no_other() -> None:
    wanted = {
        f"{plural(kind)}.{service}.services.k8s.aws"
        for service, _, kind in (name.partition("/") for name, row in TYPES.items() if not row.held)
    }
    assert {resource for some in ACK_SERVICES.values() for resource in some} == wanted


def test_a_source_of_a_service_stands_for_one_source_of_each_of_its_resources(tmp_path: Path) -> None:
    found = resources(tmp_path, '  databases: {resource: "*.rds.services.k8s.aws", collector: ack, mode: finalizer}\n')
    assert found == {
        "databases-dbclusters": ("dbclusters.rds.services.k8s.aws", "finalizer"),
        "databases-dbinstances": ("dbinstances.rds.services.k8s.aws", "finalizer"),
    }


def test_a_source_that_is_named_by_itself_comes_before_that_of_its_service(tmp_path: Path) -> None:
    own = "  rds-dbclusters: {resource: dbclusters.rds.services.k8s.aws, collector: ack, mode: finalizer}\n"
    found = resources(tmp_path, f'  rds: {{resource: "*.rds.services.k8s.aws", collector: ack}}\n{own}')
    assert found == {
        "rds-dbclusters": ("dbclusters.rds.services.k8s.aws", "finalizer"),
        "rds-dbinstances": ("dbinstances.rds.services.k8s.aws", "observe"),
    }


@pytest.mark.parametrize("collector", ["ack", "capa", "none"])
def test_a_group_that_a_collector_does_not_know_is_no_resource(tmp_path: Path, collector: str) -> None:
    with pytest.raises(SettingsError) as refused:
        resources(tmp_path, f'  some: {{resource: "*.knell.test", collector: {collector}}}\n')
    assert "sources.some.resource" in str(refused.value)
