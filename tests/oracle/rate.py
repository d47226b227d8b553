"""The slow twin of cext/network/quotas.pxd: Kafka's SampledStat, Rate and QuotaUtils."""

import math
from dataclasses import dataclass


@dataclass
class Sample:
    began_ms: int
    last_ms: int
    total: float = 0.0


class Sensor:
    def __init__(self, samples, window_ms, limit, wait_ms_max=2**31 - 1):
        self.windows, self.window_ms, self.limit = samples, window_ms, limit
        self.wait_ms_max = wait_ms_max
        self.samples = []
        self.current = 0

    def record(self, amount, now_ms):
        if not self.samples:
            self.samples.append(Sample(now_ms, now_ms))
        if now_ms - self.samples[self.current].began_ms >= self.window_ms:
            self.current = (self.current + 1) % (self.windows + 1)
            if self.current == len(self.samples):
                self.samples.append(Sample(now_ms, now_ms))
            else:
                self.samples[self.current] = Sample(now_ms, now_ms)
        sample = self.samples[self.current]
        sample.total += amount
        sample.last_ms = now_ms

    def measured(self, now_ms):
        """(rate a second, ms over which it is taken)"""
        for i, sample in enumerate(self.samples):
            if now_ms - sample.last_ms >= self.windows * self.window_ms:
                self.samples[i] = Sample(now_ms, now_ms)
        span_ms = now_ms - min((sample.began_ms for sample in self.samples), default=now_ms)
        missing = self.windows - 1 - span_ms // self.window_ms
        span_ms = max(1, span_ms + max(0, missing) * self.window_ms)
        return sum(sample.total for sample in self.samples) * 1000 / span_ms, span_ms

    def use(self, amount, now_ms):
        self.record(amount, now_ms)
        rate, span_ms = self.measured(now_ms)
        if rate <= self.limit:
            return 0
        return min(self.wait_ms_max, math.floor((rate - self.limit) / self.limit * span_ms + 0.5))

    def use_within(self, amount, now_ms):
        wait_ms = self.use(amount, now_ms)
        if wait_ms:
            self.record(-amount, now_ms)
        return wait_ms
