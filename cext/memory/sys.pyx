"""The system-call table: the real calls, and fault rules for tests.

Every file access of cext uses a System (sys.pxd); each broker has one. Without rules a call costs
one pointer check more than the system call alone. With rules each call is counted under a lock and
compared with them: a rule causes an error instead of the call, a call that does half of its work, a
delay, a call that waits until the test releases it, or SIGKILL to the process just before the call.
Clocks can be moved forward and backward. Limits: RULES_MAX rules in a table; HOLD_S_MAX for a call
that waits.

Next on the data path: cext/memory/epoch.pyx.
"""
import os

from cpython.ref cimport Py_INCREF
from libc.errno cimport ENOSYS
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strstr

from barnabas.cext.memory.atomics cimport (
    atomic_add_i64, atomic_load_i64, atomic_load_pointer, atomic_store_pointer,
)
from barnabas.cext.memory.condition cimport (
    condition_init, condition_wait_until, monotonic_now_ns, pthread_cond_broadcast,
    pthread_cond_destroy, pthread_cond_t,
)
from barnabas.cext.memory.descriptors cimport (
    log_file_close, log_file_open, log_file_open_cached,
)
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef extern from "syscalls.h" nogil:
    ssize_t real_pread(int fd, void* into, size_t n, int64_t at)
    ssize_t real_pread_cached(int fd, void* into, size_t n, int64_t at)
    ssize_t real_pwritev(int fd, const iovec* parts, int count, int64_t at)
    ssize_t real_sendfile(int to, int source, int64_t at, size_t n)
    int real_is_cached(int fd, int64_t at, int64_t n)
    int real_fdatasync(int fd)
    int real_fsync_directory(const char* path)
    int real_sync_filesystem(const char* path)
    int real_ftruncate(int fd, int64_t n)
    int real_rename(const char* source, const char* target)
    int real_unlink(const char* path)
    int64_t real_wall_ms()
    int64_t real_monotonic_ns()
    void kill_self()
    void sleep_ms(int64_t ms)
    void path_of_descriptor(int fd, char* into, size_t size)

cdef enum:
    RULES_MAX = 64
    HOLD_S_MAX = 60
    PATH_PART_BYTES_MAX = 256
    CALL_PREAD = 0
    CALL_PWRITEV = 1
    CALL_SENDFILE = 2
    CALL_IS_CACHED = 3
    CALL_FDATASYNC = 4
    CALL_FSYNC_DIRECTORY = 5
    CALL_FTRUNCATE = 6
    CALL_OPEN = 7
    CALL_CLOSE = 8
    CALL_RENAME = 9
    CALL_UNLINK = 10
    CALL_PREAD_CACHED = 11
    CALL_KINDS = 12
    ACT_ERROR = 0
    ACT_SHORT = 1
    ACT_KILL = 2
    ACT_DELAY = 3
    ACT_HOLD = 4

cdef struct Rule:
    int call
    int action
    int errno_
    int64_t first               # the number of the first matching call to which it applies, from 1,
    int64_t last                # and of the last one
    int64_t delay_ms
    bint released               # release() has ended a hold
    int64_t matched
    int64_t fired
    char part[PATH_PART_BYTES_MAX]   # of the path; empty: any

cdef struct Rules:
    pthread_mutex_t lock
    pthread_cond_t changed      # a hold was released, or the rules were removed
    int64_t cleared             # how often the rules were removed
    int count
    Rule rules[RULES_MAX]
    int64_t calls[CALL_KINDS]
    int64_t wall_moved_ms
    int64_t monotonic_moved_ns
    bint clocks_stand           # the clocks move by wall_moved_ms and monotonic_moved_ns alone


cdef void _wait_for_release(Rules* rules, Rule* rule) noexcept nogil:
    """Waits until the rule's hold is released. The caller holds the lock, which is free during the
    wait."""
    cdef int64_t cleared = rules.cleared
    cdef int64_t until_ns = monotonic_now_ns() + <int64_t>HOLD_S_MAX * 1000000000
    while rules.cleared == cleared and not rule.released:
        if not condition_wait_until(&rules.changed, &rules.lock, until_ns):
            return


cdef int _verdict(Rules* rules, int call, int fd, const char* path, bint* shorten) noexcept nogil:
    """Applies the rules to the next call. Returns 0 (make the call) or -errno."""
    cdef char found[4096]
    cdef bint looked_up = path != NULL
    cdef int64_t delay_ms = 0
    cdef int errno_ = 0, i
    cdef bint killed = False
    cdef Rule* rule
    cdef Rule* hold = NULL
    pthread_mutex_lock(&rules.lock)
    rules.calls[call] += 1
    for i in range(rules.count):
        rule = &rules.rules[i]
        if rule.call != call:
            continue
        if rule.part[0] != 0:
            if not looked_up:
                path_of_descriptor(fd, found, sizeof(found))
                path = found
                looked_up = True
            if strstr(path, rule.part) == NULL:
                continue
        rule.matched += 1
        if not rule.first <= rule.matched <= rule.last:
            continue
        rule.fired += 1
        if rule.action == ACT_ERROR:
            errno_ = rule.errno_
        elif rule.action == ACT_SHORT:
            shorten[0] = True
        elif rule.action == ACT_KILL:
            killed = True
        elif rule.action == ACT_HOLD:
            hold = rule
        else:
            delay_ms += rule.delay_ms
    if hold != NULL:
        _wait_for_release(rules, hold)
    pthread_mutex_unlock(&rules.lock)
    if delay_ms > 0:
        sleep_ms(delay_ms)
    if killed:
        kill_self()
    return -errno_


cdef inline Rules* _rules(System* s) noexcept nogil:
    return <Rules*>atomic_load_pointer(&s.rules)


# ------------------------------------------------------------------------------------- the calls

cdef ssize_t _pread(System* s, int fd, void* into, size_t size_bytes, int64_t position) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed
    if rules != NULL:
        failed = _verdict(rules, CALL_PREAD, fd, NULL, &shorten)
        if failed < 0:
            return failed
        if shorten and size_bytes > 1:
            size_bytes //= 2
    return real_pread(fd, into, size_bytes, position)


cdef ssize_t _pread_cached(
    System* s, int fd, void* into, size_t size_bytes, int64_t position
) noexcept nogil:
    """Reads from the page cache. A rule `error` of EAGAIN reports that the bytes are not in it."""
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed
    if rules != NULL:
        failed = _verdict(rules, CALL_PREAD_CACHED, fd, NULL, &shorten)
        if failed < 0:
            return failed
    return real_pread_cached(fd, into, size_bytes, position)


cdef ssize_t _short_pwritev(int fd, const iovec* parts, int part_count, int64_t position) noexcept nogil:
    """Writes half of the first part that has two bytes or more."""
    cdef iovec half
    half.iov_base = parts[0].iov_base
    half.iov_len = parts[0].iov_len // 2 if parts[0].iov_len > 1 else parts[0].iov_len
    return real_pwritev(fd, &half, 1, position)


cdef ssize_t _pwritev(
    System* s, int fd, const iovec* parts, int part_count, int64_t position
) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed
    if rules != NULL:
        failed = _verdict(rules, CALL_PWRITEV, fd, NULL, &shorten)
        if failed < 0:
            return failed
        if shorten and part_count > 0:
            return _short_pwritev(fd, parts, part_count, position)
    return real_pwritev(fd, parts, part_count, position)


cdef ssize_t _sendfile(
    System* s, int socket_fd, int file_fd, int64_t position, size_t size_bytes
) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed
    if rules != NULL:
        failed = _verdict(rules, CALL_SENDFILE, file_fd, NULL, &shorten)
        if failed < 0:
            return failed
        if shorten and size_bytes > 1:
            size_bytes //= 2
    return real_sendfile(socket_fd, file_fd, position, size_bytes)


cdef int _is_cached(System* s, int fd, int64_t position, int64_t size_bytes) noexcept nogil:
    """Checks the page cache. With a rule `error` it reports that the range is not in it."""
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    if rules != NULL and _verdict(rules, CALL_IS_CACHED, fd, NULL, &shorten) < 0:
        return 0
    return real_is_cached(fd, position, size_bytes)


cdef int _fdatasync(System* s, int fd) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed
    if rules != NULL:
        failed = _verdict(rules, CALL_FDATASYNC, fd, NULL, &shorten)
        if failed < 0:
            return failed
    return real_fdatasync(fd)


cdef int _fsync_directory(System* s, const char* path) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed
    if rules != NULL:
        failed = _verdict(rules, CALL_FSYNC_DIRECTORY, -1, path, &shorten)
        if failed < 0:
            return failed
    return real_fsync_directory(path)


cdef int _ftruncate(System* s, int fd, int64_t size_bytes) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed
    if rules != NULL:
        failed = _verdict(rules, CALL_FTRUNCATE, fd, NULL, &shorten)
        if failed < 0:
            return failed
    return real_ftruncate(fd, size_bytes)


cdef inline int _open_verdict(System* s, const char* path) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    return 0 if rules == NULL else _verdict(rules, CALL_OPEN, -1, path, &shorten)


cdef int _open(System* s, const char* path, int flags, int mode) noexcept nogil:
    cdef int failed = _open_verdict(s, path)
    return failed if failed < 0 else log_file_open(path, flags, mode)


cdef int _open_cached(System* s, const char* path, int flags, int mode) noexcept nogil:
    cdef int failed = _open_verdict(s, path)
    return failed if failed < 0 else log_file_open_cached(path, flags, mode)


cdef int _close(System* s, int fd) noexcept nogil:
    """Closes the descriptor, also when a rule reports an error, as Linux does."""
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed = 0
    cdef int closed
    if rules != NULL:
        failed = _verdict(rules, CALL_CLOSE, fd, NULL, &shorten)
    closed = log_file_close(fd)
    return failed if failed < 0 else closed


cdef int _rename(System* s, const char* source, const char* target) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed
    if rules != NULL:
        failed = _verdict(rules, CALL_RENAME, -1, source, &shorten)
        if failed < 0:
            return failed
    return real_rename(source, target)


cdef int _unlink(System* s, const char* path) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef bint shorten = False
    cdef int failed
    if rules != NULL:
        failed = _verdict(rules, CALL_UNLINK, -1, path, &shorten)
        if failed < 0:
            return failed
    return real_unlink(path)


cdef int64_t _wall_ms(System* s) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef int64_t moved = 0
    if rules != NULL:
        moved = atomic_load_i64(&rules.wall_moved_ms)
        if rules.clocks_stand:
            return moved
    return real_wall_ms() + moved


cdef int64_t _monotonic_ns(System* s) noexcept nogil:
    cdef Rules* rules = _rules(s)
    cdef int64_t moved = 0
    if rules != NULL:
        moved = atomic_load_i64(&rules.monotonic_moved_ns)
        if rules.clocks_stand:
            return moved
    return real_monotonic_ns() + moved


cdef int write_whole(
    System* s, int fd, const void* bytes, int64_t size_bytes, int64_t position
) noexcept nogil:
    cdef iovec part
    cdef int64_t done = 0
    cdef ssize_t written
    while done < size_bytes:
        part.iov_base = <void*>(<const uint8_t*>bytes + done)
        part.iov_len = min(size_bytes - done, <int64_t>WRITE_PIECE_BYTES)
        written = s.pwritev(s, fd, &part, 1, position + done)
        if written <= 0:
            return <int>written if written < 0 else -5  # EIO: the disk accepts no byte
        done += written
    return 0


cdef int64_t read_whole(
    System* s, int fd, void* into, int64_t size_bytes, int64_t position
) noexcept nogil:
    cdef int64_t done = 0
    cdef ssize_t got
    while done < size_bytes:
        got = s.pread(s, fd, <uint8_t*>into + done, size_bytes - done, position + done)
        if got < 0:
            return got
        if got == 0:
            break
        done += got
    return done


# ------------------------------------------------------------------------------------ for Python

def sync_filesystem(path) -> bool:
    """Flushes the whole file system of a directory to disk with one call, for callers that created
    many small files. False: this system cannot do it. Raises OSError."""
    cdef bytes name = os.fsencode(path)  # holds the bytes that `text` points into
    cdef const char* text = name
    cdef int status
    with nogil:
        status = real_sync_filesystem(text)
    if status == -ENOSYS:
        return False
    if status < 0:
        raise OSError(-status, os.strerror(-status), os.fspath(path))
    return True


_CALLS = ("pread", "pwritev", "sendfile", "is_cached", "fdatasync", "fsync_directory", "ftruncate",
          "open", "close", "rename", "unlink", "pread_cached")
_ACTIONS = ("error", "short", "kill", "delay", "hold")
_SHORTENED = ("pread", "pwritev", "sendfile")


cdef Rules* _ruled(SystemCalls calls) except NULL:
    """Returns the rules of a table, which it makes at the first use."""
    cdef Rules* rules = <Rules*>calls.table.rules
    if rules == NULL:
        rules = <Rules*>calloc(1, sizeof(Rules))
        if rules == NULL:
            raise MemoryError
        pthread_mutex_init(&rules.lock, NULL)
        condition_init(&rules.changed)
        atomic_store_pointer(&calls.table.rules, rules)
        atomic_store_pointer(&calls.cached_only.rules, rules)
    return rules


cdef int64_t _read(Rules* rules, const int64_t* count) noexcept:
    """Returns a count that calls on other threads change."""
    cdef int64_t found
    with nogil:
        pthread_mutex_lock(&rules.lock)
        found = count[0]
        pthread_mutex_unlock(&rules.lock)
    return found


cdef class SystemCalls:
    """The system-call table of one broker. fault() adds a rule; rules stay until clear_faults()."""

    def __cinit__(self):
        self.table.pread = _pread
        self.table.is_cached = _is_cached
        self.table.pwritev = _pwritev
        self.table.sendfile = _sendfile
        self.table.fdatasync = _fdatasync
        self.table.fsync_directory = _fsync_directory
        self.table.ftruncate = _ftruncate
        self.table.open = _open
        self.table.close = _close
        self.table.rename = _rename
        self.table.unlink = _unlink
        self.table.wall_ms = _wall_ms
        self.table.monotonic_ns = _monotonic_ns
        self.table.rules = NULL
        self.table.cached_only = &self.cached_only
        self.cached_only = self.table
        self.cached_only.pread = _pread_cached
        self.cached_only.open = _open_cached

    def __dealloc__(self):
        if self.table.rules != NULL:
            pthread_cond_destroy(&(<Rules*>self.table.rules).changed)
            pthread_mutex_destroy(&(<Rules*>self.table.rules).lock)
            free(self.table.rules)

    def count_calls(self) -> None:
        """Starts the counters of calls(); fault() starts them, too."""
        _ruled(self)

    def fault(self, str call, str action, *, int errno=0, int64_t nth=1, int64_t count=1,
              path_contains=None, int64_t delay_ms=0) -> int:
        """Adds a rule for the nth matching call from now on and the count - 1 calls after it.
        `action`:

        error  the call is not made and fails with errno
        short  pread, pwritev and sendfile do about half of their work
        kill   SIGKILL to this process instead of the call
        delay  the call is made delay_ms later
        hold   the call is made after release() or clear_faults(), or after a minute

        `path_contains`: only calls for files whose path contains it. Returns the number of the
        rule, for fired() and release(). Raises ValueError for other values."""
        cdef Rules* rules = _ruled(self)
        cdef bytes part = b"" if path_contains is None else str(path_contains).encode()
        cdef const char* part_bytes = part
        cdef Rule rule
        if call not in _CALLS:
            raise ValueError(f"no call {call!r}; there are {', '.join(_CALLS)}")
        if action not in _ACTIONS:
            raise ValueError(f"no action {action!r}; there are {', '.join(_ACTIONS)}")
        if action == "short" and call not in _SHORTENED:
            raise ValueError(f"{call} cannot be short; {', '.join(_SHORTENED)} can")
        if (action == "error") != (errno > 0) or (action == "delay") != (delay_ms > 0):
            raise ValueError("error needs errno, delay needs delay_ms, and no other takes them")
        if nth < 1 or count < 1 or len(part) >= PATH_PART_BYTES_MAX:
            raise ValueError("nth and count begin at 1; path_contains is at most 255 bytes")
        if rules.count == RULES_MAX:
            raise ValueError(f"{RULES_MAX} rules are laid already")
        rule.call = _CALLS.index(call)
        rule.action = _ACTIONS.index(action)
        rule.errno_ = errno
        rule.first = nth
        rule.last = nth + count - 1
        rule.delay_ms = delay_ms
        rule.released = False
        rule.matched = rule.fired = 0
        memcpy(rule.part, part_bytes, len(part) + 1)
        with nogil:
            pthread_mutex_lock(&rules.lock)
            rules.rules[rules.count] = rule
            rules.count += 1
            pthread_mutex_unlock(&rules.lock)
        return rules.count - 1

    def clear_faults(self) -> None:
        """Removes all rules, and lets the calls proceed that are held; counters and moved clocks stay."""
        cdef Rules* rules = _ruled(self)
        with nogil:
            pthread_mutex_lock(&rules.lock)
            rules.count = 0
            rules.cleared += 1
            pthread_cond_broadcast(&rules.changed)
            pthread_mutex_unlock(&rules.lock)

    def release(self, int rule) -> None:
        """Lets the calls proceed that a rule holds; it holds no further call. `rule`: the return
        value of fault(). Raises ValueError for another number."""
        cdef Rules* rules = _ruled(self)
        if not 0 <= rule < rules.count:
            raise ValueError(f"no rule {rule}")
        with nogil:
            pthread_mutex_lock(&rules.lock)
            rules.rules[rule].released = True
            pthread_cond_broadcast(&rules.changed)
            pthread_mutex_unlock(&rules.lock)

    def fired(self, int rule) -> int:
        """Returns how often a rule was applied; `rule` is the return value of fault()."""
        cdef Rules* rules = _ruled(self)
        if not 0 <= rule < rules.count:
            raise ValueError(f"no rule {rule}")
        return _read(rules, &rules.rules[rule].fired)

    def calls(self, str call) -> int:
        """Returns the number of these calls since the first rule or count_calls(). Raises
        ValueError for another name."""
        if call not in _CALLS:
            raise ValueError(f"no call {call!r}; there are {', '.join(_CALLS)}")
        cdef Rules* rules = _ruled(self)
        return _read(rules, &rules.calls[<int>_CALLS.index(call)])

    def stop_clocks(self, int64_t wall_ms, int64_t monotonic_ns) -> None:
        """Sets both clocks; from now on they move only by the functions below. Call it before
        another thread reads them."""
        cdef Rules* rules = _ruled(self)
        rules.wall_moved_ms = wall_ms
        rules.monotonic_moved_ns = monotonic_ns
        rules.clocks_stand = True

    def move_wall_clock(self, int64_t ms) -> None:
        """Moves the wall clock by ms, in addition to earlier moves; backwards when negative."""
        atomic_add_i64(&_ruled(self).wall_moved_ms, ms)

    def move_monotonic(self, int64_t ms) -> None:
        """Moves the monotonic clock, which timeouts use, by ms, in addition to earlier moves."""
        atomic_add_i64(&_ruled(self).monotonic_moved_ns, ms * 1000000)

    def wall_ms(self) -> int:
        return self.table.wall_ms(&self.table)

    def monotonic_ns(self) -> int:
        return self.table.monotonic_ns(&self.table)


def keep_for_ever(object thing) -> None:
    """Never releases an object. For objects that a forked child inherits: their memory is a copy,
    but their descriptors, locks and files belong to the parent."""
    Py_INCREF(thing)
