"""Plain-Python decoders of lz4 and snappy: slow, and short enough to be checked by eye."""


class Corrupt(ValueError):
    pass


class Large(ValueError):
    pass


MASK = 0xFFFFFFFF


def xxh32(data: bytes) -> int:
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393

    def turned(value, bits):
        value &= MASK
        return (value << bits | value >> 32 - bits) & MASK

    at, h = 0, p5
    if len(data) >= 16:
        lanes = [(p1 + p2) & MASK, p2, 0, (-p1) & MASK]
        while len(data) - at >= 16:
            for i in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[i] = turned(lanes[i] + word * p2, 13) * p1 & MASK
                at += 4
        h = sum(turned(lanes[i], (1, 7, 12, 18)[i]) for i in range(4))
    h += len(data)
    while len(data) - at >= 4:
        h = turned(h + int.from_bytes(data[at : at + 4], "little") * p3, 17) * p4
        at += 4
    for byte in data[at:]:
        h = turned(h + byte * p5, 11) * p1
    h &= MASK
    h = ((h ^ h >> 15) * p2) & MASK
    h = ((h ^ h >> 13) * p3) & MASK
    return h ^ h >> 16


class Input:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = bytes(data), 0

    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, count: int) -> bytes:
        if count < 0 or count > self.left():
            raise Corrupt("torn")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, count: int, order: str = "little", signed: bool = False) -> int:
        return int.from_bytes(self.take(count), order, signed=signed)


def copied(out: bytearray, low: int, offset: int, count: int) -> None:
    if offset == 0 or offset > len(out) - low:
        raise Corrupt("copy from nowhere")
    for _ in range(count):
        out.append(out[-offset])


def lz4_block(data: bytes, out: bytearray, low: int, room: int, past: type[ValueError]) -> None:
    source = Input(data)
    end = len(out) + room

    def length(nibble):
        total = nibble
        while nibble == 15:
            byte = source.number(1)
            total += byte
            if byte != 255:
                break
        return total

    while True:
        token = source.number(1)
        literals = source.take(length(token >> 4))
        if len(out) + len(literals) > end:
            raise past("literals")
        out += literals
        if not source.left():
            return
        offset = source.number(2)
        if offset == 0 or offset > len(out) - low:
            raise Corrupt("copy from nowhere")
        count = length(token & 15) + 4
        if len(out) + count > end:
            raise past("match")
        copied(out, low, offset, count)


def lz4_frame(data: bytes, size_max: int) -> bytes:
    source, out = Input(data), bytearray()
    if source.take(4) != b"\x04\x22\x4d\x18":
        raise Corrupt("magic")
    flags, block = source.number(1), source.number(1)
    if flags >> 6 != 1 or flags & 3 or block & 0x8F or block >> 4 < 4:
        raise Corrupt("flags")
    announced = source.number(8) if flags & 8 else None
    header = source.data[: source.at]
    if source.number(1) not in (xxh32(header[4:]) >> 8 & 255, xxh32(header) >> 8 & 255):
        raise Corrupt("header sum")
    if announced is not None and announced > size_max:
        raise Large("announced")
    block_max = 1 << (8 + 2 * (block >> 4))
    while word := source.number(4):
        body = source.take(word & 0x7FFFFFFF)
        if len(body) > block_max:
            raise Corrupt("block")
        if flags & 0x10 and source.number(4) != xxh32(body):
            raise Corrupt("block sum")
        left = size_max - len(out)
        if word >> 31:
            if len(body) > left:
                raise Large("stored")
            out += body
        else:
            past = Large if left < block_max else Corrupt
            low = len(out) if flags & 0x20 else 0
            lz4_block(body, out, low, min(left, block_max), past)
    if flags & 4 and source.number(4) != xxh32(bytes(out)):
        raise Corrupt("content sum")
    if source.left() or announced not in (None, len(out)):
        raise Corrupt("tail")
    return bytes(out)


def snappy_block(data: bytes, size_max: int) -> bytes:
    source, out = Input(data), bytearray()
    size = shift = 0
    while True:
        byte = source.number(1)
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
        if shift == 35:
            raise Corrupt("size")
    if size > MASK or size > 22 * len(data):
        raise Corrupt("size")
    if size > size_max:
        raise Large("size")
    while source.left():
        tag = source.number(1)
        kind, count = tag & 3, (tag >> 2) + 1
        if kind == 0:
            if count > 60:
                count = source.number(count - 60) + 1
            out += source.take(count)
        else:
            if kind == 1:
                count, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | source.number(1)
            else:
                offset = source.number(2 if kind == 2 else 4)
            copied(out, 0, offset, count)
        if len(out) > size:
            raise Corrupt("more than announced")
    if len(out) != size:
        raise Corrupt("less than announced")
    return bytes(out)


def snappy(data: bytes, size_max: int) -> bytes:
    data, magic = bytes(data), b"\x82SNAPPY\x00"
    if data[:8] != magic:
        return snappy_block(data, size_max)
    source, out = Input(data), bytearray()
    while source.left():
        if source.data[source.at : source.at + 8] == magic:
            source.take(12)
            if source.number(4, "big", True) > 1:
                raise Corrupt("version")
            continue
        count = source.number(4, "big", True)
        if count <= 0:
            raise Corrupt("chunk")
        out += snappy_block(source.take(count), size_max - len(out))
    return bytes(out)
