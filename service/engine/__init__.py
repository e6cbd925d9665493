"""The engine's state in Redis: keys, one Lua file per move, budgets and wake-ups.

Everything that must be atomic happens here, inside a script, by the server's clock.
"""
