"""A pool of threads that read old data into the page cache before a network thread sends it.

If a page is not in memory, sendfile waits for the disk, and so does every connection of the network
thread. The Fetch handler therefore checks first whether the beginning of a range is in the page
cache. If it is not, the request waits as a delayed fetch, a thread of this pool reads the range
into a scratch buffer (only the effect on the page cache matters), and then wakes the connection.

The lookup of an offset reads headers of batches, and opens files. It finds only what is in memory
(log_read_cached); otherwise a thread of this pool makes the same lookup, which may wait, and the
network thread repeats its own.

Consumers mostly read a file from its beginning to its end, and the kernel reads ahead for them: a
check of the first PROBE_BYTES separates cached from uncached ranges at the cost of one call. If
that part is missing, a thread reads the whole range in pieces. The kernel can evict a page again
before it is sent; then sendfile waits for the disk. Limit: the queue holds `depth_max` ranges;
ranges beyond it are sent without this read, and a counter counts them.
Next: fetch.pyx.
"""
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from barnabas.cext.log.log_transactions cimport cold_place_read
from barnabas.cext.log.crc_check cimport slice_is_verified, slice_verify
from barnabas.cext.log.segment cimport Segment, segment_fd, segment_release, segment_retain
from barnabas.cext.memory.atomics cimport atomic_add_i32, atomic_load_i32
from barnabas.cext.memory.condition cimport (
    condition_init, pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_signal,
    pthread_cond_wait,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from barnabas.cext.memory.sys cimport System
from barnabas.cext.partition.partitions cimport table_system, table_wake

cdef enum:
    PROBE_BYTES = 262144        # what one turn of a connection sends
    PIECE_BYTES = 262144

cdef ColdReads* cold_reads_new(Table* table, int32_t depth_max) noexcept nogil:
    cdef ColdReads* c = <ColdReads*>calloc(1, sizeof(ColdReads))
    if c == NULL:
        return NULL
    c.table = table
    c.depth_max = depth_max
    c.reading_max = 1
    pthread_mutex_init(&c.lock, NULL)
    condition_init(&c.work)
    return c

cdef void cold_reads_free(ColdReads* c) noexcept nogil:
    cdef ColdDirectory* directory
    if c == NULL:
        return
    while c.directories != NULL:
        directory = c.directories
        c.directories = directory.next
        free(directory)
    pthread_cond_destroy(&c.work)
    pthread_mutex_destroy(&c.lock)
    free(c)

cdef bint slice_is_cold(Table* table, const LogSlice* slice) noexcept nogil:
    cdef System* system = table_system(table)
    cdef int fd = segment_fd(slice.segment, system)
    cdef int64_t size_bytes = slice.size_bytes
    if size_bytes > PROBE_BYTES:
        size_bytes = PROBE_BYTES
    return fd >= 0 and system.is_cached(system, fd, slice.position, size_bytes) == 0

cdef ColdWait* cold_wait_new(int32_t thread_index, uint64_t connection_id) noexcept nogil:
    cdef ColdWait* wait = <ColdWait*>malloc(sizeof(ColdWait))
    if wait != NULL:
        wait.holders = 1
        wait.ranges_left = 1    # the creator's; cold_asked_all releases it
        wait.thread_index = thread_index
        wait.connection_id = connection_id
    return wait

cdef void cold_wait_release(ColdWait* wait) noexcept nogil:
    if wait != NULL and atomic_add_i32(&wait.holders, -1) == 0:
        free(wait)

cdef bint cold_wait_is_over(ColdWait* wait) noexcept nogil:
    return atomic_load_i32(&wait.ranges_left) == 0

cdef bint cold_asked_all(ColdWait* wait) noexcept nogil:
    return atomic_add_i32(&wait.ranges_left, -1) == 0

cdef uint64_t directory_id(const char* stem) noexcept nogil:
    """Returns the FNV-1a hash of the path of the log directory of LOG_DIRECTORY/TOPIC-N/OFFSET."""
    cdef uint64_t hash = 0xcbf29ce484222325ULL
    cdef uint64_t at_slash[2]   # the hash of what is before the last slash but one, and the last
    at_slash[0] = at_slash[1] = hash
    while stem[0] != 0:
        if stem[0] == b'/':
            at_slash[0] = at_slash[1]
            at_slash[1] = hash
        hash = (hash ^ <uint8_t>stem[0]) * <uint64_t>0x100000001b3ULL
        stem += 1
    return at_slash[0]

cdef ColdDirectory* directory_of(ColdReads* c, const Segment* segment) noexcept nogil:
    """The caller holds the lock. Returns NULL without memory. A broker has few log directories."""
    cdef uint64_t id = directory_id(segment.stem)
    cdef ColdDirectory* found = c.directories
    while found != NULL and found.id != id:
        found = found.next
    if found == NULL:
        found = <ColdDirectory*>calloc(1, sizeof(ColdDirectory))
        if found != NULL:
            found.id = id
            found.next = c.directories
            c.directories = found
    return found

cdef void push_job(ColdReads* c, ColdDirectory* directory, ColdJob* job) noexcept nogil:
    """The caller holds the lock."""
    job.next = NULL
    if directory.tail != NULL:
        directory.tail.next = job
    else:
        directory.head = job
    directory.tail = job
    directory.depth += 1
    pthread_cond_signal(&c.work)

cdef bint cold_ask(ColdReads* c, ColdWait* wait, const LogSlice* slice) noexcept nogil:
    cdef ColdJob* job = <ColdJob*>calloc(1, sizeof(ColdJob))
    if job == NULL:
        return False
    job.segment = slice.segment
    job.position = slice.position
    job.size_bytes = slice.size_bytes
    job.verify = not slice_is_verified(slice)
    return ask(c, wait, job)

cdef bint cold_ask_place(ColdReads* c, ColdWait* wait, const ColdPlace* place) noexcept nogil:
    cdef ColdJob* job = <ColdJob*>calloc(1, sizeof(ColdJob))
    cdef bint taken = False
    if job != NULL:
        job.segment = place.segment
        job.place = place[0]
        taken = ask(c, wait, job)
    segment_release(place.segment)
    return taken

cdef bint cold_has_threads(ColdReads* c) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&c.lock)
    found = c.threads > 0 and not c.closed
    pthread_mutex_unlock(&c.lock)
    return found

cdef bint ask(ColdReads* c, ColdWait* wait, ColdJob* job) noexcept nogil:
    """Queues a job, or frees it. Returns whether it is queued; then the job holds its segment."""
    cdef ColdDirectory* directory
    cdef bint taken
    job.wait = wait
    pthread_mutex_lock(&c.lock)
    directory = directory_of(c, job.segment)
    taken = (c.threads > 0 and not c.closed and directory != NULL
             and directory.depth < c.depth_max)
    if taken:
        segment_retain(job.segment)
        atomic_add_i32(&wait.holders, 1)
        atomic_add_i32(&wait.ranges_left, 1)
        push_job(c, directory, job)
    else:
        c.refused += 1
    pthread_mutex_unlock(&c.lock)
    if not taken:
        free(job)
    return taken

cdef int64_t read_through(ColdReads* c, const ColdJob* job, void* scratch) noexcept nogil:
    """Returns how many bytes it read; sendfile later reports an error or an early end of file."""
    cdef System* system = table_system(c.table)
    cdef int fd = segment_fd(job.segment, system)
    cdef int64_t done = 0, piece
    cdef ssize_t got
    while fd >= 0 and done < job.size_bytes:
        piece = job.size_bytes - done
        if piece > PIECE_BYTES:
            piece = PIECE_BYTES
        got = system.pread(system, fd, scratch, piece, job.position + done)
        if got <= 0:
            break
        done += got
    return done

cdef void end_job(ColdReads* c, ColdJob* job) noexcept nogil:
    segment_release(job.segment)
    if atomic_add_i32(&job.wait.ranges_left, -1) == 0:
        table_wake(c.table, job.wait.thread_index, job.wait.connection_id)
    cold_wait_release(job.wait)
    free(job)

cdef ColdDirectory* next_directory(ColdReads* c) noexcept nogil:
    """Returns a directory with a range that a thread may read; NULL without one. The caller holds
    the lock."""
    cdef ColdDirectory* found = c.directories
    while found != NULL and (found.head == NULL or found.reading >= c.reading_max):
        found = found.next
    return found

cdef ColdJob* next_job(ColdReads* c, ColdDirectory** taken_from) noexcept nogil:
    """The caller holds the lock. Returns NULL when the pool is closed and its queues are empty."""
    cdef ColdDirectory* directory
    cdef ColdJob* job
    while True:
        directory = next_directory(c)
        if directory != NULL:
            break
        if c.closed:
            return NULL
        pthread_cond_wait(&c.work, &c.lock)
    job = directory.head
    directory.head = job.next
    if directory.head == NULL:
        directory.tail = NULL
    directory.depth -= 1
    directory.reading += 1
    taken_from[0] = directory
    return job

cdef void cold_run(ColdReads* c) noexcept nogil:
    cdef void* scratch = malloc(PIECE_BYTES)
    cdef ColdDirectory* directory = NULL
    cdef ColdJob* job
    cdef int64_t bytes_read
    cdef bint ended
    pthread_mutex_lock(&c.lock)
    while scratch != NULL:
        job = next_job(c, &directory)
        if job == NULL:
            break
        pthread_mutex_unlock(&c.lock)
        bytes_read = 0
        if job.place.segment != NULL:
            cold_place_read(&job.place, table_system(c.table))
        else:
            bytes_read = read_through(c, job, scratch)
        ended = not job.verify or slice_verify(
            job.segment, table_system(c.table), job.position + job.size_bytes) != 0
        if ended:
            end_job(c, job)
        pthread_mutex_lock(&c.lock)
        directory.reading -= 1
        if not ended:
            job.position += job.size_bytes      # the range is read; only the check remains
            job.size_bytes = 0
            push_job(c, directory, job)
        c.ranges_read += 1
        c.bytes_read += bytes_read
    c.threads -= 1
    pthread_mutex_unlock(&c.lock)
    free(scratch)

cdef void cold_limit_reading(ColdReads* c, int32_t reading_max) noexcept nogil:
    pthread_mutex_lock(&c.lock)
    c.reading_max = reading_max
    pthread_mutex_unlock(&c.lock)

cdef void cold_expect_thread(ColdReads* c) noexcept nogil:
    pthread_mutex_lock(&c.lock)
    c.threads += 1
    pthread_mutex_unlock(&c.lock)

cdef void cold_close(ColdReads* c) noexcept nogil:
    pthread_mutex_lock(&c.lock)
    c.closed = True
    pthread_cond_broadcast(&c.work)
    pthread_mutex_unlock(&c.lock)
