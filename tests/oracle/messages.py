"""A slow, obvious codec of protocol messages over dicts, to compare barnabas.cext.codec.wire with.

It has its own reader of the schema text and shares no code with barnabas.wire. A struct is a dict
of the fields that the version carries; the key "" holds its unknown tagged fields as [(tag,
bytes)].
"""

import random
import struct
from functools import cache
from pathlib import Path

import barnabas

SCHEMAS = Path(barnabas.__file__).parent / "wire" / "schemas"
NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}
NAMES = ["", "a", "topic.eu-1", "grüße", "日本", "\U0001f600x", "n" * 130]


def in_versions(text, version):
    for part in text.split(","):
        if "+" in part:
            if version >= int(part.rstrip("+")):
                return True
        elif "-" in part:
            low, high = part.split("-")
            if int(low) <= version <= int(high):
                return True
        elif version == int(part):
            return True
    return False


@cache
def tree():
    """{message name: (head words, [field, ...])}; a field is (words, [field, ...])."""
    messages = {}
    for path in sorted(SCHEMAS.glob("messages*.txt")):
        parents = {}
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.startswith("#") or not line.strip():
                continue
            indent = len(line) - len(line.lstrip())
            node = (line.split(), [])
            if indent == 0:
                messages[node[0][1]] = node
            else:
                parents[indent - 2][1].append(node)
            parents[indent] = node
    return messages


def option(words, name):
    for word in words:
        if word.startswith(name + "="):
            return word[len(name) + 1 :]
    return None


def version_range(name):
    text = option(tree()[name][0], "versions")
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def is_flexible(name, version):
    text = option(tree()[name][0], "flexible")
    return text != "none" and in_versions(text, version)


class Kind:
    """The type of one field in one version."""

    def __init__(self, field, version, flexible):
        words, self.children = field
        self.name, self.type = words[0], words[1]
        self.present = in_versions(words[2], version)
        null = option(words, "null")
        self.nullable = null is not None and in_versions(null, version)
        tag = option(words, "tag")
        self.tag = None
        if tag is not None and in_versions(tag.split("@")[1], version):
            self.tag = int(tag.split("@")[0])
        self.compact = flexible and "flexible=none" not in words
        self.default_text = option(words, "default")
        self.version, self.flexible = version, flexible

    def default(self):
        """The value of a missing tagged field in comparisons."""
        if self.default_text == "null":
            return None
        if self.type.startswith("[]"):
            return []
        if self.type == "{}":
            kinds = kinds_of(self.children, self.version, self.flexible)
            return {"": []} | {kind.name: kind.default() for kind in kinds}
        if self.type == "bool":
            return self.default_text == "true"
        if self.type == "string":
            return self.default_text or ""
        if self.type in ("bytes", "records"):
            return b""
        if self.type == "uuid":
            return b"\0" * 16
        if self.type == "float64":
            return float(self.default_text or 0)
        return int(self.default_text or "0", 0)


def kinds_of(fields, version, flexible):
    kinds = [Kind(field, version, flexible) for field in fields]
    return [kind for kind in kinds if kind.present]


# ---- writing


def uvarint(n):
    out = b""
    while n > 127:
        out += bytes([n % 128 + 128])
        n //= 128
    return out + bytes([n])


def length(kind, n, old_format):
    return uvarint(n + 1) if kind.compact else struct.pack(old_format, n)


def write(kind, type_, value):
    if type_.startswith("[]"):
        if value is None:
            return length(kind, -1, ">i")
        return length(kind, len(value), ">i") + b"".join(
            write_plain(kind, type_[2:], element) for element in value
        )
    if type_ == "{}" and kind.nullable:
        null = b"\xff" if kind.tag is None else b"\0"  # inside a tag the null mark is a varint
        return null if value is None else b"\x01" + write_plain(kind, type_, value)
    return write_plain(kind, type_, value)


def write_plain(kind, type_, value):
    if type_ == "{}":
        return write_struct(kind.children, value, kind.version, kind.flexible)
    if type_ == "string":
        data = None if value is None else value.encode("utf-8")
        return length(kind, -1, ">h") if data is None else length(kind, len(data), ">h") + data
    if type_ in ("bytes", "records"):
        return length(kind, -1, ">i") if value is None else length(kind, len(value), ">i") + value
    if type_ == "bool":
        return b"\x01" if value else b"\x00"
    if type_ == "uuid":
        return value
    return struct.pack(NUMBERS[type_], value)


def write_struct(fields, value, version, flexible):
    kinds = kinds_of(fields, version, flexible)
    out = b"".join(write(k, k.type, value[k.name]) for k in kinds if k.tag is None)
    if not flexible:
        return out
    tagged = dict(value[""])
    for kind in kinds:
        inner = value[kind.name]
        left_out = inner == kind.default() or (
            kind.type == "{}" and not kind.nullable and not inner
        )
        if kind.tag is not None and not left_out:
            tagged[kind.tag] = write(kind, kind.type, inner)
    out += uvarint(len(tagged))
    for tag in sorted(tagged):
        out += uvarint(tag) + uvarint(len(tagged[tag])) + tagged[tag]
    return out


def encode(name, version, value):
    return write_struct(tree()[name][1], value, version, is_flexible(name, version))


# ---- reading: each function gives (value, rest of the bytes)


def read_uvarint(data):
    n, shift = 0, 0
    while True:
        n += (data[0] & 127) << shift
        shift += 7
        if data[0] < 128:
            return n, data[1:]
        data = data[1:]


def read_length(kind, data, old_format):
    if kind.compact:
        n, data = read_uvarint(data)
        return n - 1, data
    size = struct.calcsize(old_format)
    return struct.unpack(old_format, data[:size])[0], data[size:]


def read(kind, type_, data):
    if type_.startswith("[]"):
        n, data = read_length(kind, data, ">i")
        if n < 0:
            return None, data
        values = []
        for _ in range(n):
            value, data = read_plain(kind, type_[2:], data)
            values.append(value)
        return values, data
    if type_ == "{}" and kind.nullable:
        if data[0] >= 128 if kind.tag is None else data[0] == 0:
            return None, data[1:]
        data = data[1:]
    return read_plain(kind, type_, data)


def read_plain(kind, type_, data):
    if type_ == "{}":
        return read_struct(kind.children, data, kind.version, kind.flexible)
    if type_ in ("string", "bytes", "records"):
        n, data = read_length(kind, data, ">h" if type_ == "string" else ">i")
        if n < 0:
            return None, data
        value = data[:n]
        return value.decode("utf-8") if type_ == "string" else value, data[n:]
    if type_ == "bool":
        return data[0] != 0, data[1:]
    if type_ == "uuid":
        return data[:16], data[16:]
    size = struct.calcsize(NUMBERS[type_])
    return struct.unpack(NUMBERS[type_], data[:size])[0], data[size:]


def read_struct(fields, data, version, flexible):
    kinds = kinds_of(fields, version, flexible)
    value = {"": []}
    for kind in kinds:
        if kind.tag is None:
            value[kind.name], data = read(kind, kind.type, data)
        else:
            absent = kind.type == "{}" and not kind.nullable
            value[kind.name] = None if absent else kind.default()
    if flexible:
        by_tag = {kind.tag: kind for kind in kinds if kind.tag is not None}
        count, data = read_uvarint(data)
        for _ in range(count):
            tag, data = read_uvarint(data)
            size, data = read_uvarint(data)
            if tag in by_tag:
                kind = by_tag[tag]
                value[kind.name], rest = read(kind, kind.type, data[:size])
                assert rest == b""
            else:
                value[""].append((tag, data[:size]))
            data = data[size:]
    return value, data


def decode(name, version, data):
    value, rest = read_struct(tree()[name][1], data, version, is_flexible(name, version))
    assert rest == b""
    return value


# ---- random values


def random_value(name, version, rng: random.Random):
    return random_struct(tree()[name][1], version, is_flexible(name, version), rng)


def random_struct(fields, version, flexible, rng):
    kinds = kinds_of(fields, version, flexible)
    value = {kind.name: random_field(kind, rng) for kind in kinds}
    known = {kind.tag for kind in kinds}
    tags = sorted(rng.sample([0, 3, 5, 127, 128, 1234, 2**32 - 1], rng.choice([0, 0, 0, 1, 3])))
    value[""] = [(t, rng.randbytes(rng.choice([0, 1, 200]))) for t in tags if t not in known]
    if not flexible:
        value[""] = []
    return value


def random_field(kind, rng):
    if kind.nullable and rng.random() < 0.2:
        return None
    if kind.tag is not None and rng.random() < 0.3:
        return None if kind.type == "{}" and not kind.nullable else kind.default()
    if kind.type.startswith("[]"):
        return [random_plain(kind, kind.type[2:], rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    return random_plain(kind, kind.type, rng)


def random_plain(kind, type_, rng):
    if type_ == "{}":
        return random_struct(kind.children, kind.version, kind.flexible, rng)
    if type_ == "string":
        return rng.choice(NAMES)
    if type_ in ("bytes", "records"):
        return rng.randbytes(rng.choice([0, 1, 5, 130]))
    if type_ == "bool":
        return rng.random() < 0.5
    if type_ == "uuid":
        return rng.choice([bytes(16), rng.randbytes(16)])
    if type_ == "float64":
        return rng.choice([0.0, 1.5, -1e300, rng.random()])
    bits = int(type_.lstrip("uint"))
    low = 0 if type_.startswith("u") else -(2 ** (bits - 1))
    high = low + 2**bits - 1
    return rng.choice([low, high, 0, 1, max(low, -1), rng.randint(low, high)])
