"""Client for AWS: credentials, SDK sessions, paging, and the shared budgets that calls draw on.

Begin with `clients`, which returns a client for one identity, account and region. `credentials` says how a collector
turns an identity into credentials, `sessions` makes the requests. Nothing here decides what is deleted.
"""
