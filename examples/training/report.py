"""What the training examples have in common on the command line: a quick form, a summary, and a picture."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

PICTURES = Path(__file__).resolve().parent.parent / "out"


def count(text: str) -> int:
    """A number on the command line that is at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {number}")
    return number


class Report:
    """The command line of one example, and what it shows at the end.

    Args:
        name: Of the example.
        text: What it does.
        steps: How many steps it takes.
        quick: The same with `--quick`.
    """

    def __init__(self, name: str, text: str | None, steps: int, quick: int) -> None:
        self.name = name
        self.parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.parser.add_argument("--steps", type=count, help=f"default: {steps}, or {quick} with --quick")
        self.parser.add_argument("--quick", action="store_true", help="a few steps, in seconds")
        self.parser.add_argument("--output", type=Path, default=PICTURES / f"{name}.png", help="the picture")
        self._defaults = (steps, quick)
        self._options = argparse.Namespace()

    def options(self) -> argparse.Namespace:
        """What the user wants."""
        self._options = self.parser.parse_args()
        if self._options.steps is None:
            self._options.steps = self._defaults[self._options.quick]
        return self._options

    def show(self, losses: Sequence[float], seconds: float) -> None:
        """Prints a summary of a training, and draws its loss."""
        print(f"{len(losses)} steps in {seconds:.1f} s: loss {losses[0]:.2f} -> {losses[-1]:.2f}")
        self.draw({"loss": losses}, "step", "cross-entropy", f"{self.name}: {len(losses) / seconds:.0f} steps/s")

    def draw(self, lines: Mapping[str, Sequence[float]], across: str, up: str, title: str) -> None:
        """Draws lines over the numbers of their points, if matplotlib is installed."""
        try:
            import matplotlib as mpl
        except ImportError:
            print("no picture: pip install matplotlib")
            return
        mpl.use("Agg")
        from matplotlib import pyplot as plt

        path: Path = self._options.output
        path.parent.mkdir(parents=True, exist_ok=True)
        figure, axes = plt.subplots(figsize=(8, 4.5), dpi=120)
        for label, values in lines.items():
            axes.plot(range(1, 1 + len(values)), values, marker="." if len(values) < 50 else "", label=label)
        axes.set(xlabel=across, ylabel=up, title=title)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if len(lines) > 1:
            axes.legend()
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)
        print(f"picture {path}")
