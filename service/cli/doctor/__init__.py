"""`knell doctor` and its checks, one module per checked system.

Begin with command.py, which runs the checks and shows their results. redis_checks.py and redis_permissions.py check the
Redis servers, cluster_checks.py the clusters, protection_checks.py the protection at admission; collectors bring the
checks of what their sources need, such as access to a cloud. A check only reads, and returns a `CheckResult`.
"""
