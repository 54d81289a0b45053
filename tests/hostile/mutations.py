"""A generator of damaged and hostile files."""

import random
from collections.abc import Iterator


def mutations(data: bytes, n: int, seed: int = 0) -> Iterator[bytes]:
    """Yield `n` damaged copies of `data`.

    Each change cuts the copy off, flips a bit, replaces or inserts bytes, or doubles or removes a
    part.
    """
    generator = random.Random(seed)
    edges = [
        b"\0",
        b"\xff",
        b"\xff" * 8,
        b"\0" * 8,
        b"-1",
        b"9" * 30,
        b"1e999",
        b"{",
        b"[",
        b'"',
        b"\n",
        b"\xed\xa0\x80",
    ]
    for i in range(n):
        found = bytearray(data)
        for _ in range(1 + i % 3):
            start = generator.randrange(len(found) + 1)
            stop = min(len(found), start + generator.choice((1, 2, 8, 64, len(found) // 3 + 1)))
            kind = generator.randrange(6)
            if kind == 0:
                del found[start:]
            elif kind == 1 and start < len(found):
                found[start] ^= 1 << generator.randrange(8)
            elif kind == 2:
                found[start:stop] = generator.choice(edges)
            elif kind == 3:
                found[stop:stop] = found[start:stop]
            elif kind == 4:
                del found[start:stop]
            else:
                found[start:start] = generator.choice(edges)
        yield bytes(found)
