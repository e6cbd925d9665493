"""`knell doctor` and its checks, one module per checked system.

Begin with command.py, which runs the checks and shows their results. redis_checks.py and redis_permissions.py check the
Redis servers, cluster_checks.py the clusters, capa_checks.py and account_checks.py what clusters on AWS need,
aws_checks.py and azure_checks.py the access to the clouds. A check only reads, and returns a `CheckResult`.
"""
