"""Threads whose name the kernel knows too: `top -H`, `perf` and /proc/PID/task/TID/comm show it.

Linux keeps 15 bytes of a name. A longer one loses the end of its words, never its number.
Source: pthread_setname_np(3).
"""
import re
import threading

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    pthread_t pthread_self()
    int pthread_setname_np(pthread_t thread, const char* name)

KERNEL_NAME_BYTES_MAX = 15


def kernel_name(str name not None) -> str:
    """At most KERNEL_NAME_BYTES_MAX ASCII characters of `name`, its number (`-7`, `_7`) included."""
    plain = name.encode("ascii", "replace").decode()
    number = re.search(r"[-_]\d+$|$", plain)[0][-KERNEL_NAME_BYTES_MAX:]
    words = plain[:len(plain) - len(number)]
    return words[:KERNEL_NAME_BYTES_MAX - len(number)] + number


def name_this_thread(str name not None) -> None:
    """Gives the calling thread kernel_name(name) in the kernel."""
    cdef bytes short = kernel_name(name).encode()
    pthread_setname_np(pthread_self(), short)


class NamedThread(threading.Thread):
    """A thread that has its name in the kernel before its target runs."""

    def run(self):
        name_this_thread(self.name)
        super().run()
