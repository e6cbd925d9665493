"""The version that every stored record carries.

A process reads records up to its own version; newer ones are parked for a process that knows them.
"""

VERSION = 1
