"""Errors of calls to an API server, one class for each way in which a caller reacts. The message says what to do; none
ever contains a token, a header or a key."""

from datetime import timedelta


class ClusterError(Exception):
    """Base of all errors of calls to an API server. `answer` is the server's own message if it answered with one."""

    answer: str = ""


class NotServed(ClusterError):
    """The resource is not served: its CRD is absent, not established, or serves another version now. To be discovered
    again later; it says nothing about the objects."""


class Forbidden(ClusterError):
    """Denied by RBAC or admission. It says nothing about the objects."""


class Unauthorized(ClusterError):
    """The credentials are not accepted, even after they were read again."""


class NotFound(ClusterError):
    """The object, or its Namespace, does not exist, while its resource is served."""

    def __init__(self, message: str, *, name: str = "", kind: str = "") -> None:
        super().__init__(message)
        # What is missing according to the server: a name, and the plural of its kind.
        self.name, self.kind = name, kind


class Conflict(ClusterError):
    """Changed by someone else: to be read and decided again. Also: an object of that name exists already."""


class Invalid(ClusterError):
    """The server refuses the request; the same one will be refused again."""


class Expired(ClusterError):
    """410 Gone: the server no longer has the resource version of a watch or list. To be listed again from the start."""


class TooMany(ClusterError):
    """The server asks for a retry later."""

    def __init__(self, message: str, retry_after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(ClusterError):
    """No response, or one that says nothing: timeouts, broken connections, 5xx. It is never a proof of absence."""


class WatchStalled(ClusterError):
    """No event came on a watch, not even a bookmark, for longer than the caller allows. To be replaced."""


class Unreadable(ClusterError):
    """The response can't be decoded or converted, is too large, compressed or about another object: it says nothing."""
