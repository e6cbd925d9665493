"""`knell doctor`: how the account of a cluster is known, and what to do if it is not."""

import json
from typing import Any

import pytest

from service.sources.capa import AWS_ACCOUNT
from workers.collectors.capa.account_records import identity_without_account
from workers.collectors.capa.checks_accounts import UnknownAccount, judge_accounts

ACCOUNT = "111122223333"
STATIC = "AWSClusterStaticIdentity/tenant"


def text(kind: str = "", status: object = None, **annotations: str) -> bytes:
    identity = {"identityRef": {"kind": kind, "name": "tenant"}} if kind else {}
    return json.dumps({"metadata": {"annotations": annotations}, "spec": identity, "status": status}).encode()


def silent(count: int, identity: str = "") -> list[UnknownAccount]:
    return [UnknownAccount(f"team/c{number}", identity) for number in range(count)]


# ---- how an account is known


@pytest.mark.parametrize(
    ("raw", "expected", "identity"),
    [
        (text(), "", ""),
        (text(), ACCOUNT, None),
        (text("AWSClusterControllerIdentity"), "", "AWSClusterControllerIdentity/tenant"),
        (text("AWSClusterControllerIdentity"), ACCOUNT, None),
        (text("AWSClusterRoleIdentity"), "", None),
        (text("AWSClusterStaticIdentity"), "", STATIC),
        # aws.account applies to the service's own credentials.
        (text("AWSClusterStaticIdentity"), ACCOUNT, STATIC),
        (text("AWSClusterStaticIdentity", **{AWS_ACCOUNT: ACCOUNT}), "", None),
        (text(status={"networkStatus": {"apiServerElb": {"arn": f"arn:aws:e:r:{ACCOUNT}:x"}}}), "", None),
        (text(status={"networkStatus": {"apiServerElb": {"name": "classic"}}}), "", ""),
        (b"{", ACCOUNT, "?"),
    ],
)
def test_an_account_is_known_by_a_record_a_role_or_the_setting(raw: bytes, expected: str, identity: Any) -> None:
    assert identity_without_account(raw, expected) == identity


# ---- result of the check


def test_without_any_cluster_the_missing_setting_is_warned_of() -> None:
    found = judge_accounts("here", 0, [], "")
    assert found.state == "warning"
    assert "once CAPA has removed a VPC, it is unknown whether the account is the right one" in found.what
    assert "waits for a person" in found.what
    assert "KNELL_AWS_ACCOUNT" in found.mend
    assert judge_accounts("here", 0, [], ACCOUNT).state == "fine"


def test_nothing_is_to_be_done_if_every_account_is_known() -> None:
    found = judge_accounts("here", 7, [], "")
    assert (found.state, found.mend) == ("fine", "")


def test_the_first_clusters_are_named_and_the_remedy_fits_their_identity() -> None:
    own = judge_accounts("here", 9, silent(5), "")
    assert own.state == "warning"
    assert "of 5 of 9 clusters (team/c0, team/c1, team/c2 and 2 more)" in own.what
    assert "set aws.account" in own.mend
    assert "gc enable" not in own.mend
    static = judge_accounts("here", 9, silent(1, STATIC), ACCOUNT)
    assert static.state == "warning"
    assert "knell gc enable KIND/NAME --account ID" in static.mend
    assert "aws.account" not in static.mend
    both = judge_accounts("here", 9, [*silent(1), *silent(1, STATIC)], "")
    assert "set aws.account" in both.mend
    assert "knell gc enable" in both.mend
