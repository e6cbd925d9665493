"""What came of the cluster on AWS, by the stand-in's own lists and journal and by the API server.
The judgement names everything that is left and should be gone, and everything that was not to be touched."""

from datetime import timedelta

from standins.demo.amazon import Account
from standins.demo.clouds import CloudSummary, some


class AwsSummary(CloudSummary, frozen=True, kw_only=True):
    """`held`: after its deletion the finalizer was on the object; `gone`: it is not there any more. `drained` are
    network interfaces that went after their balancers. `refused` are calls by the code of the answer."""

    cluster: str
    held: bool
    gone: bool
    resources: int
    removed: int
    left: list[str]
    drained: int
    refused: dict[str, int]


def reckon(account: Account, cluster: str, *, held: bool, gone: bool, took: timedelta | None) -> AwsSummary:
    """As it was at the account's last look."""
    resources = sum(len(ids) for ids in account.ours.values())
    left = sorted(one for ids in account.left.values() for one in ids)
    before, now = account.strangers
    return AwsSummary(
        cluster=cluster,
        held=held,
        gone=gone,
        resources=resources,
        removed=resources - len(left),
        left=left,
        kept=len(now),
        to_keep=len(before),
        touched=sorted(account.touched),
        drained=sum(entry.what == "drained" for entry in account.entries),
        calls=len(account.asked),
        refused=dict(account.refused),
        took=took,
    )


def judge_aws(summary: AwsSummary) -> list[str]:
    """What is wrong; nothing where all went well."""
    problems = []
    if not summary.held:
        problems.append(f"{summary.cluster} was deleted, and our finalizer was not on it")
    if not summary.gone:
        problems.append(f"{summary.cluster} should be gone from the API server")
    if summary.left:
        problems.append(f"not gone at AWS: {some(summary.left)}")
    return problems + summary.harm("AWS")
