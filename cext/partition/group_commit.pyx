"""Group commit: flush threads that make appended records durable, many appends with one flush.

A Produce request with acks=all, a Fetch request that waits for unflushed records, and Python
threads that wait request the flush of a log. A flush thread takes the log from the queue, calls
log_flush and calls the owner's `done`, which moves the high watermark and wakes the waiting
requests. The threads are Python threads that hold the GIL only to start one more: a directory
begins with one thread, and a thread that finds several items in the queue while no thread is idle
starts the next, up to thread_count.

Durability: an item's `done` is called with 0 only after an fdatasync that began after the last
request that it covers. After an error the log stays offline; later requests for it fail.
Order of locks: the queue's lock is taken last, and a thread that holds it takes no other lock.
Next on the data path: cext/log/log.pyx below, cext/partition/partitions.pyx above.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from barnabas.cext.memory.threads import NamedThread, NoThread
from barnabas.cext.log.log cimport log_flush
from barnabas.cext.memory.condition cimport (
    condition_init, monotonic_now_ns, pthread_cond_broadcast, pthread_cond_destroy,
    pthread_cond_signal, pthread_cond_wait,
)
from barnabas.cext.memory.epoch cimport Epochs, epoch_enter, epoch_leave
from barnabas.cext.memory.histogram cimport Histogram, histogram_add, histogram_sum
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)


cdef void commit_item_init(
    CommitItem* item, Log* log, void* owner, void (*done)(CommitItem*, int) noexcept nogil,
) noexcept nogil:
    item.next = NULL
    item.log = log
    item.owner = owner
    item.done = done
    item.state = COMMIT_IDLE


cdef void _push(CommitQueue* queue, CommitItem* item) noexcept nogil:
    item.state = COMMIT_QUEUED
    item.next = NULL
    if queue.tail != NULL:
        queue.tail.next = item
    else:
        queue.head = item
    queue.tail = item
    queue.depth += 1
    pthread_cond_signal(&queue.work)


cdef void commit_ask(CommitQueue* queue, CommitItem* item) noexcept nogil:
    pthread_mutex_lock(&queue.lock)
    queue.asked += 1
    if not queue.closed and item.log != NULL:
        if item.state == COMMIT_IDLE:
            _push(queue, item)
        elif item.state == COMMIT_WORKING:
            item.state = COMMIT_AGAIN
    pthread_mutex_unlock(&queue.lock)


cdef void commit_forget(CommitQueue* queue, CommitItem* item) noexcept nogil:
    cdef CommitItem* at
    cdef CommitItem* before = NULL
    pthread_mutex_lock(&queue.lock)
    item.log = NULL                         # later requests do nothing
    if item.state == COMMIT_AGAIN:
        item.state = COMMIT_WORKING
    if item.state == COMMIT_QUEUED:
        at = queue.head
        while at != item:
            before = at
            at = at.next
        if before != NULL:
            before.next = item.next
        else:
            queue.head = item.next
        if queue.tail == item:
            queue.tail = before
        queue.depth -= 1
        item.state = COMMIT_IDLE
    queue.forgetting += 1
    while item.state != COMMIT_IDLE:
        pthread_cond_wait(&queue.idle, &queue.lock)
    queue.forgetting -= 1
    pthread_mutex_unlock(&queue.lock)


cdef void _flush_next(CommitQueue* queue) noexcept nogil:
    """Flushes the first item of the queue. The caller holds the lock, which is free during the
    flush."""
    cdef CommitItem* item = queue.head
    cdef Log* log = item.log
    cdef int64_t began_ns, took_ns
    cdef int error, slot
    queue.head = item.next
    if queue.head == NULL:
        queue.tail = NULL
    queue.depth -= 1
    item.state = COMMIT_WORKING
    pthread_mutex_unlock(&queue.lock)
    began_ns = monotonic_now_ns()
    slot = epoch_enter(queue.epochs)
    error = log_flush(log)
    item.done(item, error)
    epoch_leave(queue.epochs, slot)
    pthread_mutex_lock(&queue.lock)
    queue.flushes += 1
    queue.failures += error != 0
    took_ns = monotonic_now_ns() - began_ns
    queue.flush_ns += took_ns
    histogram_add(&queue.times, took_ns)
    if item.state == COMMIT_AGAIN and error == 0:
        _push(queue, item)
    else:
        item.state = COMMIT_IDLE
        if queue.forgetting:
            pthread_cond_broadcast(&queue.idle)


cdef bint _flush_until_closed(CommitQueue* queue, int32_t threads_max) noexcept nogil:
    """Flushes items of the queue. Returns True when the queue needs one more thread, which it has
    counted: the caller starts it and calls again. Returns False when the queue is closed and
    empty."""
    pthread_mutex_lock(&queue.lock)
    while True:
        while (queue.head == NULL or queue.held) and not queue.closed:
            queue.idle_count += 1
            pthread_cond_wait(&queue.work, &queue.lock)
            queue.idle_count -= 1
        if queue.head == NULL:
            break                           # closed, and all earlier requests are done
        if queue.depth > 1 and queue.idle_count == 0 and queue.started_count < threads_max:
            queue.started_count += 1
            pthread_mutex_unlock(&queue.lock)
            return True
        _flush_next(queue)
    pthread_mutex_unlock(&queue.lock)
    return False


cdef class GroupCommit:
    """The flush threads of one log directory; PartitionTable.add_directory makes it.

    `epochs`: those of the directory's logs; `name`: for the names of the threads; `thread_count`:
    the most threads, 1 to 64. Raises ValueError for another number, and MemoryError."""

    def __cinit__(self):
        self.queue = <CommitQueue*>calloc(1, sizeof(CommitQueue))
        if self.queue == NULL:
            raise MemoryError
        pthread_mutex_init(&self.queue.lock, NULL)
        condition_init(&self.queue.work)
        condition_init(&self.queue.idle)

    def __init__(self, Epochs epochs not None, str name not None, int thread_count):
        if not 1 <= thread_count <= 64:
            raise ValueError(f"thread_count is {thread_count}; it must be 1 to 64")
        self.epochs = epochs
        self.queue.epochs = epochs.domain
        self.name = name
        self.thread_count = thread_count
        self.threads = []

    def start(self):
        """Starts the first thread. Raises RuntimeError when it was called before, NoThread when
        the system refuses to start a thread."""
        if self.threads:
            raise RuntimeError("the flush threads were started already")
        self.queue.started_count = 1
        self.start_one()
        if not self.threads:
            raise NoThread(f"flush-{self.name}-0")

    cdef int start_one(self) except -1:
        """Starts the next thread. When the system refuses, the running threads do the work."""
        name = f"flush-{self.name}-{self.named_count}"
        self.named_count += 1
        thread = NamedThread(target=self._run, name=name, daemon=True)
        try:
            thread.start()
        except NoThread:
            return 0
        self.threads.append(thread)         # stop() joins it, too: the calling thread still runs
        return 0

    def _run(self):
        cdef bint needs_thread = True
        while needs_thread:
            with nogil:
                needs_thread = _flush_until_closed(self.queue, self.thread_count)
            if needs_thread:
                self.start_one()

    def flush_next(self):
        """Flushes the next log of the queue on this thread, where no flush thread runs
        (tests/simulation). Returns False when none waits."""
        cdef bint waits
        with nogil:
            pthread_mutex_lock(&self.queue.lock)
            waits = self.queue.head != NULL
            if waits:
                _flush_next(self.queue)
            pthread_mutex_unlock(&self.queue.lock)
        return bool(waits)

    def stop(self):
        """Waits until the requested flushes are done and the threads have ended. Later requests do
        nothing."""
        with nogil:
            pthread_mutex_lock(&self.queue.lock)
            self.queue.closed = True
            pthread_cond_broadcast(&self.queue.work)
            pthread_mutex_unlock(&self.queue.lock)
        for thread in self.threads:
            thread.join()
        self.threads.clear()

    @property
    def held(self) -> bool:
        """Whether no flush begins: a test holds them back. stop() ends that."""
        return self.queue.held

    @held.setter
    def held(self, bint held):
        with nogil:
            pthread_mutex_lock(&self.queue.lock)
            self.queue.held = held
            pthread_cond_broadcast(&self.queue.work)
            pthread_mutex_unlock(&self.queue.lock)

    def counters(self):
        """Returns the numbers of requests (asked), flushes and failures, the nanoseconds of all
        flushes (flush_ns), and the current depth of the queue."""
        cdef CommitQueue seen
        with nogil:
            pthread_mutex_lock(&self.queue.lock)
            seen = self.queue[0]
            pthread_mutex_unlock(&self.queue.lock)
        return {
            "asked": seen.asked, "flushes": seen.flushes, "failures": seen.failures,
            "flush_ns": seen.flush_ns, "depth": seen.depth,
        }

    def flush_times(self):
        """Returns (sum of the flush times in ns, {bucket of cext.memory.histogram: flushes})."""
        cdef const Histogram* times = &self.queue.times
        return histogram_sum(&times, 1)

    def __dealloc__(self):
        if self.queue != NULL:
            # Each running thread holds a reference to this object, so no thread runs here.
            pthread_cond_destroy(&self.queue.work)
            pthread_cond_destroy(&self.queue.idle)
            pthread_mutex_destroy(&self.queue.lock)
            free(self.queue)
