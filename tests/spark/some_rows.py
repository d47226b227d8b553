"""Records with everything that may be missing in one."""


def rows(count):
    return [
        (
            None if i % 3 == 0 else b"k%d" % i,
            None if i % 7 == 2 else b"v" * (i % 40),
            [("h", b"%d" % i), ("n", None)] if i % 5 == 0 else None,
        )
        for i in range(count)
    ]
