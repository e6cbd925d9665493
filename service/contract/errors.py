"""What can be wrong with a record that was read from outside.

Both errors carry a sentence for a person; nothing else may come out of a decoder.
"""


class Undecodable(ValueError):
    """The record can't be read as what it should be; it is kept whole and held."""


class NewerVersion(ValueError):
    """The record was written by a newer Knell; it is parked for a process that knows it."""

    def __init__(self, what: str, version: int) -> None:
        super().__init__(f"{what} has version {version}, which is newer than this process knows")
        self.version = version
