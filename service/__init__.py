"""The control side of Knell: what is going, what policy says, and the durable record of it in Redis.

It never imports the consuming side, except in the few commands that start both in one process.
"""
