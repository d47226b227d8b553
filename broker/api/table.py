"""Which API keys and versions are served. ApiVersions is made from this table.

A handler's module declares `KEY`, `VERSIONS` (first and last) and `handle(request, call)`, which
returns the response. What a handler raises as a KafkaError becomes `refuse(request, code, call)`,
the response that says so for the whole request. Produce and Fetch have no `handle`: their lanes
answer on the network threads.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import NamedTuple

from barnabas.api import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k33_alter_configs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k44_incremental_alter_configs,
    k60_describe_cluster,
    k61_describe_producers,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)
from barnabas.api.call import Call
from barnabas.wire import Struct
from barnabas.wire.api_keys import api_key

MODULES: tuple[ModuleType, ...] = (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k33_alter_configs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k44_incremental_alter_configs,
    k60_describe_cluster,
    k61_describe_producers,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)


class Api(NamedTuple):
    """One row: what is served of a key."""

    key: int
    name: str
    version_min: int
    version_max: int
    handle: Callable[[Struct, Call], Struct] | None  # None: answered on the network threads
    refuse: Callable[[Struct, int, Call], Struct] | None

    def serves(self, version: int) -> bool:
        return self.version_min <= version <= self.version_max


def api_table() -> dict[int, Api]:
    """The rows by key, ascending."""
    rows = {}
    for module in sorted(MODULES, key=lambda module: int(module.KEY)):
        low, high = module.VERSIONS
        row = api_key(module.KEY)
        assert row.version_min <= low <= high <= row.version_max, module.__name__
        handle = getattr(module, "handle", None)
        refuse = getattr(module, "refuse", None)
        rows[module.KEY] = Api(module.KEY, row.name, low, high, handle, refuse)
    return rows


def advertised_versions(table: Mapping[int, Api]) -> tuple[tuple[int, int, int], ...]:
    """(key, first, last) for ApiVersions. Produce's first is a lie that 4.x tells as well."""
    lowest = {k00_produce.KEY: k00_produce.ADVERTISED_MIN}
    return tuple(
        (row.key, lowest.get(row.key, row.version_min), row.version_max) for row in table.values()
    )
