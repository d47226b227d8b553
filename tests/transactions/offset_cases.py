"""Dialogues about a group's offsets in transactions; see dialogue.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transactions.dialogue import Talk


def offsets_of_a_transaction(t: Talk) -> None:
    t.coordinator(t.group, 0)
    producer = t.begun()
    for version in (0, 2, 3, 4):
        t.note(f"not added {version}", t.commit_offsets(producer, 7, version=version))
    t.note("add", t.add_offsets(producer))
    t.note("commit", t.commit_offsets(producer, 7))
    t.note("pending", t.committed(), t.committed(stable=False))
    t.note("unknown topic", t.commit_offsets(producer, 7, topic="no-such-topic"))
    t.note("zombie", t.commit_offsets((producer[0], producer[1] + 3), 8))
    t.note("another producer", t.commit_offsets((producer[0] + 7777, 0), 8))
    t.note("generation of nobody", t.commit_offsets(
        producer, 8, generationIdOrMemberEpoch=3, memberId="nobody"))  # fmt: skip
    t.note("end", t.end(producer, True), t.state())
    t.note("committed", t.committed(), t.committed(stable=False))
    t.note("add", t.add_offsets(producer), t.commit_offsets(producer, 9))
    t.note("abort", t.end(producer, False), t.state())
    t.note("as before", t.committed())


def pending_offsets_beside_plain_commits(t: Talk) -> None:
    """Of two commits for a partition the later one in the log counts, although the
    transaction of the other ends after it."""
    t.coordinator(t.group, 0)
    producer = t.begun()
    t.note("pending, then plain", t.add_offsets(producer), t.commit_offsets(producer, 5),
           t.commit_plainly(9))  # fmt: skip
    t.note("still pending", t.committed(), t.committed(stable=False))
    t.note("end", t.end(producer, True), t.state(), t.settled())
    t.note("plain, then pending", t.commit_plainly(20), t.add_offsets(producer),
           t.commit_offsets(producer, 15), t.committed(stable=False))  # fmt: skip
    t.note("end", t.end(producer, True), t.state(), t.settled())
    t.note("pending, plain, pending", t.add_offsets(producer), t.commit_offsets(producer, 31),
           t.commit_plainly(30), t.commit_offsets(producer, 29))  # fmt: skip
    t.note("end", t.end(producer, True), t.state(), t.settled())
    t.note("pending, plain, deleted", t.add_offsets(producer), t.commit_offsets(producer, 40),
           t.commit_plainly(41), t.delete_offset())  # fmt: skip
    t.note("end", t.end(producer, True), t.state(), t.settled())
    t.note("pending, plain, aborted", t.add_offsets(producer), t.commit_offsets(producer, 50),
           t.commit_plainly(51), t.end(producer, False), t.state(), t.settled())  # fmt: skip


def pending_offsets_of_two_producers(t: Talk) -> None:
    """The later one in the log counts, whichever transaction ends last."""
    t.coordinator(t.group, 0)
    first = t.begun()
    name, other = t.txn, f"{t.txn}-other"
    error, producer_id, epoch = t.init(name=other)
    second = producer_id, epoch
    t.note("init", error, t.id_name(producer_id), epoch)
    for at, order in enumerate(((first, second), (second, first))):
        offset = 10 * at + 10
        for producer in (first, second):
            t.txn = name if producer == first else other
            t.note("pending", t.add_offsets(producer), t.commit_offsets(producer, offset))
            offset += 1
        for producer in order:
            t.txn = name if producer == first else other
            t.note("end", t.end(producer, True), t.state(), t.committed(stable=False))
        t.note("settled", t.settled())


def offsets_of_the_second_version(t: Talk) -> None:
    t.coordinator(t.group, 0)
    producer = t.begun(version=5)
    t.note("commit", t.commit_offsets(producer, 7, version=5))
    t.note("pending", t.committed())
    error, producer_id, epoch = t.end(producer, True, version=5)
    t.note("end", error, t.id_name(producer_id), epoch)
    t.note("state", t.state())
    t.note("committed", t.committed())
    t.note("zombie", t.commit_offsets(producer, 8, version=5))


CASES = (
    offsets_of_a_transaction,
    pending_offsets_beside_plain_commits,
    pending_offsets_of_two_producers,
    offsets_of_the_second_version,
)
