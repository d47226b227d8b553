"""Record batches v2 and message sets v0/v1 in plain, slow Python: the twin of cext.record.

Records are tuples (offset, timestamp, key, value, headers). Any damage raises Damaged.
"""

import struct
import zlib

HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = (
    "base_offset batch_length leader_epoch magic crc attributes last_offset_delta base_timestamp "
    "max_timestamp producer_id producer_epoch base_sequence record_count"
).split()
CRC32C = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    CRC32C.append(_byte)


class Damaged(Exception):
    pass


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(value):
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, n):
        if n < 0 or self.at + n > len(self.data):
            raise Damaged("size")
        self.at += n
        return self.data[self.at - n : self.at]

    def varint(self, bits=32):
        value = 0
        for i in range(5 if bits == 32 else 10):
            byte = self.take(1)[0]
            value |= (byte & 127) << (7 * i)
            if byte < 128:
                if value >> bits:
                    raise Damaged("varint too wide")
                return value >> 1 if value % 2 == 0 else -(value >> 1) - 1
        raise Damaged("varint too long")

    def nullable(self):
        n = self.varint()
        if n < -1:
            raise Damaged("size below -1")
        return None if n == -1 else self.take(n)


def wrap64(value):
    return (value + 2**63) % 2**64 - 2**63


def decode_body(body, *, count, base_offset=0, base_timestamp=0, append_time=None):
    reader, records = Reader(body), []
    if count < 0:
        raise Damaged("count")
    while len(records) < count:
        record = Reader(reader.take(reader.varint()))
        record.take(1)
        timestamp = wrap64(base_timestamp + record.varint(64))
        offset = wrap64(base_offset + record.varint())
        key, value = record.nullable(), record.nullable()
        header_count = record.varint()
        headers = []
        if header_count < 0:
            raise Damaged("header count")
        while len(headers) < header_count:
            name = record.take(record.varint()).decode("utf-8", "surrogateescape")
            headers.append((name, record.nullable()))
        if record.at != len(record.data):
            raise Damaged("bytes left over in a record")
        if append_time is not None:
            timestamp = append_time
        records.append((offset, timestamp, key, value, tuple(headers)))
    if reader.at != len(body):
        raise Damaged("bytes left over")
    return records


def check_body(body, header, *, strict=True, require_keys=False):
    """(count, largest timestamp, offset delta of its first record), or the kind of damage."""
    count, last = header["record_count"], header["last_offset_delta"]
    base = header["base_timestamp"]
    if last < 0 or count > last + 1:
        return "invalid"
    if strict:
        lacks_sequence = header["producer_id"] >= 0 and header["base_sequence"] < 0
        if count < 1 or last != count - 1 or header["attributes"] & 32 or lacks_sequence:
            return "invalid"
    try:
        records = decode_body(body, count=count, base_timestamp=base)
    except Damaged:
        return "invalid"
    deltas = [record[0] for record in records]
    if strict and deltas != list(range(count)):
        return "invalid"
    if deltas != sorted(set(deltas)) or any(not 0 <= delta <= last for delta in deltas):
        return "invalid"
    if require_keys and any(record[2] is None for record in records):
        return "missing key"
    if not records:
        return 0, -1, -1
    latest = max(record[1] for record in records)
    return count, latest, next(record[0] for record in records if record[1] == latest)


def nullable(data):
    return varint(-1) if data is None else varint(len(data)) + data


def encode_body(records, *, base_offset=0, base_timestamp=0):
    out = b""
    for offset, timestamp, key, value, headers in records:
        inner = b"\0" + varint(wrap64(timestamp - base_timestamp)) + varint(offset - base_offset)
        inner += nullable(key) + nullable(value) + varint(len(headers))
        for name, content in headers:
            inner += nullable(name.encode("utf-8", "surrogateescape")) + nullable(content)
        out += varint(len(inner)) + inner
    return out


def parse_header(data):
    if len(data) < HEADER.size:
        raise Damaged("short")
    header = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True))
    if header["magic"] != 2 or header["batch_length"] < 49:
        raise Damaged("header")
    if len(data) < 12 + header["batch_length"]:
        raise Damaged("cut off")
    return header


def encode_batch(body, **fields):
    fields = dict(fields, batch_length=49 + len(body), magic=2, crc=0)
    batch = bytearray(HEADER.pack(*(fields[name] for name in FIELDS)) + body)
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def old_bytes(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def encode_entry(offset, timestamp, key, value, *, magic, attributes=0):
    message = bytes([magic, attributes])
    if magic == 1:
        message += struct.pack(">q", timestamp)
    message += old_bytes(key) + old_bytes(value)
    return struct.pack(">qiI", offset, len(message) + 4, zlib.crc32(message)) + message


def decode_entries(data, *, magic):
    records, at = [], 0
    while at < len(data):
        if at + 17 > len(data):
            raise Damaged("short")
        offset, size, crc = struct.unpack_from(">qiI", data, at)
        message = data[at + 16 : at + 12 + size]
        if size < (22 if magic else 14) or at + 12 + size > len(data):
            raise Damaged("size")
        if data[at + 16] != magic or zlib.crc32(message) != crc or message[1] & 7:
            raise Damaged("message")
        reader = Reader(message)
        reader.take(2)
        timestamp = struct.unpack(">q", reader.take(8))[0] if magic else -1
        fields = []
        for _ in range(2):
            n = struct.unpack(">i", reader.take(4))[0]
            if n < -1:
                raise Damaged("size below -1")
            fields.append(None if n == -1 else reader.take(n))
        if reader.at != len(message):
            raise Damaged("bytes left over")
        records.append((offset, timestamp, *fields, ()))
        at += 12 + size
    return records
