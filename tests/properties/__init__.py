"""Laws of the engine, tried with any order of moves on a real server, and faults that show that each law is watched.

The laws read what is in Redis, never what a call claims to have done.
"""
