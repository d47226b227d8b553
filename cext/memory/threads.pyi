import threading
from collections.abc import Callable

KERNEL_NAME_BYTES_MAX: int

def kernel_name(name: str) -> str:
    """Returns at most KERNEL_NAME_BYTES_MAX ASCII characters of `name`, with its number (`-7`, `_7`)."""

def name_this_thread(name: str) -> None:
    """Sets the kernel's name of the calling thread to kernel_name(name)."""

class NoThread(RuntimeError):
    """The system allows this process no more threads. The text says what to do."""

    def __init__(self, name: str) -> None: ...

class NamedThread(threading.Thread):
    """A thread whose name the kernel has before its target runs."""

    def start(self) -> None:
        """Raises NoThread."""

    def join(self, timeout: float | None = None) -> None:
        """Returns at once for a thread that never started: the system may have refused it."""

def start_thread(
    target: Callable[..., object], name: str, args: tuple[object, ...] = ()
) -> NamedThread:
    """Starts a daemon thread and returns it. Raises NoThread."""

def start_when_allowed(target: Callable[[], object], name: str) -> NamedThread:
    """Starts a daemon thread and returns it. When the system allows no more threads, the next
    start_refused() tries it again: the caller's work waits until then."""

def start_refused() -> None:
    """Starts the threads that the system has refused. A broker calls it each second."""
