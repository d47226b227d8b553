"""Threads whose name the kernel also has, so that `top -H`, `perf` and /proc/PID/task/TID/comm show
it.

Linux keeps 15 bytes of a name. In a longer one, words are shortened at their end; its number stays.
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
    """Returns at most KERNEL_NAME_BYTES_MAX ASCII characters of `name`, with its number (`-7`, `_7`)."""
    plain = name.encode("ascii", "replace").decode()
    number = re.search(r"[-_]\d+$|$", plain)[0][-KERNEL_NAME_BYTES_MAX:]
    words = plain[:len(plain) - len(number)]
    return words[:KERNEL_NAME_BYTES_MAX - len(number)] + number


def name_this_thread(str name not None) -> None:
    """Sets the kernel's name of the calling thread to kernel_name(name)."""
    cdef bytes short = kernel_name(name).encode()
    pthread_setname_np(pthread_self(), short)


class NamedThread(threading.Thread):
    """A thread whose name the kernel has before its target runs."""

    def run(self):
        name_this_thread(self.name)
        super().run()
