"""Tasks, actors and shared objects in a few lines."""

import weft


@weft.remote
def square(x: int) -> int:
    """Runs on another process."""
    return x * x


@weft.remote
class Total:
    """Lives in a process of its own."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int) -> int:
        """Adds and gives the total."""
        self.value += amount
        return self.value


if __name__ == "__main__":
    with weft.init():
        total = Total.remote()
        sums = [total.add.remote(square.remote(x)) for x in range(10)]
        print("sum of squares:", weft.get(sums)[-1])
