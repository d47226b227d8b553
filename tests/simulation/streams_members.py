"""The members of a streams group (KIP-1071) of a simulated broker, with one task for each partition
of a topic. They do, and are checked, as the members of a consumer group (members.py)."""

from __future__ import annotations

from typing import Any

from simulation.members import REBALANCE_MS, Member, Members

from barnabas.wire import Struct, request

SUBTOPOLOGY = "0"


class StreamsMembers(Members):
    """The streams group of a world with one broker, whose tasks read `topic`."""

    group, key, version = "streams", 88, 1

    def _fields(self, member: Member, epoch: int) -> dict[str, Any]:
        if epoch < 0:
            return {}
        message = request(self.key)
        row_of = message.struct("activeTasks")
        owned = sorted(index for _, index in member.owned)
        rows = [row_of(subtopologyId=SUBTOPOLOGY, partitions=owned)] if owned else []
        given: dict[str, Any] = {"activeTasks": rows, "standbyTasks": [], "warmupTasks": []}
        if epoch == 0:
            row = message.struct("topology.subtopologies")(
                subtopologyId=SUBTOPOLOGY, sourceTopics=[self._topic]
            )
            topology = message.struct("topology")(epoch=0, subtopologies=[row])
            given |= {"topology": topology, "processId": member.name, "clientTags": []}
            given |= {"rebalanceTimeoutMs": REBALANCE_MS}
        return given

    def _assigned(self, answer: Struct) -> set[tuple[bytes, int]] | None:
        if answer.activeTasks is None:
            return None
        return {
            (row.subtopologyId.encode(), index)
            for row in answer.activeTasks
            for index in row.partitions
        }
