"""The collector for objects that own nothing outside their cluster.
They are held back, judged and released like all others; there is only nothing to remove."""

from service.contract import Plan
from workers.handlers.objects import Facts


class Nothing:
    name = "none"
    metadata_only = True

    async def collect(self, facts: Facts) -> Plan:
        del facts
        return Plan([])
