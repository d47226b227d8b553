"""The table of the supported API keys and versions, which ApiVersions answers with.

A handler's module declares `KEY`, `VERSIONS` (first and last), `CONTEXT` (the record of contexts.py
with the objects that its handler may use) and `handle(request, call)`, which returns the response,
or a Later when it comes later. When a handler raises a KafkaError, `refuse(request, code, call)`
returns the response with this error for the whole request. Produce and Fetch have no `handle`:
native handlers answer them on the network threads. `ACCESS` says which access rules a request needs
(access.py).

Some modules have `cacheable_codes(answer)`. It returns the number of error codes in an answer if
the response cache may send it again for the same request, until the cluster's state changes or a
log goes offline; otherwise 0 (cext/network/response_cache.pyx).

The reactor finds native handlers in a table by key and version (cext/network/reactor.pyx); each
handler declares its versions, which lie within those of this table (a test compares them).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from barnabas.api import (
    k00_produce,
    k01_fetch,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k26_end_txn,
)
from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import (
    ConfigContext,
    ControllerContext,
    FeatureContext,
    GroupContext,
    LoginContext,
    MetadataContext,
    NoContext,
    PartitionContext,
    QuotaContext,
    ReplicaContext,
    ShareContext,
    StreamsContext,
    TokenContext,
    TopicContext,
    TransactionContext,
    UserContext,
)
from barnabas.api.later import Later
from barnabas.wire import Struct
from barnabas.wire.api_keys import api_key

EVERY = "all"  # versions: from the lowest of Kafka 3.9 to the highest of 4.4

MODULES: tuple[ModuleType, ...] = (
    k00_produce,
    k01_fetch,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k26_end_txn,
)

# Modules that the first request of their key imports, since most brokers never get one, or a native
# handler answers nearly all of them: file, versions and context; the last two repeat those of the
# module.
LATE: dict[int, tuple[str, tuple[int, int], type]] = {
    2: ("k02_list_offsets", (0, 11), PartitionContext),
    8: ("k08_offset_commit", (0, 10), GroupContext),
    9: ("k09_offset_fetch", (0, 10), GroupContext),
    11: ("k11_join_group", (0, 9), GroupContext),
    12: ("k12_heartbeat", (0, 4), GroupContext),
    13: ("k13_leave_group", (0, 5), GroupContext),
    14: ("k14_sync_group", (0, 5), GroupContext),
    15: ("k15_describe_groups", (0, 6), GroupContext),
    16: ("k16_list_groups", (0, 5), GroupContext),
    17: ("k17_sasl_handshake", (0, 1), LoginContext),
    19: ("k19_create_topics", (0, 7), TopicContext),
    20: ("k20_delete_topics", (0, 6), TopicContext),
    21: ("k21_delete_records", (0, 2), PartitionContext),
    22: ("k22_init_producer_id", (0, 5), TransactionContext),
    23: ("k23_offset_for_leader_epoch", (0, 4), PartitionContext),
    24: ("k24_add_partitions_to_txn", (0, 5), TransactionContext),
    25: ("k25_add_offsets_to_txn", (0, 4), TransactionContext),
    27: ("k27_write_txn_markers", (0, 2), TransactionContext),
    28: ("k28_txn_offset_commit", (0, 6), TransactionContext),
    29: ("k29_describe_acls", (0, 3), MetadataContext),
    30: ("k30_create_acls", (0, 3), MetadataContext),
    31: ("k31_delete_acls", (0, 3), MetadataContext),
    32: ("k32_describe_configs", (0, 4), ConfigContext),
    33: ("k33_alter_configs", (0, 2), ConfigContext),
    34: ("k34_alter_replica_log_dirs", (0, 2), PartitionContext),
    35: ("k35_describe_log_dirs", (0, 5), PartitionContext),
    36: ("k36_sasl_authenticate", (0, 2), LoginContext),
    37: ("k37_create_partitions", (0, 3), TopicContext),
    38: ("k38_create_delegation_token", (0, 3), TokenContext),
    39: ("k39_renew_delegation_token", (0, 2), TokenContext),
    40: ("k40_expire_delegation_token", (0, 2), TokenContext),
    41: ("k41_describe_delegation_token", (0, 3), TokenContext),
    42: ("k42_delete_groups", (0, 3), GroupContext),
    43: ("k43_elect_leaders", (0, 2), ControllerContext),
    44: ("k44_incremental_alter_configs", (0, 1), ConfigContext),
    45: ("k45_alter_partition_reassignments", (0, 1), ControllerContext),
    46: ("k46_list_partition_reassignments", (0, 0), MetadataContext),
    47: ("k47_offset_delete", (0, 0), GroupContext),
    48: ("k48_describe_client_quotas", (0, 1), QuotaContext),
    49: ("k49_alter_client_quotas", (0, 1), QuotaContext),
    50: ("k50_describe_user_scram_credentials", (0, 0), UserContext),
    51: ("k51_alter_user_scram_credentials", (0, 0), UserContext),
    55: ("k55_describe_quorum", (0, 2), MetadataContext),
    57: ("k57_update_features", (0, 2), FeatureContext),
    60: ("k60_describe_cluster", (0, 2), MetadataContext),
    61: ("k61_describe_producers", (0, 0), PartitionContext),
    65: ("k65_describe_transactions", (0, 0), TransactionContext),
    66: ("k66_list_transactions", (0, 2), TransactionContext),
    68: ("k68_consumer_group_heartbeat", (0, 1), GroupContext),
    69: ("k69_consumer_group_describe", (0, 1), GroupContext),
    71: ("k71_get_telemetry_subscriptions", (0, 0), MetadataContext),
    72: ("k72_push_telemetry", (0, 0), MetadataContext),
    74: ("k74_list_config_resources", (0, 1), ConfigContext),
    75: ("k75_describe_topic_partitions", (0, 0), MetadataContext),
    76: ("k76_share_group_heartbeat", (1, 1), ShareContext),
    77: ("k77_share_group_describe", (1, 1), ShareContext),
    78: ("k78_share_fetch", (1, 2), ShareContext),
    79: ("k79_share_acknowledge", (1, 2), ShareContext),
    83: ("k83_initialize_share_group_state", (0, 0), ShareContext),
    84: ("k84_read_share_group_state", (0, 0), ShareContext),
    85: ("k85_write_share_group_state", (0, 1), ShareContext),
    86: ("k86_delete_share_group_state", (0, 0), ShareContext),
    87: ("k87_read_share_group_state_summary", (0, 1), ShareContext),
    88: ("k88_streams_group_heartbeat", (0, 1), StreamsContext),
    89: ("k89_streams_group_describe", (0, 1), StreamsContext),
    90: ("k90_describe_share_group_offsets", (0, 1), ShareContext),
    91: ("k91_alter_share_group_offsets", (0, 0), ShareContext),
    92: ("k92_delete_share_group_offsets", (0, 0), ShareContext),
    93: ("k93_streams_group_topology_description_update", (0, 0), StreamsContext),
}

# As LATE: keys that only brokers of a cluster serve, to each other.
BETWEEN_BROKERS: dict[int, tuple[str, tuple[int, int], type]] = {
    4: ("k04_leader_and_isr", (0, 7), ReplicaContext),
    5: ("k05_stop_replica", (0, 4), ReplicaContext),
    6: ("k06_update_metadata", (0, 8), ReplicaContext),
    7: ("k07_controlled_shutdown", (1, 3), ControllerContext),
    56: ("k56_alter_partition", (0, 3), ControllerContext),
    67: ("k67_allocate_producer_ids", (0, 0), ControllerContext),
}

# Kafka 4 lists Produce from version 0 on, without which librdkafka does not compress, and serves it
# from 3 on (KAFKA-18659).
LISTED_FROM = {("4.4", k00_produce.KEY): 0}

# Supported keys that ApiVersions does not list, as in Kafka while nothing receives clients'
# metrics.
UNANNOUNCED = frozenset({71, 72})


class Api(NamedTuple):
    """One row: an API key, its supported versions and its handler."""

    key: int
    name: str
    version_min: int
    version_max: int
    # None: native handlers answer on the network threads
    handle: Callable[[Struct, Call[Any]], Struct | Later] | None
    refuse: Callable[[Struct, int, Call[Any]], Struct] | None
    context: type
    access: Callable[[], Access]
    cacheable_codes: Callable[[Struct], int] | None = None

    def serves(self, version: int) -> bool:
        return self.version_min <= version <= self.version_max


def api_table(is_shared: bool = False, release: str = EVERY) -> dict[int, Api]:
    """Returns the rows by key, in ascending order; with `is_shared` those of a broker of a
    cluster. `release`: of Kafka; then the rows have the keys and versions that its brokers serve,
    beside those of requests between brokers."""
    rows = {}
    for module in sorted(MODULES, key=lambda module: int(module.KEY)):
        low, high = module.VERSIONS
        row = api_key(module.KEY)
        assert row.version_min <= low <= high <= row.version_max, module.__name__
        handle = getattr(module, "handle", None)
        refuse = getattr(module, "refuse", None)
        cacheable_codes = getattr(module, "cacheable_codes", None)
        context = getattr(module, "CONTEXT", NoContext)
        access = partial(getattr, module, "ACCESS")
        rows[module.KEY] = Api(
            module.KEY, row.name, low, high, handle, refuse, context, access, cacheable_codes
        )
    late = LATE | BETWEEN_BROKERS if is_shared else LATE
    for key, (file, (low, high), context) in late.items():
        row = api_key(key)
        assert row.version_min <= low <= high <= row.version_max, file
        handle, refuse = _late(file, "handle"), _late(file, "refuse")
        access = partial(_late_access, file)
        rows[key] = Api(key, row.name, low, high, handle, refuse, context, access)
    if release != EVERY:
        rows = dict(_rows_of(release, rows))
    return dict(sorted(rows.items()))


def _rows_of(release: str, rows: Mapping[int, Api]) -> Iterator[tuple[int, Api]]:
    for key, row in rows.items():
        if key in BETWEEN_BROKERS:
            yield key, row
        elif (served := api_key(key).of_releases.get(release)) is not None:
            low, high = max(row.version_min, served[0]), min(row.version_max, served[1])
            if low <= high:
                yield key, row._replace(version_min=low, version_max=high)


def _late(file: str, function: str) -> Callable[..., Any]:
    def call(*arguments: object) -> Any:
        return getattr(import_module(f"barnabas.api.{file}"), function)(*arguments)

    return call


def _late_access(file: str) -> Access:
    access: Access = import_module(f"barnabas.api.{file}").ACCESS
    return access


def advertised_versions(
    table: Mapping[int, Api], release: str = EVERY
) -> tuple[tuple[int, int, int], ...]:
    """Returns (key, first, last) for ApiVersions, without UNANNOUNCED."""
    return tuple(
        (row.key, LISTED_FROM.get((release, row.key), row.version_min), row.version_max)
        for row in table.values()
        if row.key not in UNANNOUNCED
    )
