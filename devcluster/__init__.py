"""A real one-node Kubernetes on a Linux machine, built from pinned sources, for LeaseQueue's tests and demo.

Weak on purpose: one node, etcd without fsync, no uplink, nothing survives ``down``. It is no place for data.
"""
