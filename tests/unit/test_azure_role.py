"""The shipped Azure role: in step with what the code can call, and nothing beyond it."""

import json
from pathlib import Path

from tests.azure_kinds import AZURE_KINDS
from workers.collectors.karpenter_azure.claim import STAGES
from workers.collectors.karpenter_azure.permissions import as_text, role_definition

SHIPPED = Path(__file__).parents[2] / "deploy" / "azure" / "role-definition.json"


def test_the_shipped_role_is_the_one_that_the_kinds_make() -> None:
    assert SHIPPED.read_text() == as_text()


def test_each_kind_may_be_read_deleted_and_tagged_and_nothing_else_is_allowed() -> None:
    called = {f"{kind.type}/{verb}" for kind in STAGES for verb in ("read", "delete")}
    assert set(role_definition()["Actions"]) == {*called, "Microsoft.Resources/tags/write"}
    assert len(called) == 2 * len(AZURE_KINDS)


def test_it_has_no_wildcard_and_names_no_subscription() -> None:
    text = SHIPPED.read_text()
    assert "*" not in text
    assert json.loads(text)["AssignableScopes"] == ["/subscriptions/SUBSCRIPTION/resourceGroups/NODE_RESOURCE_GROUP"]
