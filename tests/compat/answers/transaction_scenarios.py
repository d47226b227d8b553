"""Scenarios for transactions, with fields that every version has.

The dialogues of tests/transactions/dialogue.py cover more, in the newest versions; here each
version of each request sends the same few cases.
"""

import time
from typing import Any

from compat.answers.asking import Asker, is_moving
from compat.answers.consumer_scenarios import Consumers
from compat.answers.group_scenarios import Group
from compat.support import CALL_TIMEOUT_S, create_topic

from barnabas.wire import Struct

INIT, ADD, ADD_OFFSETS, END = 22, 24, 25, 26
NO_TOPIC = "no-such-topic"
NO_TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
SEVERAL_FROM = 4  # of AddPartitionsToTxn
IDS_FROM = 6  # of TxnOffsetCommit
MOVING = (14, 15, 16)  # a group's coordinator is unknown or loading


def until_ready(asker: Asker, key: int, version: int, /, **fields: Any) -> Struct:
    """Sends a request whose response is not compared; repeats it while the coordinator is unknown
    or loading."""
    name = fields.get("transactionalId") or fields["v3AndBelowTransactionalId"]
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        asker.call(10, 1, key=name, keyType=1)
        answer = asker.call(key, version, **fields)
        if not is_moving(answer) or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


class Transaction:
    """A transactional id of the scenario, and its producer."""

    def __init__(self, asker: Asker, suffix: str) -> None:
        self.asker = asker
        self.name = f"{asker.topic}-{suffix}"
        self.group = f"{self.name}-group"
        told = until_ready(asker, INIT, 1, transactionalId=self.name, transactionTimeoutMs=60_000)
        assert told.errorCode == 0, told
        self.producer_id, self.epoch = told.producerId, told.producerEpoch

    def producer(self, epoch: int | None = None) -> dict[str, Any]:
        return {
            "transactionalId": self.name,
            "producerId": self.producer_id,
            "producerEpoch": self.epoch if epoch is None else epoch,
        }

    def add(self) -> "Transaction":
        told = until_ready(
            self.asker, ADD, 1, v3AndBelowTransactionalId=self.name,
            v3AndBelowProducerId=self.producer_id,
            v3AndBelowProducerEpoch=self.epoch,
            v3AndBelowTopics=[{"name": self.asker.topic, "partitions": [0]}],
        )  # fmt: skip
        assert told.resultsByTopicV3AndBelow[0].resultsByPartition[0].partitionErrorCode == 0
        return self

    def add_offsets(self) -> "Transaction":
        """Adds offsets as soon as the group has a coordinator."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while self.asker.call(10, 0, key=self.group).errorCode and time.monotonic() < deadline:
            time.sleep(0.1)
        while self.asker.call(15, 0, groups=[self.group]).groups[0].errorCode in MOVING:
            time.sleep(0.1)
        told = until_ready(self.asker, ADD_OFFSETS, 1, groupId=self.group, **self.producer())
        assert told.errorCode == 0, told
        return self


def add_partitions_to_txn(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    made = Transaction(asker, "a")

    def ask(case: str, topic: str = asker.topic, epoch: int | None = None, name: str = "") -> None:
        topics = [{"name": topic, "partitions": [0]}]
        who = made.producer(epoch) | ({"transactionalId": name} if name else {})
        if asker.version >= SEVERAL_FROM:
            asker.ask(case, transactions=[{**who, "verifyOnly": False, "topics": topics}])
            return
        asker.ask(
            case, v3AndBelowTransactionalId=who["transactionalId"],
            v3AndBelowProducerId=who["producerId"], v3AndBelowProducerEpoch=who["producerEpoch"],
            v3AndBelowTopics=topics,
        )  # fmt: skip

    ask("a partition")
    ask("the same once more")
    ask("an unknown topic", topic=NO_TOPIC)
    ask("an old epoch", epoch=-1)
    ask("an epoch of the future", epoch=9)
    ask("an unknown id", name=f"{asker.topic}-nobody")


def add_offsets_to_txn(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    made = Transaction(asker, "a").add_offsets()  # creates __consumer_offsets
    asker.ask("a group", groupId=made.group, **made.producer())
    asker.ask("an epoch of the future", groupId=made.group, **made.producer(9))
    unknown = made.producer() | {"transactionalId": f"{asker.topic}-nobody"}
    asker.ask("an unknown id", groupId=made.group, **unknown)


def end_txn(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    empty = Transaction(asker, "empty")
    asker.ask("a commit of nothing", committed=True, **empty.producer())
    for commit in (True, False):
        made = Transaction(asker, f"{commit}").add()
        asker.ask(f"an epoch of the future, {commit}", committed=commit, **made.producer(9))
        asker.ask(f"an end, {commit}", committed=commit, **made.producer())
    unknown = made.producer() | {"transactionalId": f"{asker.topic}-nobody"}
    asker.ask("an unknown id", committed=True, **unknown)


def write_txn_markers(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    made = Transaction(asker, "a").add()

    def ask(case: str, topic: str, epoch: int = 0) -> None:
        marker = {
            "producerId": made.producer_id, "producerEpoch": epoch, "transactionResult": False,
            "topics": [{"name": topic, "partitionIndexes": [0]}], "coordinatorEpoch": 0,
        }  # fmt: skip
        asker.ask(case, markers=[marker])

    ask("a marker", asker.topic, 3)
    ask("an unknown topic", NO_TOPIC)
    ask("an old epoch", asker.topic, 2)
    asker.ask("no markers", markers=[])


def txn_offset_commit(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    made = Transaction(asker, "a").add_offsets()
    known_id = asker.topic_id(asker.topic)

    def topic(known: bool) -> dict[str, Any]:
        row = {"partitionIndex": 0, "committedOffset": 7, "committedMetadata": "note"}
        found = {"name": asker.topic if known else NO_TOPIC, "partitions": [row]}
        if asker.version >= IDS_FROM:
            found["topicId"] = known_id if known else NO_TOPIC_ID
        return found

    def ask(case: str, known: bool = True, epoch: int | None = None, **more: Any) -> None:
        fields = {"groupId": made.group, "topics": [topic(known)], **more}
        asker.ask(case, **fields, **made.producer(epoch))

    ask("an offset")
    ask("an unknown topic", known=False)
    ask("an epoch of the future", epoch=9)
    if asker.version >= 3:
        nobody = {"generationIdOrMemberEpoch": 3, "memberId": "nobody"}
        ask("a generation of nobody", **nobody)
        ask("it, and an unknown topic", topics=[topic(True), topic(False)], **nobody)
    ask("a group without a name", groupId="")
    consumers = Consumers(asker, "consumers").join("one")
    made = Transaction(asker, "b")
    made.group = consumers.name
    made.add_offsets()
    ask("no member, beside consumers")
    if asker.version >= 3:
        mine = {"memberId": "one", "generationIdOrMemberEpoch": consumers.epochs["one"]}
        ask("a consumer", **mine)
        ask("a consumer with a newer epoch", **mine | {"generationIdOrMemberEpoch": 9})
        classic = Group(asker, "classic").join().sync()
        made.group = classic.name
        made.add_offsets()
        mine = {"memberId": classic.member, "generationIdOrMemberEpoch": classic.generation}
        ask("a member of a classic group", **mine)
        ask("an older generation", **mine | {"generationIdOrMemberEpoch": 0})
        ask("a later generation", **mine | {"generationIdOrMemberEpoch": 9})


def describe_transactions(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    made = Transaction(asker, "a")
    asker.ask("begun by nobody", transactionalIds=[f"{asker.topic}-nobody"])
    asker.ask("an empty one", transactionalIds=[made.name])


def list_transactions(asker: Asker) -> None:
    create_topic(asker.address, asker.topic)
    made = Transaction(asker, "a")
    Transaction(asker, "b").add()
    mine = {"producerIdFilters": [made.producer_id]}
    asker.ask("one producer", stateFilters=[], **mine)
    asker.ask("a state that it is not in", stateFilters=["Ongoing"], **mine)
    asker.ask("a state that nobody knows", stateFilters=["Nothing"], **mine)
    asker.ask("a known and an unknown state", stateFilters=["Empty", "Nothing"], **mine)
    if asker.version >= 1:
        asker.ask("open for a day", stateFilters=["Ongoing"], durationFilter=86_400_000)
    if asker.version >= 2:
        asker.ask("by pattern", stateFilters=[], transactionalIdPattern=f"{asker.topic}-[b-z]")
        asker.ask("no pattern", stateFilters=[], transactionalIdPattern="(")


TRANSACTION_SCENARIOS = {
    24: add_partitions_to_txn,
    25: add_offsets_to_txn,
    26: end_txn,
    27: write_txn_markers,
    28: txn_offset_commit,
    65: describe_transactions,
    66: list_transactions,
}
