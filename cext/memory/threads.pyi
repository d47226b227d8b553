import threading

KERNEL_NAME_BYTES_MAX: int

def kernel_name(name: str) -> str:
    """At most KERNEL_NAME_BYTES_MAX ASCII characters of `name`, its number (`-7`, `_7`) included."""

def name_this_thread(name: str) -> None:
    """Gives the calling thread kernel_name(name) in the kernel."""

class NamedThread(threading.Thread):
    """A thread that has its name in the kernel before its target runs."""
