"""Version of stored records.

A process decodes records up to its own version; newer ones wait for a process that can decode them.
"""

VERSION = 1
