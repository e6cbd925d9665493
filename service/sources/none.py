"""Source of objects that own nothing outside their cluster: they are judged and released, nothing is collected."""

from typing import Final

from service.sources.declaration import Source

NONE: Final = "none"

SOURCE: Final = Source(name=NONE)
