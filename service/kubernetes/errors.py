"""What can go wrong between us and an API server, one class per thing that a caller does differently.
Each carries a sentence for a person that says what to do; none ever carries a token, a header or a key."""

from datetime import timedelta


class ClusterError(Exception):
    """Anything that an API server answered, or failed to answer, other than what was asked for."""


class NotServed(ClusterError):
    """The resource is not there to be asked: its CRD is absent, not established, or serves another version now.
    Discover again, later; it says nothing about the objects."""


class Forbidden(ClusterError):
    """RBAC or admission says no. Nothing is known about what was asked."""


class Unauthorized(ClusterError):
    """The credentials are not accepted, also not after they were read again."""


class NotFound(ClusterError):
    """The object that was to be changed, or its Namespace, is not there, while its resource is served."""

    def __init__(self, message: str, *, name: str = "", kind: str = "") -> None:
        super().__init__(message)
        # What the server says is missing: a name, and the plural of its kind.
        self.name, self.kind = name, kind


class Conflict(ClusterError):
    """Somebody else was first: read it again and decide again. Also: an object of that name exists already."""


class Invalid(ClusterError):
    """The server understood and refuses for good; the same request will be refused again."""


class Expired(ClusterError):
    """The resource version, or the list that it belonged to, is no longer kept: list again from the start."""


class TooMany(ClusterError):
    """The server asks to come back later."""

    def __init__(self, message: str, retry_after: timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(ClusterError):
    """No answer, or one that says nothing: timeouts, broken connections, 5xx. It is never proof of absence."""


class Silent(ClusterError):
    """A watch on which nothing came, not even a bookmark, for longer than the caller allows: replace it."""


class Unreadable(ClusterError):
    """The answer can't be decoded or converted, is too large, compressed or about another object: it says nothing."""
