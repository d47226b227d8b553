"""Threads of a queue: each job runs once, no job ends a thread, and the threads end when the queue
is closed."""

import queue
import threading
import weakref

from barnabas.server.job_threads import JobThreads

SOON_S = 10


class Waiting:
    """Returns the jobs that were put; raises those that are exceptions. When closed, returns None
    to all."""

    def __init__(self):
        self.jobs = queue.SimpleQueue()

    def put(self, *jobs):
        for job in jobs:
            self.jobs.put(job)

    def next(self):
        job = self.jobs.get()
        if job is None:
            self.jobs.put(None)  # for the next thread
        elif isinstance(job, Exception):
            raise job
        return job

    def close(self):
        self.jobs.put(None)


def test_what_raises_ends_no_thread(caplog):
    waiting, done, all_done = Waiting(), [], threading.Semaphore(0)

    def carry_out(job):
        done.append(job)
        all_done.release()
        if job == "bad":
            raise ValueError("a bad job")

    threads = JobThreads("testing", waiting, carry_out)
    threads.start()
    waiting.put("one", "bad", MemoryError("no room for the next"), "two")
    for _ in range(3):
        assert all_done.acquire(timeout=SOON_S)
    threads.stop()
    assert done == ["one", "bad", "two"]
    told = [record.exc_text or str(record.exc_info[1]) for record in caplog.records]
    assert len(told) == 2 and "a bad job" in told[0] and "no room for the next" in told[1]


def test_all_threads_work_and_end():
    waiting, meet = Waiting(), threading.Barrier(3)
    threads = JobThreads("meeting", waiting, lambda job: meet.wait(SOON_S), 3)
    threads.start()
    waiting.put(*"abc")
    names = {t.name for t in threading.enumerate() if t.name.startswith("meeting")}
    assert names == {"meeting-0", "meeting-1", "meeting-2"}
    threads.stop()
    assert not meet.broken
    assert not any(t.name.startswith("meeting") for t in threading.enumerate())


def test_stopping_what_was_never_started_closes_the_queue():
    waiting = Waiting()
    JobThreads("early", waiting, print).stop()
    assert waiting.next() is None


def test_a_job_is_let_go_when_it_is_done():
    """Its connection waits until the job is freed."""

    class Job:
        pass

    waiting, done = Waiting(), threading.Event()
    threads = JobThreads("forgetting", waiting, lambda job: None)
    threads.start()
    job = Job()
    gone = weakref.finalize(job, done.set)
    waiting.put(job)
    del job
    assert done.wait(SOON_S) and not gone.alive
    threads.stop()
