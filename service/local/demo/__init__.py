"""The parts of `knell demo`: a made-up world, the processes that act in it, and the judgement at the end.

What is shown is not told by Knell: it is read from the API server, from the log of the provider, and from the
stand-ins for AWS and Azure.
"""

from service.local.demo.apis import Chosen, choose
from service.local.demo.failing import DemoFailed
from service.local.demo.invention import Invented, invent
from service.local.demo.ledger import Ledger
from service.local.demo.picture import Picture
from service.local.demo.play import play
from service.local.demo.reckoning import AwsSummary
from service.local.demo.reservation import AzureSummary
from service.local.demo.summary import Evidence, Held, Summary, judge, sum_up
from service.local.demo.troupe import State, Troupe

__all__ = [
    "AwsSummary",
    "AzureSummary",
    "Chosen",
    "DemoFailed",
    "Evidence",
    "Held",
    "Invented",
    "Ledger",
    "Picture",
    "State",
    "Summary",
    "Troupe",
    "choose",
    "invent",
    "judge",
    "play",
    "sum_up",
]
