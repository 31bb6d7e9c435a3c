"""Map-reduce: mappers count the words of documents and split the counts, and reducers merge them."""

from __future__ import annotations

import random
import zlib
from collections import Counter

import ray

MAPPERS = 6
REDUCERS = 3
SYLLABLES = ("ba", "de", "ki", "lo", "mu", "ne", "ra", "sol")


def make_document(seed: int) -> str:
    rng = random.Random(seed)
    # Short words are more frequent.
    lengths = [min(rng.randint(1, 3), rng.randint(1, 3)) for _ in range(20_000)]
    return " ".join("".join(rng.choices(SYLLABLES, k=length)) for length in lengths)


def reducer_of(word: str) -> int:
    # The hash of a string differs between processes.
    return zlib.crc32(word.encode()) % REDUCERS


@ray.remote(num_returns=REDUCERS)
def map_document(seed: int) -> list[Counter[str]]:
    parts: list[Counter[str]] = [Counter() for _ in range(REDUCERS)]
    for word, count in Counter(make_document(seed).split()).items():
        parts[reducer_of(word)][word] = count
    return parts


@ray.remote
def reduce_counts(*parts: Counter[str]) -> Counter[str]:
    return sum(parts, Counter())


def main() -> None:
    ray.init(num_cpus=2)
    mapped = [map_document.remote(seed) for seed in range(MAPPERS)]
    reduced = ray.get([reduce_counts.remote(*parts) for parts in zip(*mapped, strict=True)])

    for number, counts in enumerate(reduced):
        strangers = [word for word in counts if reducer_of(word) != number]
        assert not strangers, f"reducer {number} has words of others: {strangers[:3]}"
    total = sum(reduced, Counter())
    expected = Counter(word for seed in range(MAPPERS) for word in make_document(seed).split())
    assert total == expected, "the counts differ from those of one process"

    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    top = ", ".join(f"{word} {count}" for word, count in ranked[:3])
    print(f"answer: {len(total)} words, most often {top}")


if __name__ == "__main__":
    main()
