"""The registries of kinds in the tests have exactly the kinds that the providers have, and say of them what those say.
A kind without a row would be left out of every test that goes over kinds."""

from collections.abc import Iterable

import pytest

from tests.aws_identifier_kinds import IDENTIFIER_ROWS
from tests.aws_kinds import AWS_KINDS, AwsKindRow
from tests.azure_kinds import AZURE_KINDS, AzureKindRow
from workers.providers.aws.kinds import IDENTIFIER_KINDS, kind_named
from workers.providers.aws.kinds import KINDS as AWS_PROVIDER_KINDS
from workers.providers.aws.services import service_named
from workers.providers.azure.kinds import KINDS as AZURE_PROVIDER_KINDS

BY_TYPE = "aws.cloud-control"
"""The kind for resources of any type, which has tests of its own."""


def require_rows(file: str, rows: Iterable[str], kinds: Iterable[str]) -> None:
    rows, kinds = set(rows), set(kinds)
    missing, unknown = sorted(kinds - rows), sorted(rows - kinds)
    assert not missing, (
        f"{file} has no row for {', '.join(missing)}: add one to _ROWS that says how such a resource is created in the "
        f"stand-in, described and deleted; every test that goes over kinds then includes it"
    )
    assert not unknown, f"{file} has a row for {', '.join(unknown)}, which no provider has: remove it or rename it"


def test_every_kind_of_the_aws_provider_has_a_row() -> None:
    require_rows("tests/aws_kinds.py", AWS_KINDS, [kind.name for kind in AWS_PROVIDER_KINDS])


def test_every_kind_that_is_removed_by_identifier_has_a_row() -> None:
    kinds = [kind.name for kind in IDENTIFIER_KINDS if kind.name != BY_TYPE]
    require_rows("tests/aws_identifier_kinds.py", IDENTIFIER_ROWS, kinds)
    for kind in IDENTIFIER_KINDS:
        if kind.name != BY_TYPE:
            row = IDENTIFIER_ROWS[kind.name]
            assert (kind.service, kind.delete_operation) == (row.service, row.delete_operation)
            # What could have another's name has an incarnation.
            assert (kind.incarnation is not None) == row.reused


def test_every_kind_of_the_azure_provider_has_a_row() -> None:
    require_rows("tests/azure_kinds.py", AZURE_KINDS, [kind.name for kind in AZURE_PROVIDER_KINDS])


def test_a_kind_without_a_row_fails_with_what_to_add_and_a_row_without_a_kind_with_what_to_remove() -> None:
    with pytest.raises(AssertionError, match=r"tests/aws_kinds\.py has no row for aws\.new: add one to _ROWS"):
        require_rows("tests/aws_kinds.py", AWS_KINDS, [*AWS_KINDS, "aws.new"])
    with pytest.raises(AssertionError, match=r"a row for aws\.old, which no provider has: remove it"):
        require_rows("tests/aws_kinds.py", [*AWS_KINDS, "aws.old"], AWS_KINDS)


@pytest.mark.parametrize("row", AWS_KINDS.values(), ids=lambda row: row.name)
def test_a_row_of_aws_deletes_and_reads_with_the_operations_of_its_kind(row: AwsKindRow) -> None:
    kind = kind_named(row.name)
    assert kind is not None
    assert (kind.service, kind.delete_operation) == (row.service, row.delete_operation)
    described = "".join(word.capitalize() for word in row.describe.split("_"))
    assert f"{row.service}.{described}" in kind.read_operations
    # Calls of some services share their buckets, unless a kind declares one of its own.
    own, service = kind.limits.get(row.delete_operation), service_named(kind.service)
    own = own or service.buckets.get(row.delete_operation) or (None if service.shared else service.changes)
    assert row.delete_bucket == own


@pytest.mark.parametrize("row", AZURE_KINDS.values(), ids=lambda row: row.name)
def test_a_row_of_azure_is_where_its_kind_is_and_draws_on_the_same_calls(row: AzureKindRow) -> None:
    (kind,) = [kind for kind in AZURE_PROVIDER_KINDS if kind.name == row.name]
    assert (kind.client, kind.collection) == (row.client, row.collection)
    assert (kind.reading, kind.removing) == (row.reading, row.removing)
