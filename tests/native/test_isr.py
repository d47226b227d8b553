"""Which followers should leave the ISR of a partition, and which may join it."""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native.led import EPOCH, RECORDS, Led, answered
from oracle.produce import batch
from oracle.replicas import Replicas

LAG_MS = 30_000


@pytest.fixture
def led(make_broker: Callable[..., Any]) -> Iterator[Led]:
    made = Led(make_broker("os"))
    yield made
    made.fetches.stop()


def later(led: Led, ms: int) -> None:
    led.broker.system.move_monotonic(ms)


def test_a_follower_that_does_not_fetch_lags(led: Led) -> None:
    led.lead()
    led.append()
    later(led, LAG_MS - 1000)
    led.fetch(2, RECORDS)
    assert led.table.lagging() == []
    later(led, 1001)
    assert led.table.lagging() == [("orders", 0, [3])]
    led.table.replica_lag_ms_max = 500
    assert led.table.lagging() == [("orders", 0, [3])]  # 2 has all records
    led.append()
    assert led.table.lagging() == [("orders", 0, [2, 3])]
    assert led.table.set_isr("orders", 0, (1,), is_pending=False)
    assert led.table.lagging() == []


def test_a_slow_follower_lags_although_it_fetches(led: Led) -> None:
    led.lead(isr=(1, 2))
    led.append(4)
    led.fetch(2, 0)
    later(led, LAG_MS + 1)
    led.append()
    led.fetch(2, RECORDS)
    assert led.table.lagging() == [("orders", 0, [2])]


def test_a_follower_one_fetch_behind_is_caught_up_as_of_that_fetch(led: Led) -> None:
    led.lead(isr=(1, 2))
    for end in range(RECORDS, 6 * RECORDS, RECORDS):
        led.append()
        later(led, 1000)
        led.fetch(2, end - RECORDS)  # the leader's end at its previous fetch
    assert 1000 <= led.states()[2].caught_up_ms_ago < 2000
    later(led, LAG_MS - 1500)
    assert led.table.lagging() == []


def test_a_follower_outside_may_join_when_it_has_all_below_the_high_watermark(led: Led) -> None:
    led.lead(isr=(1,))
    led.append(2)
    assert led.table.caught_up() == []
    led.fetch(2, RECORDS)
    assert led.table.caught_up() == []
    led.fetch(2, 2 * RECORDS)
    assert led.table.caught_up() == [("orders", 0, [2])]
    assert led.table.caught_up() == []  # nothing new was fetched
    led.fetch(2, 2 * RECORDS)
    assert led.table.caught_up() == [("orders", 0, [2])]
    assert led.table.set_isr("orders", 0, (1, 2), is_pending=True)
    led.fetch(2, 2 * RECORDS)
    # Nobody knows yet whether the tree has the ISR: the connection to ZooKeeper may have broken.
    assert led.table.caught_up() == [("orders", 0, [2])]
    assert led.table.set_isr("orders", 0, (1, 2), is_pending=False)
    led.fetch(2, 2 * RECORDS)
    assert led.table.caught_up() == []


def test_a_follower_may_not_join_before_the_start_of_the_leader_epoch(led: Led) -> None:
    led.lead()
    led.append(2)
    led.table.set_leader(
        "orders", 0, leader_id=1, leader_epoch=EPOCH + 1, replicas=(1, 2, 3), isr=(1, 3)
    )
    assert led.high_watermark == 0
    led.fetch(2, RECORDS, epoch=EPOCH + 1)
    assert led.table.caught_up() == []
    assert not led.table.set_isr("orders", 0, (1, 2, 3), is_pending=True)
    led.fetch(2, 2 * RECORDS, epoch=EPOCH + 1)
    assert led.table.caught_up() == [("orders", 0, [2])]


def test_the_high_watermark_waits_for_a_joining_follower(led: Led) -> None:
    led.lead(isr=(1,))
    led.table.set_policy("orders", min_insync_replicas=2)
    led.table.replica_lag_ms_max = 0
    led.append()
    led.fetch(2, RECORDS)
    assert led.table.set_isr("orders", 0, (1, 2), is_pending=True)
    assert led.produce(acks=-1).errorCode == 19  # it does not count yet
    led.table.set_policy("orders", min_insync_replicas=1)
    later(led, 10)
    led.append()
    assert led.high_watermark == RECORDS
    assert led.table.set_isr("orders", 0, (1,), is_pending=False)  # the change was refused
    assert led.high_watermark == 2 * RECORDS


def test_a_follower_that_fell_behind_cannot_join(led: Led) -> None:
    led.lead(isr=(1,))
    led.table.replica_lag_ms_max = 0
    led.append()
    led.fetch(2, RECORDS)
    later(led, 10)
    led.append()
    assert led.high_watermark == 2 * RECORDS
    assert not led.table.set_isr("orders", 0, (1, 2), is_pending=True)
    led.append()
    assert led.high_watermark == 3 * RECORDS


def test_the_high_watermark_waits_for_a_follower_that_is_caught_up(led: Led) -> None:
    """A follower of a busy partition is always one fetch behind, and joins nevertheless."""
    led.lead(isr=(1,))
    led.append()
    led.fetch(2, 0)
    led.append()
    assert led.high_watermark == 2 * RECORDS
    led.fetch(2, RECORDS)  # the leader's end at its previous fetch
    led.append()
    assert led.high_watermark == 2 * RECORDS  # does not move on
    led.fetch(2, 2 * RECORDS)
    assert led.table.caught_up() == [("orders", 0, [2])]
    later(led, LAG_MS + 1000)
    led.append()
    assert led.high_watermark == 4 * RECORDS


def test_only_the_present_run_of_a_live_broker_may_join(led: Led) -> None:
    led.lead(isr=(1,))
    led.append()
    led.table.set_live_brokers({1: 40, 3: 41})
    led.fetch(2, RECORDS, broker_epoch=17)
    assert led.table.caught_up() == []  # not live
    led.table.set_live_brokers({1: 40, 2: 50, 3: 41})
    assert led.fetch(2, RECORDS, broker_epoch=49).errorCode == 6
    assert led.table.caught_up() == []
    assert led.fetch(2, RECORDS, broker_epoch=50).errorCode == 0
    assert led.table.caught_up() == [("orders", 0, [2])]
    led.table.set_live_brokers({1: 40, 2: 60, 3: 41})  # started again since its fetch
    assert not led.table.set_isr("orders", 0, (1, 2), is_pending=True)
    led.fetch(3, RECORDS)  # a request without the epoch
    assert led.table.caught_up() == [("orders", 0, [3])]
    assert led.table.set_isr("orders", 0, (1, 3), is_pending=True)


def test_a_partition_that_is_alone_or_led_elsewhere_has_no_isr_to_set(led: Led) -> None:
    led.lead(leader_id=2)
    led.broker.partition("orders", 1)
    for index in (0, 1):
        assert led.table.replica_states("orders", index) == []
        assert not led.table.set_isr("orders", index, (1, 2), is_pending=False)
    assert led.table.lagging() == led.table.caught_up() == []
    with pytest.raises(KeyError):
        led.table.set_isr("orders", 2, (1,), is_pending=False)


FOLLOWERS = st.sampled_from([2, 3, 4])
ISR = st.sets(FOLLOWERS).map(lambda ids: (1, *sorted(ids)))
STEP = st.one_of(
    st.tuples(st.just("append")),
    st.tuples(st.just("fetch"), FOLLOWERS, st.integers(0, 3)),  # so many batches behind
    st.tuples(st.just("isr"), ISR, st.booleans()),
    st.tuples(st.just("lead"), ISR, st.booleans()),
    # Sums of these stay 1.5 s away from LAG_MS, however busy the machine.
    st.tuples(st.just("later"), st.sampled_from([7_000, 19_000, 45_000])),
    st.tuples(st.just("joiners")),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEP, max_size=40), isr=ISR, isr_size_min=st.integers(1, 3))
def test_against_the_rules_in_plain_python(
    led: Led, steps: list[tuple[Any, ...]], isr: tuple[int, ...], isr_size_min: int
) -> None:
    epoch = EPOCH
    model = Replicas(1, LAG_MS, isr_size_min, now_ms=1)
    model.lead((1, 2, 3, 4), isr, epoch)
    led.forget()
    handle = led.lead(replicas=(1, 2, 3, 4), isr=isr)
    led.table.set_policy("orders", min_insync_replicas=isr_size_min)
    for what, *arguments in steps:
        if what == "append":
            led.append()
            model.append(RECORDS)
        elif what == "fetch":
            broker, behind = arguments
            offset = max(model.end - behind * RECORDS, 0)
            assert led.fetch(broker, offset, epoch=epoch).errorCode == 0
            model.fetch(broker, offset)
        elif what == "isr":
            assert led.table.set_isr("orders", 0, *arguments) == model.set_isr(*arguments)
        elif what == "lead":
            members, is_new = arguments
            epoch += is_new
            led.table.set_leader(
                "orders", 0, leader_id=1, leader_epoch=epoch, replicas=(1, 2, 3, 4), isr=members
            )
            model.lead((1, 2, 3, 4), members, epoch)
        elif what == "later":
            later(led, arguments[0])
            model.now_ms += arguments[0]
        else:
            joiners = model.caught_up()
            assert led.table.caught_up() == ([("orders", 0, joiners)] if joiners else [])
        assert handle.high_watermark == model.high_watermark
        lagging = model.lagging()
        assert led.table.lagging() == ([("orders", 0, lagging)] if lagging else [])
        assert {n: s.log_end_offset for n, s in led.states().items()} == {
            n: f.end for n, f in model.followers.items()
        }


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_appends_fetches_and_isr_changes_at_once(
    make_broker: Callable[..., Any], durability: str
) -> None:
    """No consumer reads a record that the ISR lacks, and each acknowledged one is in it."""
    led = Led(make_broker(durability))
    handle = led.lead()
    ends = {2: 0, 3: 0}  # what the followers have, written before they report it
    stop = threading.Event()
    wrong: list[str] = []

    def follow(replica: int) -> None:
        while not stop.is_set():
            part = led.fetch(replica, ends[replica], max_wait_ms=0)
            if part.errorCode:
                wrong.append(f"{replica} got {part.errorCode}")
                return
            ends[replica] += len(part.records) // size * RECORDS
            if part.highWatermark > led.log.end_offset:
                wrong.append("the high watermark is above the log's end")

    def change() -> None:
        source = random.Random(7)
        while not stop.is_set():
            # 3 stays, so that its log end is a bound at every time; 2 comes and goes.
            led.table.set_isr("orders", 0, (1, 3), is_pending=False)
            for _, _, ids in led.table.caught_up():
                if led.table.set_isr("orders", 0, (1, 3, *ids), is_pending=True):
                    before = handle.high_watermark
                    if ends[2] < before:
                        wrong.append("2 joined below the high watermark")
                    led.table.set_isr(
                        "orders", 0, (1, 3, *ids) if source.random() < 0.7 else (1, 3),
                        is_pending=False,
                    )  # fmt: skip
            if source.random() < 0.2:
                led.table.set_leader(
                    "orders", 0, leader_id=1, leader_epoch=EPOCH, replicas=(1, 2, 3), isr=(1, 3)
                )

    def watch() -> None:
        seen = 0
        while not stop.is_set():
            now = handle.high_watermark
            bound = ends[3]
            if now < seen:
                wrong.append("it decreased")
            if now > bound:
                wrong.append(f"it is {now}, and follower 3 has {bound}")
            seen = now

    size = len(batch(RECORDS))
    threads = [
        threading.Thread(target=work, args=arguments)
        for work, *arguments in [(follow, 2), (follow, 3), (change,), (watch,)]
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(150):
            led.produce(acks=1)
            waiting = led.produce(acks=-1, timeout_ms=20_000)
            answer = waiting
            while not hasattr(answer, "errorCode"):
                answer = answered(waiting.resume())
            assert answer.errorCode == 0
            assert ends[3] > answer.baseOffset
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    led.fetches.stop()
    assert not wrong, wrong[:3]
