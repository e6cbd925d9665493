"""The value of the tag that keeping leaves: it fits what providers allow, and always ends with the whole uid."""

import re

import pytest

from service.contract.kept import LONGEST_VALUE, retained_value

UID = "6f1c0f8e-7a52-4be0-9d5d-0c3f5d6c2f11"


@pytest.mark.parametrize("namespace", ["", "tenant", "n" * 63])
@pytest.mark.parametrize("name", ["prod", "a" * 253])
def test_it_names_the_object_and_fits(namespace: str, name: str) -> None:
    resource = "awsmanagedcontrolplanes.controlplane.cluster.x-k8s.io"
    value = retained_value(UID, resource, namespace, name, UID)
    assert len(value) <= LONGEST_VALUE
    assert value.startswith(f"{UID}/{resource}/{namespace}/{name[:4]}")
    assert value.endswith(f"/{UID}")
    if name == "prod":
        assert value == f"{UID}/{resource}/{namespace}/prod/{UID}"
    else:
        assert "aaa../" in value


def test_what_providers_do_not_allow_is_an_underscore() -> None:
    value = retained_value("c", "kind", "ns", 'a"b<ü>', "u")
    assert value == "c/kind/ns/a_b___/u"
    assert re.fullmatch(r"[0-9A-Za-z .:/=+_@-]*", value)
