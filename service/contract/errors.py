"""Errors of decoders. The messages are shown to operators; a decoder raises nothing else."""


class Undecodable(ValueError):
    """The record can't be decoded; it is kept unchanged and held."""


class NewerVersion(ValueError):
    """The record was written by a newer version of Knell; it waits for a process that can decode it."""

    def __init__(self, what: str, version: int) -> None:
        super().__init__(f"{what} has version {version}, which is newer than this process knows")
        self.version = version
