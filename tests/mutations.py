"""Files as an attacker or a bad disk makes them: seeded changes of a sound one, for the tests of every reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

TOKENS = (
    b"\x00",
    b"\xff",
    b"\xff" * 8,
    b"[",
    b"{",
    b'"',
    b"-1",
    b"9" * 30,
    b"1e999",
    b"NaN",
    b"null",
    b"../",
    b"\n",
    b".",
    b"c",
)


def refusal(kind: type[Exception], read: Callable[..., object], *args: object) -> str | None:
    """What a reader says of a file it refuses with this kind of error; None where it reads it. Others pass through."""
    try:
        read(*args)
    except kind as error:
        return str(error)
    return None


def mutated(whole: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` changes of a file: flipped bits, other bytes, cuts, repeats, swaps, and pieces that parsers stumble over.

    The same for the same seed. Half of them change only one place.
    """
    generator = np.random.default_rng(seed)
    for number in range(count):
        data = bytearray(whole)
        for _ in range(1 if number % 2 else int(generator.integers(2, 6))):
            kind, at = int(generator.integers(8)), int(generator.integers(len(data) or 1))
            end = min(len(data), at + int(generator.integers(1, 64)))
            if not data:
                break
            if kind == 0:
                data[at] ^= 1 << int(generator.integers(8))
            elif kind == 1:
                data[at] = int(generator.integers(256))
            elif kind == 2:
                del data[at:end]
            elif kind == 3:
                data[at:at] = data[at:end] * int(generator.integers(1, 20))
            elif kind == 4:
                del data[at:]
            elif kind == 5:
                other = int(generator.integers(len(data)))
                data[at:end], data[other : other + end - at] = data[other : other + end - at], data[at:end]
            else:
                token = TOKENS[int(generator.integers(len(TOKENS)))]
                data[at : at + (len(token) if kind == 6 else 0)] = token
        yield bytes(data)
