"""A model of one partition in a share group, offset by offset: the broker's
coordinator/share/share_partition.py does the same with runs of offsets. A row of the model is
[state, deliveries, member, deadline]."""

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
OVER = (ACKNOWLEDGED, ARCHIVED)


class Model:
    def __init__(self, start, kept=None):
        """kept: offset -> (state, deliveries), as last persisted."""
        self.start = self.end = start
        self.rows = {}
        for offset in range(start, max(kept or (), default=start - 1) + 1):
            state, count = kept.get(offset, (AVAILABLE, 0))
            self.rows[offset] = [state, count, "", 0]
            self.end = offset + 1
        self.advance()

    def advance(self):
        while self.start < self.end and self.rows[self.start][0] in OVER:
            del self.rows[self.start]
            self.start += 1

    def next_offset(self, pending):
        free = [o for o, row in self.rows.items() if row[0] == AVAILABLE and o not in pending]
        return min(free, default=self.end)

    def give(self, offset, member, deadline):
        """Acquires the offset for a member. Returns its number of deliveries."""
        row = self.rows.setdefault(offset, [AVAILABLE, 0, "", 0])
        assert row[0] == AVAILABLE, f"{offset} is {row}"
        self.end = max(self.end, offset + 1)
        row[:] = [ACQUIRED, row[1] + 1, member, deadline]
        return row[1]

    def skip(self, offset, pending):
        row = self.rows.setdefault(offset, [AVAILABLE, 0, "", 0])
        self.end = max(self.end, offset + 1)
        if row[0] == AVAILABLE and offset not in pending:
            row[0] = ARCHIVED

    def is_owned(self, offset, member, pending):
        row = self.rows.get(offset)
        is_out = row is not None and row[0] == ACQUIRED and offset not in pending
        return is_out and row[2] == member

    def after(self, offset, kind, limit, letters):
        """State and deliveries after an acknowledgement."""
        count = self.rows[offset][1]
        if kind == ACCEPT:
            return ACKNOWLEDGED, count
        if kind == RELEASE and count < limit:
            return AVAILABLE, count
        return (ARCHIVED if kind == GAP or not letters else ARCHIVING), count

    def settle(self, changes):
        for offset, (state, count) in changes.items():
            if offset in self.rows:
                self.rows[offset][:] = [state, count, "", 0]
        self.advance()

    def log_starts_at(self, offset):
        if offset <= self.start:
            return
        self.rows = {o: row for o, row in self.rows.items() if o >= offset}
        self.start = offset
        self.end = max(self.end, offset)
        self.advance()
