"""Judging: whether a deletion may go on, by the live object, its Namespace, and policy, when planned and at each call.

An event is a hint, not an order; what is found here decides, and what can't be found out holds.
"""
