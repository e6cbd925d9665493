"""What AWS says when it does not do what was asked, in few words: gone, depends, throttled, denied, unreadable, other.
Everything that botocore and aiohttp raise comes through here once; nobody else looks at error codes of the SDK."""

from typing import Literal

What = Literal["gone", "depends", "protected", "throttled", "denied", "unreadable", "unreachable", "other"]


class AwsError(Exception):
    """`action` is the IAM action that was tried, as a policy names it (ec2:DeleteSecurityGroup); `code` is AWS's own.
    The message is fit to be shown: no credential, no signed address, no account secret."""

    def __init__(self, what: What, action: str, code: str, message: str) -> None:
        super().__init__(f"{action}: {code}: {message}" if message else f"{action}: {code}")
        self.what, self.action, self.code, self.message = what, action, code, message


class NoAccess(Exception):
    """Nothing may be done as this identity, or not now; with `again` it may pass by itself."""

    def __init__(self, reason: str, *, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again
