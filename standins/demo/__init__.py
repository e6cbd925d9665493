"""The parts of `knell demo`: a made-up world, the processes that act in it, and the judgement at the end.

What is shown is not told by Knell: it is read from the API server, from the log of the provider, and from the
stand-ins for AWS and Azure.
"""

from standins.demo.apis import Chosen, choose
from standins.demo.failing import DemoFailed
from standins.demo.invention import Invented, invent
from standins.demo.ledger import Ledger
from standins.demo.picture import Picture
from standins.demo.play import play
from standins.demo.reckoning import AwsSummary
from standins.demo.reservation import AzureSummary
from standins.demo.summary import Evidence, Held, Summary, judge, sum_up
from standins.demo.troupe import State, Troupe

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
