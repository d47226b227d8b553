"""Threads whose name the kernel also has, so that `top -H`, `perf` and /proc/PID/task/TID/comm show
it.

Linux keeps 15 bytes of a name. In a longer one, words are shortened at their end; its number stays.
Source: pthread_setname_np(3).
"""
import logging
import re
import threading
from collections import deque

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    pthread_t pthread_self()
    int pthread_setname_np(pthread_t thread, const char* name)

KERNEL_NAME_BYTES_MAX = 15

log = logging.getLogger("barnabas.threads")
_refused = deque()      # threads of this process, the first refused one first


def kernel_name(str name not None) -> str:
    """Returns at most KERNEL_NAME_BYTES_MAX ASCII characters of `name`, with its number (`-7`, `_7`)."""
    plain = name.encode("ascii", "replace").decode()
    number = re.search(r"[-_]\d+$|$", plain)[0][-KERNEL_NAME_BYTES_MAX:]
    words = plain[:len(plain) - len(number)]
    return words[:KERNEL_NAME_BYTES_MAX - len(number)] + number


def name_this_thread(str name not None) -> None:
    """Sets the kernel's name of the calling thread to kernel_name(name)."""
    cdef bytes short = kernel_name(name).encode()
    pthread_setname_np(pthread_self(), short)


class NoThread(RuntimeError):
    """The system allows this process no more threads."""

    def __init__(self, name):
        super().__init__(
            f"the system allows no more threads ({name} is the next). Raise the limit of the user"
            " (ulimit -u), of the service (TasksMax=), or of the control group (pids.max)."
        )


class NamedThread(threading.Thread):
    """A thread whose name the kernel has before its target runs. join() returns at once for a thread
    that never started: the system may have refused it."""

    def run(self):
        name_this_thread(self.name)
        super().run()

    def start(self):
        try:
            super().start()
        except RuntimeError as error:
            raise NoThread(self.name) from error

    def join(self, timeout=None):
        if self.ident is not None:
            super().join(timeout)


def start_thread(target, str name not None, tuple args=()) -> NamedThread:
    """Starts a daemon thread and returns it. Raises NoThread."""
    thread = NamedThread(target=target, name=name, args=args, daemon=True)
    thread.start()
    return thread


def start_when_allowed(target, str name not None) -> NamedThread:
    """Starts a daemon thread and returns it. When the system allows no more threads, the next
    start_refused() tries it again: the caller's work waits until then."""
    thread = NamedThread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except NoThread as error:
        log.error("%s", error)
        _refused.append(thread)
    return thread


def start_refused() -> None:
    """Starts the threads that the system has refused. A broker calls it each second."""
    while _refused:
        thread = _refused.popleft()
        try:
            thread.start()
        except NoThread:
            _refused.appendleft(thread)
            return
