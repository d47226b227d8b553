"""Kafka's codes of access rules: operations, types of resources, of patterns and of permissions.

A set of operations is a number with bit n for the operation with code n (KIP-430).
"""

from __future__ import annotations

# AclOperation
UNKNOWN, ANY, ALL = range(3)
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = range(3, 10)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS = range(10, 15)
TWO_PHASE_COMMIT = 15
EVERY_OPERATION = (1 << 16) - 1

# ResourceType, PatternType, AclPermissionType; each has UNKNOWN and ANY too
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(2, 8)
MATCH, LITERAL, PREFIXED = range(2, 5)
DENY, ALLOW = 2, 3

CLUSTER_NAME = "kafka-cluster"  # of the one resource of the type CLUSTER
WILDCARD = "*"  # every name, or every host
EVERY_PRINCIPAL = "User:*"

OPERATIONS = {
    "ALL": ALL,
    "READ": READ,
    "WRITE": WRITE,
    "CREATE": CREATE,
    "DELETE": DELETE,
    "ALTER": ALTER,
    "DESCRIBE": DESCRIBE,
    "CLUSTER_ACTION": CLUSTER_ACTION,
    "DESCRIBE_CONFIGS": DESCRIBE_CONFIGS,
    "ALTER_CONFIGS": ALTER_CONFIGS,
    "IDEMPOTENT_WRITE": IDEMPOTENT_WRITE,
    "CREATE_TOKENS": CREATE_TOKENS,
    "DESCRIBE_TOKENS": DESCRIBE_TOKENS,
    "TWO_PHASE_COMMIT": TWO_PHASE_COMMIT,
}
RESOURCE_TYPES = {
    "TOPIC": TOPIC,
    "GROUP": GROUP,
    "CLUSTER": CLUSTER,
    "TRANSACTIONAL_ID": TRANSACTIONAL_ID,
    "DELEGATION_TOKEN": DELEGATION_TOKEN,
    "USER": USER,
}
OPERATION_NAMES = {code: name for name, code in OPERATIONS.items()}
TYPE_NAMES = {code: name for name, code in RESOURCE_TYPES.items()}
PATTERN_TYPES = {"LITERAL": LITERAL, "PREFIXED": PREFIXED}
PERMISSIONS = {"DENY": DENY, "ALLOW": ALLOW}


def operation_set(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


# What can be done with a resource of each type (Kafka: AclEntry.supportedOperations).
SUPPORTED = {
    TOPIC: operation_set(
        READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS
    ),
    GROUP: operation_set(READ, DESCRIBE, DELETE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: operation_set(
        CREATE,
        CLUSTER_ACTION,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        IDEMPOTENT_WRITE,
        ALTER,
        DESCRIBE,
    ),
}
