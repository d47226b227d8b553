"""The plain-Python twin of cext/record/key_hash."""

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data):
    size = len(data)
    hashed = SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        hashed = (hashed * MULTIPLIER & MASK) ^ word
    if size > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return hashed ^ hashed >> 15


def java_hash(data):
    if isinstance(data, bytes):
        hashed, units = 1, [byte - 256 if byte > 127 else byte for byte in data]
    else:
        raw = data.encode("utf-16-le", "surrogatepass")
        hashed, units = 0, [raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)]
    for unit in units:
        hashed = (31 * hashed + unit) & MASK
    return hashed - (1 << 32) if hashed >> 31 else hashed
