"""What may be destroyed: deletion policy, protection, scope and guard, as pure functions of values.

Nothing here reads a clock, a server or a cluster; whoever calls brings what it has read, and gets a reason with it.
"""
