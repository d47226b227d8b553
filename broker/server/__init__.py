"""What keeps a node's partitions going beside the network threads: pools, replicas, quotas."""
