"""Parser of ARNs: arn:PARTITION:SERVICE:REGION:ACCOUNT:TYPE/ID, where some services have another separator."""

from typing import NamedTuple


class Arn(NamedTuple):
    """Region and account are empty for resources that have none; the id may have separators, too, or be empty."""

    partition: str
    service: str
    region: str
    account: str
    type: str
    id: str


def split_arn(text: str, separator: str = "/") -> Arn | None:
    """None if it is no ARN."""
    parts = text.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn":
        return None
    type_, _, id_ = parts[5].partition(separator)
    return Arn(parts[1], parts[2], parts[3], parts[4], type_, id_)
