"""Runs `barnabas start`. After SIGUSR1 one Python thread computes without end, like a bad
plugin."""

import signal
import sys
import threading

from barnabas.cli import main


def compute() -> None:
    number = 0
    while True:
        number = (number * 1103515245 + 12345) % 2147483648


signal.signal(
    signal.SIGUSR1, lambda *_: threading.Thread(target=compute, daemon=True, name="busy").start()
)
sys.exit(main(sys.argv[1:]))
