"""Whether the account that the caller is in may be the one that an object's resources are in.
Pure: everything that records an account must agree, and without any record only the VPC can tell."""

from service.contract.aws import AWS_ACCOUNT
from service.policy.aws_accounts import is_told
from workers.handlers.aws.owners import LET_GO, Subject


def account_fault(subject: Subject, account: str, expected: str) -> str | None:
    """Why the caller's account may not be the object's; `expected` is what settings say of our own credentials."""
    for record in subject.records:
        if record.account != account:
            return (
                f"the caller's account is {account}, but {record.by} of {subject.called} says {record.account}: "
                f"the wrong account is not an empty account"
            )
    if expected and subject.own_credentials and expected != account:
        return f"the caller's account is {account}, but the setting aws.account says {expected}"
    if not subject.vpc and not recorded(subject, expected):
        return (
            f"nothing tells which account {subject.called} is in, for it names no VPC: {to_record(subject, account)}; "
            f"{LET_GO}"
        )
    return None


def recorded(subject: Subject, expected: str) -> bool:
    """Whether anything but the VPC tells the account."""
    return is_told(subject.records, subject.identity, expected)


def to_record(subject: Subject, account: str) -> str:
    """What a person does who knows the account; `account` is the caller's."""
    command = f"kubectl annotate {subject.addressed} {AWS_ACCOUNT}={account}"
    recorded_by = f"if it is account {account}, the caller's, record that by `{command}`"
    if subject.own_credentials:
        return f"{recorded_by}, or by the setting aws.account for all that use the service's own credentials"
    return f"{recorded_by} (the setting aws.account says nothing of {subject.identity})"
