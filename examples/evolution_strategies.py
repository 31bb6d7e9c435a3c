"""Evolution strategies on CartPole (the Ray paper, section 5.3.1): a policy learns by trying noisy copies of
    itself.

Worker actors simulate episodes. The policy is one shared object per iteration; the noise is one table in
shared memory that every worker reads in place; a tree of tasks adds up the gradient.

    python examples/evolution_strategies.py --seconds 30
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

import sooner
from sooner.util import tree_reduce

Vector = NDArray[np.float32]

HIDDEN = 16
NOISE_SIZE = 4_000_000
SIGMA = 0.1
LEARNING_RATE = 0.06
MOMENTUM = 0.8
WEIGHT_DECAY = 0.002
FAN_IN = 4
SOLVED = 475.0


class Episode(NamedTuple):
    """A mirrored pair of episodes: where its noise begins, and what both signs earned."""

    index: int
    plus: float
    minus: float
    steps: int


def policy_size(observations: int, actions: int) -> int:
    """Parameters of a network with one hidden layer."""
    return observations * HIDDEN + HIDDEN + HIDDEN * actions + actions


def act(parameters: Vector, observation: NDArray[Any], actions: int) -> int:
    """The action that the network prefers."""
    inputs = observation.shape[0]
    cut = inputs * HIDDEN
    first = parameters[:cut].reshape(inputs, HIDDEN)
    rest = parameters[cut + HIDDEN :]
    hidden = np.tanh(observation @ first + parameters[cut : cut + HIDDEN])
    second = rest[: HIDDEN * actions].reshape(HIDDEN, actions)
    return int(np.argmax(hidden @ second + rest[HIDDEN * actions :]))


@sooner.remote
class Simulator:
    """Plays episodes. Holds an environment and a view of the shared noise."""

    def __init__(self, environment: str, noise: Vector, seed: int) -> None:
        self.environment = gymnasium.make(environment)
        self.actions = int(self.environment.action_space.n)  # type: ignore[attr-defined]
        self.noise = noise
        self.random = np.random.default_rng(seed)

    def play(self, parameters: Vector) -> tuple[float, int]:
        """One episode: reward and steps."""
        observation, _ = self.environment.reset(seed=int(self.random.integers(2**31)))
        reward, steps, over = 0.0, 0, False
        while not over:
            observation, gain, ended, cut, _ = self.environment.step(act(parameters, observation, self.actions))
            reward += float(gain)
            steps += 1
            over = ended or cut
        return reward, steps

    def evaluate(self, parameters: Vector, pairs: int) -> list[Episode]:
        """Plays mirrored pairs of episodes with noise from the table."""
        episodes = []
        for _ in range(pairs):
            index = int(self.random.integers(self.noise.size - parameters.size))
            step = SIGMA * self.noise[index : index + parameters.size]
            plus, first = self.play(parameters + step)
            minus, second = self.play(parameters - step)
            episodes.append(Episode(index, plus, minus, first + second))
        return episodes

    def score(self, parameters: Vector, episodes: int) -> float:
        """Mean reward of the policy without noise."""
        return float(np.mean([self.play(parameters)[0] for _ in range(episodes)]))


@sooner.remote(num_cpus=0.5)
def gradient_of(noise: Vector, episodes: list[Episode], size: int, scale: float) -> Vector:
    """The part of the gradient that one worker's episodes give."""
    total = np.zeros(size, dtype=np.float32)
    for episode in episodes:
        total += (episode.plus - episode.minus) / scale * noise[episode.index : episode.index + size]
    return total


@sooner.remote(num_cpus=0.5)
def add(a: Vector, b: Vector) -> Vector:
    """Adds two parts of the gradient."""
    return a + b


def adding_tasks(parts: int) -> int:
    """The number of tasks of a tree that adds up so many parts: one for each group of two or more."""
    tasks = 0
    while parts > 1:
        groups, rest = divmod(parts, FAN_IN)
        tasks += groups + (rest > 1)
        parts = groups + (rest > 0)
    return tasks


class History(NamedTuple):
    """What happened per iteration."""

    rewards: list[float]
    seconds: list[float]
    tasks: int
    episodes: int


def train(options: argparse.Namespace, show: Any) -> History:
    """Runs iterations until the time or their number is over."""
    random = np.random.default_rng(options.seed)
    probe = gymnasium.make(options.environment)
    observations = int(np.prod(probe.observation_space.shape or (1,)))
    size = policy_size(observations, int(probe.action_space.n))  # type: ignore[attr-defined]
    noise = sooner.put(random.standard_normal(NOISE_SIZE, dtype=np.float32))
    simulators = [Simulator.remote(options.environment, noise, options.seed + n) for n in range(options.workers)]
    parameters = (0.1 * random.standard_normal(size)).astype(np.float32)
    velocity = np.zeros(size, dtype=np.float32)
    history = History([], [], 0, 0)
    start = time.monotonic()
    for iteration in range(options.iterations):
        policy = sooner.put(parameters)
        score = simulators[0].score.remote(policy, 4)
        batches = [simulator.evaluate.remote(policy, options.pairs) for simulator in simulators for _ in range(4)]
        episodes = [episode for batch in sooner.get(batches) for episode in batch]
        scale = float(np.std([(e.plus, e.minus) for e in episodes])) + 1e-6
        parts = [gradient_of.remote(noise, batch, size, scale) for batch in batches]
        gradient = tree_reduce(add, parts, fan_in=FAN_IN)
        step = sooner.get(gradient) / (2 * len(episodes) * SIGMA)
        velocity = MOMENTUM * velocity + (1 - MOMENTUM) * step
        parameters = (parameters * (1 - WEIGHT_DECAY) + LEARNING_RATE * velocity).astype(np.float32)
        elapsed = time.monotonic() - start
        history.rewards.append(sooner.get(score))
        history.seconds.append(elapsed)
        tasks = history.tasks + 1 + len(batches) + len(parts) + adding_tasks(len(parts))
        history = history._replace(tasks=tasks, episodes=history.episodes + 2 * len(episodes))
        done = max((iteration + 1) / options.iterations, elapsed / options.seconds)
        show(done, history)
        if elapsed >= options.seconds:
            break
    return history


def smooth(values: list[float], width: int = 7) -> NDArray[np.float64]:
    """Running mean over the values before."""
    return np.array([np.mean(values[max(0, at - width + 1) : at + 1]) for at in range(len(values))])


def draw(history: History, environment: str, path: Path) -> None:
    """Writes the reward curve."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=120)
    axes.plot(history.seconds, history.rewards, color="#9ecae1", linewidth=1, label="each iteration")
    axes.plot(history.seconds, smooth(history.rewards), color="#08519c", linewidth=2.2, label="running mean")
    if environment == "CartPole-v1":
        axes.axhline(SOLVED, color="#31a354", linestyle="--", linewidth=1, label="solved (475)")
    axes.set(xlabel="seconds", ylabel="reward per episode", title=f"Evolution strategies on {environment} with sooner")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def run(options: argparse.Namespace) -> History:
    """Trains with a live progress bar, or with plain lines when nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console()
    begin = time.monotonic()
    if not console.is_terminal:
        last = [0.0]

        def show_line(done: float, history: History) -> None:
            if time.monotonic() - last[0] > 2 or done >= 1:
                last[0] = time.monotonic()
                rate = history.tasks / (time.monotonic() - begin)
                print(f"{min(done, 1):4.0%}  reward {history.rewards[-1]:6.1f}  {rate:6.0f} tasks/s", flush=True)

        return train(options, show_line)
    columns = (
        TextColumn("[bold]reward {task.fields[reward]:6.1f}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%  {task.fields[rate]:5.0f} tasks/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("train", total=1.0, reward=0.0, rate=0.0)

        def show_bar(done: float, history: History) -> None:
            rate = history.tasks / (time.monotonic() - begin)
            progress.update(bar, completed=min(done, 1.0), reward=smooth(history.rewards)[-1], rate=rate)

        return train(options, show_bar)


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="Evolution strategies on a real simulator, with sooner.")
    parser.add_argument("--iterations", type=int, default=10_000, help="at most so many")
    parser.add_argument("--seconds", type=float, default=30.0, help="train for so long")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=4, help="mirrored pairs per call")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--environment", default="CartPole-v1", help="any with discrete actions")
    parser.add_argument("--output", type=Path, default=Path("examples/out/evolution_strategies.png"))
    parser.add_argument("--quick", action="store_true", help="8 seconds")
    options = parser.parse_args()
    if options.quick:
        options.seconds = 8.0
    return options


def main() -> None:
    """Trains, prints a summary, draws."""
    options = parse()
    begin = time.monotonic()
    with sooner.init():
        print(f"training a policy on {options.environment} with {options.workers} simulators")
        history = run(options)
    draw(history, options.environment, options.output)
    rewards = smooth(history.rewards)
    seconds = time.monotonic() - begin
    print(f"reward      {history.rewards[0]:.1f} -> {rewards[-1]:.1f}")
    print(f"iterations  {len(history.rewards)} with {history.episodes} episodes")
    print(f"tasks       {history.tasks} ({history.tasks / history.seconds[-1]:.0f} per second)")
    print(f"time        {seconds:.1f} s")
    print(f"picture     {options.output}")


if __name__ == "__main__":
    main()
