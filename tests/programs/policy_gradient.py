"""REINFORCE: tasks play episodes in a corridor with a policy, and the driver follows their gradients."""

from __future__ import annotations

import numpy as np
import ray
from numpy.typing import NDArray

Array = NDArray[np.float64]

LENGTH = 6
LIMIT = 40
ITERATIONS = 30
PLAYERS = 4
EPISODES = 8
RATE = 0.5


class Corridor:
    """A walk from the left end to the right one. In one cell the two actions have each other's effect."""

    SWAPPED = 2

    def __init__(self) -> None:
        self.position = 0

    def step(self, action: int) -> bool:
        """Whether the end is reached: action 1 goes right."""
        move = 1 if action == 1 else -1
        if self.position == self.SWAPPED:
            move = -move
        self.position = max(0, self.position + move)
        return self.position == LENGTH


def chances(policy: Array) -> Array:
    """The chance of action 1 in each cell."""
    return 1.0 / (1.0 + np.exp(-policy))


def play(policy: Array, seed: int) -> tuple[Array, float]:
    """The gradient and the mean number of steps of some episodes."""
    rng = np.random.default_rng(seed)
    right = chances(policy)
    scores, steps = np.zeros((EPISODES, LENGTH)), np.full(EPISODES, float(LIMIT))
    for episode in range(EPISODES):
        corridor = Corridor()
        for step in range(1, LIMIT + 1):
            cell = corridor.position
            action = int(rng.random() < right[cell])
            scores[episode, cell] += action - right[cell]
            if corridor.step(action):
                steps[episode] = step
                break
    advantages = (steps.mean() - steps) / LIMIT
    return advantages @ scores / EPISODES, float(steps.mean())


def improve(policy: Array, played: list[tuple[Array, float]]) -> tuple[Array, float]:
    gradients, steps = zip(*played, strict=True)
    return policy + RATE * np.sum(gradients, axis=0), float(np.mean(steps))


def main() -> None:
    ray.init(num_cpus=2)
    play_remotely = ray.remote(play)
    policy = expected = np.zeros(LENGTH)
    lengths = []
    for iteration in range(ITERATIONS):
        seeds = [iteration * PLAYERS + player for player in range(PLAYERS)]
        shared = ray.put(policy)
        policy, steps = improve(policy, ray.get([play_remotely.remote(shared, seed) for seed in seeds]))
        lengths.append(steps)
        expected, _ = improve(expected, [play(expected, seed) for seed in seeds])

    assert np.allclose(policy, expected), f"the policy is {policy}, in one process {expected}"
    assert lengths[-1] < lengths[0] / 2, f"{lengths[-1]} steps at the end, {lengths[0]} at first"
    actions = "".join("LR"[int(chance > 0.5)] for chance in chances(policy))
    assert actions == "RRLRRR", f"the policy is {actions}"
    print(f"answer: policy {actions}, {lengths[0]:.2f} steps at first, {lengths[-1]:.2f} at the end")


if __name__ == "__main__":
    main()
