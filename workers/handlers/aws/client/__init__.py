"""Client for AWS: credentials, SDK sessions, paging, and the shared budgets that calls draw on.

Begin with `clients`, which returns a client for one identity, account and region. `identities` turns an identityRef of
Cluster API into credentials, `sessions` makes the requests. Nothing here decides what is deleted.
"""
