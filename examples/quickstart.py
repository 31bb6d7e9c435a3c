"""Tasks, actors and shared objects in a few lines."""

import sooner


@sooner.remote
def square(x: int) -> int:
    """Runs on another process."""
    return x * x


@sooner.remote
class Total:
    """Lives in a process of its own."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int) -> int:
        """Adds and gives the total."""
        self.value += amount
        return self.value


if __name__ == "__main__":
    with sooner.init():
        total = Total.remote()
        sums = [total.add.remote(square.remote(x)) for x in range(10)]
        print("sum of squares:", sooner.get(sums)[-1])
