"""Check that the credentials' account may be the one of an object's resources. Pure: every record of an account must
agree, and without any record only the VPC identifies the account."""

from service.sources.capa import AWS_ACCOUNT
from workers.collectors.capa.account_records import is_account_known
from workers.collectors.capa.capa_object import OPT_OUT_HINT, CapaObject


def account_fault(subject: CapaObject, account: str, expected: str) -> str | None:
    """Why the account can't be the object's; `expected` is the one that the settings name for the process's own
    credentials."""
    for record in subject.records:
        if record.account != account:
            return (
                f"the caller's account is {account}, but {record.by} of {subject.label} says {record.account}: "
                f"the wrong account is not an empty account"
            )
    if expected and subject.own_credentials and expected != account:
        return f"the caller's account is {account}, but the setting aws.account says {expected}"
    if not subject.vpc and not is_account_recorded(subject, expected):
        return (
            f"nothing tells which account {subject.label} is in, for it names no VPC: "
            f"{how_to_record_account(subject, account)}; {OPT_OUT_HINT}"
        )
    return None


def is_account_recorded(subject: CapaObject, expected: str) -> bool:
    """Whether anything but the VPC identifies the account."""
    return is_account_known(subject.records, subject.identity, expected)


def how_to_record_account(subject: CapaObject, account: str) -> str:
    """Instructions to record the account; `account` is the credentials'."""
    command = f"kubectl annotate {subject.kubectl_args} {AWS_ACCOUNT}={account}"
    recorded_by = f"if it is account {account}, the caller's, record that by `{command}`"
    if subject.own_credentials:
        return f"{recorded_by}, or by the setting aws.account for all that use the service's own credentials"
    return f"{recorded_by} (the setting aws.account says nothing of {subject.identity})"
