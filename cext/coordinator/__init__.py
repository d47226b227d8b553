"""Group and transaction coordinators' hot requests, handled on network threads."""
