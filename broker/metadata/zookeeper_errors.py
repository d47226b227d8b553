"""Turns kazoo's errors into the tree's errors."""

from __future__ import annotations

from kazoo import exceptions as kazoo

from barnabas.metadata.tree import (
    BadVersion,
    Forbidden,
    InvalidPath,
    MetadataError,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    StoreUnavailable,
)

# The request or its answer was lost. Whether the request was carried out is unknown.
LOST = (
    kazoo.ConnectionLoss,
    kazoo.ConnectionClosedError,
    kazoo.SessionExpiredError,
    kazoo.SessionMovedError,
    kazoo.OperationTimeoutError,
)
_KNOWN: dict[type[Exception], type[MetadataError]] = {
    kazoo.NoNodeError: NoNode,
    kazoo.NodeExistsError: NodeExists,
    kazoo.BadVersionError: BadVersion,
    kazoo.NotEmptyError: NotEmpty,
    kazoo.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo.NoAuthError: Forbidden,
    kazoo.InvalidACLError: Forbidden,
    kazoo.BadArgumentsError: InvalidPath,
}
_WORDS = {
    NoNode: "the node or its parent does not exist",
    NodeExists: "the node already exists",
    BadVersion: "the node has another version than expected",
    NotEmpty: "the node has children, so it cannot be deleted",
    NoChildrenForEphemerals: "the parent is ephemeral, so it cannot have children",
    Forbidden: "ZooKeeper's ACL denies this broker access; correct zookeeper.auth or the ACL",
    InvalidPath: "ZooKeeper refused the path or the ACL",
}


def tree_error(error: Exception, path: str) -> MetadataError:
    """Returns the tree's error for one request that ZooKeeper answered."""
    found = next((mine for theirs, mine in _KNOWN.items() if isinstance(error, theirs)), None)
    if found is None:
        return StoreUnavailable(f"{path}: ZooKeeper answered {type(error).__name__} {error}")
    return found(f"{path}: {_WORDS[found]}")


def multi_error(results: list[object], operations: list[Operation]) -> MultiFailed | None:
    """Returns the error of a multi; None if it was done. `results` has one result for each
    operation: the results beside the refused one say that they were rolled back or not tried."""
    for index, (result, operation) in enumerate(zip(results, operations, strict=False)):
        around = isinstance(result, kazoo.RolledBackError | kazoo.RuntimeInconsistency)
        if isinstance(result, Exception) and not around:
            return MultiFailed(index, len(operations), tree_error(result, operation.path))
    refused = next((each for each in results if isinstance(each, Exception)), None)
    if refused is not None or len(results) != len(operations):
        error = StoreUnavailable(f"ZooKeeper refused a multi: {refused!r}")
        return MultiFailed(0, len(operations), error)
    return None
