"""The parts of `knell demo`: a made-up world, the processes that act in it, and the judgement at the end.

What is shown is not told by Knell: it is read from the log of the provider that it worked against.
"""

from service.local.demo.invention import Invented, invent
from service.local.demo.ledger import Ledger, Summary
from service.local.demo.troupe import Troupe

__all__ = ["Invented", "Ledger", "Summary", "Troupe", "invent"]
