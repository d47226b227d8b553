"""Timers whose time the test moves."""

from types import SimpleNamespace


class MovedTimers:
    def __init__(self):
        self.ms = 0
        self.calls = []

    def now_ms(self):
        return self.ms

    def after(self, delay_ms, call):
        self.calls.append((self.ms + delay_ms, len(self.calls), call))
        return SimpleNamespace(cancel=lambda: None)

    def run(self, until_ms):
        while due := sorted(row[:2] for row in self.calls if row[0] <= until_ms):
            row = next(row for row in self.calls if row[:2] == due[0])
            self.calls.remove(row)
            self.ms = max(self.ms, row[0])
            row[2]()
        self.ms = until_ms
