"""Fetch sessions compared with the model in tests/oracle/sessions.py, and their limits."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.sessions import EPOCH_LAST, EVICTION_MS, Place, Sessions

from barnabas.cext.fetch.sessions import FetchSessions

NAMES = [b"a", b"b" * 249, b"c"]
IDS = [bytes([n]) * 16 for n in (1, 2, 3)]
PLACES = st.tuples(st.integers(0, 2), st.integers(0, 3))
QUIET = (0, 5, 0, 0, False)
ANSWER = st.one_of(
    st.just(QUIET),
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 6]),
        st.integers(0, 3),
        st.integers(0, 1),
        st.sampled_from([0, 0, 100]),
        st.just(False),
    ),
    st.just((3, -1, -1, 0, True)),
)
REQUEST = st.fixed_dictionaries(
    {
        "version": st.sampled_from([5, 7, 12, 13, 16]),
        "session": st.integers(0, 5),  # a session id that was seen, or none
        "epoch": st.sampled_from(["right", "right", "right", "right", 0, 0, -1, 2, -7]),
        "keep_version": st.booleans(),
        "wanted": st.lists(st.tuples(PLACES, st.integers(0, 9)), max_size=6),
        "forgotten": st.lists(PLACES, max_size=4),
        "answers": st.dictionaries(PLACES, ANSWER),
        "pass_ms": st.sampled_from([0, 1, 1000, EVICTION_MS, EVICTION_MS + 1]),
        "follower": st.sampled_from([False, False, True]),
        "wrap": st.booleans(),
    }
)


def place_of(version: int, place: tuple[int, int]) -> Place:
    return (IDS if version >= 13 else NAMES)[place[0]], place[1]


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 4), st.lists(REQUEST, max_size=25))
def test_sessions_are_as_the_model(slots: int, requests: list[dict]) -> None:
    model, cache = Sessions(slots), FetchSessions(slots, seed=7)
    seen: list[tuple[int, int]] = []  # session id, version
    now_ms = 1
    for r in requests:
        now_ms += r["pass_ms"]
        session_id, version = 0, r["version"]
        if r["session"] and seen:
            session_id, made_with = seen[-min(r["session"], len(seen))]
            version = made_with if r["keep_version"] else version
        epoch = r["epoch"]
        if epoch == "right":
            known = model.sessions.get(session_id)
            if known is not None and r["wrap"]:
                known.epoch = EPOCH_LAST
                cache.set_epoch(session_id, EPOCH_LAST)
            epoch = known.epoch if known else 1
        answers = {(topic, index): QUIET for topic in NAMES + IDS for index in range(4)} | {
            place_of(version, place): answer for place, answer in r["answers"].items()
        }
        wanted = [(*place_of(version, place), offset) for place, offset in r["wanted"]]
        forgotten = [place_of(version, place) for place in r["forgotten"]]
        got = cache.exchange(
            version, session_id, epoch, wanted, forgotten, answers, now_ms, r["follower"]
        )
        fresh = got[1] if got[1] not in (0, session_id) else 10**10
        assert got == model.exchange(
            version, session_id, epoch, wanted, forgotten, answers, now_ms, r["follower"], fresh
        )
        if got[1] not in (0, session_id):
            assert 0 < got[1] < 2**31
            seen.append((got[1], version))
        assert cache.counters["sessions"] == len(model.sessions)
    cache.slots_max = 0
    assert cache.counters["sessions"] == cache.counters["memory_bytes"] == 0


def exchange(cache: FetchSessions, session_id: int, epoch: int, wanted: list, **more: object):
    parts = {(topic, index): QUIET for topic, index, _ in wanted}
    answers = more.pop("answers", parts)
    return cache.exchange(16, session_id, epoch, wanted, [], answers, 1, **more)


def test_session_memory_is_bounded_and_given_back() -> None:
    cache = FetchSessions(10, memory_bytes_max=100_000, seed=1)
    one = [(IDS[0], index, 0) for index in range(200)]
    _, first, _, _ = exchange(cache, 0, 0, one)
    per_partition = cache.counters["memory_bytes"] / 200
    assert first and per_partition < 120
    _, second, _, told = exchange(cache, 0, 0, [(IDS[1], index, 0) for index in range(2000)])
    assert second == 0 and len(told) == 2000  # answered, without a session
    assert cache.counters["sessions"] == 1
    many = [(IDS[2], index, 0) for index in range(2000)]
    assert exchange(cache, first, 1, many)[0] == 70  # it cannot grow: closed
    assert cache.counters["memory_bytes"] == cache.counters["sessions"] == 0


def test_session_with_a_name_no_topic_can_have_is_not_made() -> None:
    cache = FetchSessions(10, seed=1)
    long = [(b"x" * 250, 0, 0)]
    error, session_id, _, told = cache.exchange(12, 0, 0, long, [], {(b"x" * 250, 0): QUIET}, 1)
    assert (error, session_id, told) == (0, 0, long)
    assert cache.counters["memory_bytes"] == 0


def test_session_of_many_partitions_is_found_again() -> None:
    cache = FetchSessions(10, seed=1)
    wanted = [(IDS[index % 3], index, index) for index in range(20_000)]
    answers = {(topic, index): QUIET for topic, index, _ in wanted}
    _, session_id, _, _ = exchange(cache, 0, 0, wanted, answers=answers)
    error, _, fetched, told = exchange(cache, session_id, 1, wanted[:3], answers=answers)
    assert (error, fetched, told) == (0, wanted, [])
    bytes_each = cache.counters["memory_bytes"] / 20_000
    assert bytes_each <= 96 + 16


def test_the_epoch_after_the_last_one_is_1() -> None:
    cache = FetchSessions(1, seed=1)
    wanted = [(IDS[0], 0, 0)]
    _, session_id, _, _ = exchange(cache, 0, 0, wanted)
    cache.set_epoch(session_id, EPOCH_LAST)
    for epoch in (EPOCH_LAST, 1, 2):
        assert exchange(cache, session_id, epoch, wanted)[0] == 0


def test_an_incremental_fetch_answers_a_partition_whose_log_start_rises() -> None:
    cache = FetchSessions(1, seed=1)
    wanted = [(IDS[0], 0, 0)]
    _, session_id, _, _ = exchange(cache, 0, 0, wanted)
    answered = []
    for epoch, start in ((1, 0), (2, 1), (3, 1)):
        parts = {(IDS[0], 0): (0, 5, start, 0, False)}
        answered.append(exchange(cache, session_id, epoch, [], answers=parts)[3])
    assert answered == [[], wanted, []]


def test_sessions_evict_none_younger_than_two_minutes() -> None:
    cache = FetchSessions(1, seed=1)
    wanted = [(IDS[0], 0, 0)]
    bigger = [(IDS[0], index, 0) for index in range(5)]
    quiet = {(IDS[0], index): QUIET for index in range(5)}
    _, first, _, _ = cache.exchange(16, 0, 0, wanted, [], quiet, 0)
    assert cache.exchange(16, 0, 0, bigger, [], quiet, EVICTION_MS)[1] == 0
    assert cache.counters["refused"] == 1
    assert cache.exchange(16, first, 1, wanted, [], quiet, EVICTION_MS + 1)[0] == 0
    assert cache.exchange(16, 0, 0, wanted, [], quiet, EVICTION_MS + 2)[1] == 0  # not larger
    assert cache.exchange(16, 0, 0, bigger, [], quiet, EVICTION_MS + 2)[1] != 0
    assert cache.counters["evicted"] == 1
    assert cache.exchange(16, first, 2, [], [], quiet, EVICTION_MS + 3)[0] == 70


@pytest.mark.parametrize("seed", range(3))
def test_sessions_shared_by_threads_stay_whole(seed: int) -> None:
    """Threads use and close each other's sessions; memory and counts must be zero at the end."""
    cache = FetchSessions(6, seed=seed)
    wanted = [(IDS[0], index, 0) for index in range(20)]
    answers = {(IDS[0], index): (0, 1, 0, index % 2, False) for index in range(20)}
    ids: list[int] = []
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            for turn in range(300):
                _, made, _, _ = cache.exchange(16, 0, 0, wanted, [], answers, turn * EVICTION_MS)
                ids.append(made)
                for epoch in (1, 2):
                    session_id = ids[(turn * 7) % len(ids)]
                    error = cache.exchange(16, session_id, epoch, wanted, [], answers, turn)[0]
                    assert error in (0, 70, 71)
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]
    cache.slots_max = 0
    assert cache.counters["memory_bytes"] == 0
