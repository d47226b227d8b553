"""The table of decisions in plain Python: what cext/network/permissions.pyx must answer."""


class Decided:
    def __init__(self):
        self.epoch = 1
        self._decisions = {}

    def new_epoch(self):
        self.epoch += 1

    def decide(self, *right, allowed, epoch, until_ns):
        self._decisions[right] = (allowed, epoch, until_ns)

    def decided(self, *right, now_ns):
        allowed, epoch, until_ns = self._decisions.get(right, (None, 0, 0))
        return allowed if epoch == self.epoch and now_ns <= until_ns else None
