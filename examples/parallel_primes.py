"""Counts primes below a bound on all cores: one task per range, results as they come."""

import argparse

import sooner


@sooner.remote
def primes_between(start: int, stop: int) -> int:
    """Number of primes in a range."""
    return sum(n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(start, stop))


def main() -> None:
    """Counts and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--below", type=int, default=200_000)
    below = parser.parse_args().below
    with sooner.init():
        width = max(1, below // 50)
        open_refs = [primes_between.remote(at, min(at + width, below)) for at in range(0, below, width)]
        count = 0
        while open_refs:
            ready, open_refs = sooner.wait(open_refs)
            count += sooner.get(ready[0])
        print(f"primes below {below}: {count}")


if __name__ == "__main__":
    main()
