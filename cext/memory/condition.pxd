"""POSIX conditions with deadlines on the monotonic clock, for threads without the GIL.

These waits use the machine's own clock, not the broker's system-call table, so that a clock that a
test has moved never makes a thread sleep for ever.
"""
from libc.stdint cimport int64_t

from barnabas.cext.memory.mutex cimport pthread_mutex_t

cdef extern from "condition.h" nogil:
    ctypedef struct pthread_cond_t:
        pass
    int pthread_cond_destroy(pthread_cond_t* cond)
    int pthread_cond_wait(pthread_cond_t* cond, pthread_mutex_t* mutex)
    int pthread_cond_signal(pthread_cond_t* cond)
    int pthread_cond_broadcast(pthread_cond_t* cond)
    int condition_init(pthread_cond_t* cond)
    # False when the deadline has passed; True when signalled, or woken for no reason.
    bint condition_wait_until(pthread_cond_t* cond, pthread_mutex_t* mutex, int64_t deadline_ns)
    int64_t monotonic_now_ns()
