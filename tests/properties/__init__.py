"""Property tests of the engine: random sequences of calls on a real server, with its laws checked after each one.
Planted faults show that each law is checked. The laws read Redis, never what a call claims to have done."""
