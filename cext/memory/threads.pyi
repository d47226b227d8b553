import threading

KERNEL_NAME_BYTES_MAX: int

def kernel_name(name: str) -> str:
    """Returns at most KERNEL_NAME_BYTES_MAX ASCII characters of `name`, with its number (`-7`, `_7`)."""

def name_this_thread(name: str) -> None:
    """Sets the kernel's name of the calling thread to kernel_name(name)."""

class NamedThread(threading.Thread):
    """A thread whose name the kernel has before its target runs."""
