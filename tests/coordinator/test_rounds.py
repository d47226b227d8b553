"""Rounds: none is lost, no two run at once, and a granted thread runs those that do not wait."""

import random
import threading
import time

import pytest

from barnabas.coordinator.rounds import HERE_MAX, Rounds, rounds_on_exit

PATIENCE_S = 30


class Work:
    """Pending work that rounds carry out; records the thread of each round."""

    def __init__(self, may_wait=False):
        self.left, self.done, self.threads = [], [], []
        self.busy = threading.Lock()
        self.changed = threading.Condition()
        self.next_s = None
        self.rounds = Rounds("some-work", self.round, may_wait=lambda: may_wait)

    def leave(self, item):
        self.left.append(item)
        self.rounds.ask()

    def round(self):
        assert self.busy.acquire(blocking=False), "two rounds at once"
        try:
            taken, self.left = self.left, []
            for item in taken:
                if callable(item):
                    item()
            with self.changed:
                self.done += taken
                self.threads.append(threading.current_thread())
                self.changed.notify_all()
            return self.next_s
        finally:
            self.busy.release()

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.done) >= count, PATIENCE_S)


def test_without_a_granted_thread_rounds_have_one_of_their_own():
    work = Work()
    work.leave(1)
    work.wait_for(1)
    assert [thread.name for thread in work.threads] == ["some-work"]
    work.rounds.stop()


def test_a_granted_thread_runs_its_rounds_at_the_end():
    work = Work()
    with rounds_on_exit():
        work.leave(1)
        work.leave(2)
        assert work.done == []
    assert work.done == [1, 2]
    assert work.threads == [threading.current_thread()]
    work.rounds.stop()


def test_what_a_round_asks_for_follows_it():
    first, second = Work(), Work()
    with rounds_on_exit():
        first.leave(lambda: second.leave(lambda: first.leave("last")))
    assert first.done[-1] == "last"
    assert {*first.threads, *second.threads} == {threading.current_thread()}
    first.rounds.stop()
    second.rounds.stop()


def test_endless_requests_are_left_to_the_other_thread():
    work = Work()
    count = iter(range(4 * HERE_MAX))

    def again():
        if next(count, None) is not None:
            work.leave(again)

    with rounds_on_exit():
        work.leave(again)
        here = len(work.threads)
    assert here <= len(work.threads) <= 5 * HERE_MAX
    work.wait_for(4 * HERE_MAX + 1)
    names = [thread.name for thread in work.threads]
    assert names.count("some-work") >= 2 * HERE_MAX
    work.rounds.stop()


def test_rounds_that_may_wait_do_not_hold_up_a_granted_thread():
    work = Work(may_wait=True)
    go = threading.Event()
    with rounds_on_exit():
        work.leave(lambda: go.wait(PATIENCE_S))
    assert work.done == []
    go.set()
    work.wait_for(1)
    assert [thread.name for thread in work.threads] == ["some-work"]
    work.rounds.stop()


def test_a_round_that_is_running_goes_round_once_more_for_others():
    work = Work()
    inside, go = threading.Event(), threading.Event()

    def one():
        with rounds_on_exit():
            work.leave(lambda: (inside.set(), go.wait(PATIENCE_S)))

    thread = threading.Thread(target=one)
    thread.start()
    assert inside.wait(PATIENCE_S)
    with rounds_on_exit():
        work.leave("meanwhile")
    assert work.left == ["meanwhile"]
    go.set()
    thread.join()
    assert work.done[-1] == "meanwhile" and work.threads == [thread, thread]
    work.rounds.stop()


def test_a_round_that_is_due_again_comes_by_itself():
    work = Work()
    work.next_s = 0.01
    with rounds_on_exit():
        work.leave(1)
    deadline = time.monotonic() + PATIENCE_S
    while len(work.threads) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [thread.name for thread in work.threads[1:3]] == ["some-work"] * 2
    work.rounds.stop()
    seen = len(work.threads)
    time.sleep(0.05)
    assert len(work.threads) == seen


def test_a_failure_is_logged_and_does_not_end_the_rounds(caplog):
    work = Work()
    with rounds_on_exit():
        work.leave(lambda: 1 / 0)
    assert "a round of some-work failed" in caplog.text
    with rounds_on_exit():
        work.leave(2)
    assert work.done == [2]
    work.rounds.stop()


def test_after_stop_nothing_runs():
    work = Work()
    work.leave(1)
    work.wait_for(1)
    work.rounds.stop()
    with rounds_on_exit():
        work.leave(2)
    work.leave(3)
    assert work.done == [1] and not any(t.name == "some-work" for t in threading.enumerate())


@pytest.mark.parametrize("seed", range(3))
def test_no_commit_is_lost_for_any_reader(seed):
    """Granted and other threads in random order, rounds that request more rounds, short and long
    rounds."""
    work, rng = Work(), random.Random(seed)
    each, threads = 300, 4
    plans = [[rng.random() for _ in range(each)] for _ in range(threads)]

    def run(name, plan):
        for at, chance in enumerate(plan):
            if chance < 0.6:
                with rounds_on_exit():
                    work.leave((name, at))
            else:
                work.leave((name, at))
            if chance > 0.95:
                time.sleep(0.0005)

    started = [threading.Thread(target=run, args=(i, plan)) for i, plan in enumerate(plans)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    work.wait_for(each * threads)
    assert sorted(work.done) == [(i, at) for i in range(threads) for at in range(each)]
    for name in range(threads):
        assert [at for who, at in work.done if who == name] == list(range(each))
    work.rounds.stop()
