"""Processes of our own: how they start fast, talk to each other and leave nothing behind.

`fork_server` forks children from a process that has imported what they need,
`connection` carries messages, bytes and open descriptors between processes that trust
each other, `lifetime` ends what must not outlive its parent; `registry` marks the processes
and folders of a cluster, and `keeper` is a small process that ends what is marked if whoever
started it is killed; `missing_peers` is another, which says whom a task waits for. Clusters, the
rings and pipelines of processes, and grading stand on these.
No TensorFlow is imported here.
"""
