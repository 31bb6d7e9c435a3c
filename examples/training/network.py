"""A network with one hidden layer, written out in NumPy, and the digits that it learns to read.

Whatever is random takes its seed from the step and the part of the batch, and not from a worker. So results
do not depend on how many workers there are, or which of them died.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sooner
from sooner.util.flat import Flat, Layout

Floats = NDArray[np.float64]
Tree = dict[str, Floats]

SIZES = (64, 128, 10)
# A batch is cut into so many parts, whoever computes them.
PARTS = 8
PART_SIZE = 16


def load_digits() -> tuple[Floats, NDArray[np.int64]]:
    """The 1,797 images of 8 x 8 pixels that come with scikit-learn, and what they show."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise SystemExit("this example needs the digits of scikit-learn: pip install scikit-learn") from error
    digits: Any = datasets.load_digits()
    return digits.data / 16.0, digits.target.astype(np.int64)


def first_parameters(seed: int) -> Flat:
    """Parameters to begin with, as one array."""
    random = np.random.default_rng(seed)
    inputs, hidden, outputs = SIZES
    return Flat.of(
        {
            "hidden": random.standard_normal((inputs, hidden)) / np.sqrt(inputs),
            "hidden_bias": np.zeros(hidden),
            "output": random.standard_normal((hidden, outputs)) / np.sqrt(hidden),
            "output_bias": np.zeros(outputs),
        }
    )


def stored(values: Floats) -> Floats:
    """The same values in shared memory: the program that asks for them is sent none, however few they are."""
    array, _ = sooner.empty(values.shape, values.dtype)
    array[...] = values
    return array


def part_of(step: int, part: int, count: int) -> NDArray[np.int64]:
    """Which of `count` images are in one part of the batch of a step."""
    return np.random.default_rng([step, part]).integers(count, size=PART_SIZE)


def backward(tree: Tree, images: Floats, labels: NDArray[np.int64]) -> Iterator[tuple[float, Tree]]:
    """The mean cross-entropy over some images, with the gradients of each layer, the last one first."""
    activations = np.tanh(images @ tree["hidden"] + tree["hidden_bias"])
    scores = activations @ tree["output"] + tree["output_bias"]
    scores -= scores.max(axis=1, keepdims=True)
    logarithms = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    loss = float(-logarithms[rows, labels].mean())

    of_scores = np.exp(logarithms)
    of_scores[rows, labels] -= 1
    of_scores /= len(labels)
    yield loss, {"output": activations.T @ of_scores, "output_bias": of_scores.sum(axis=0)}
    of_hidden = (of_scores @ tree["output"].T) * (1 - activations**2)
    yield loss, {"hidden": images.T @ of_hidden, "hidden_bias": of_hidden.sum(axis=0)}


def loss_and_gradient(tree: Tree, images: Floats, labels: NDArray[np.int64]) -> tuple[float, Tree]:
    """The mean cross-entropy over some images, and its gradient."""
    (loss, last), (_, first) = backward(tree, images, labels)
    return loss, {name: (last | first)[name] for name in tree}


def part_gradient(layout: Layout, parameters: Floats, data: Any, step: int, part: int) -> tuple[float, Floats]:
    """Loss and gradient of one part of a batch, as one array.

    Raises:
        FloatingPointError: The gradient is not finite: it must not be applied.
    """
    images, labels = data
    rows = part_of(step, part, len(images))
    loss, tree = loss_and_gradient(layout.tree(parameters), images[rows], labels[rows])
    gradient = layout.buffer(tree)
    if not np.isfinite(gradient).all():
        raise FloatingPointError(f"the gradient of step {step}, part {part} is not finite")
    return loss, gradient


def accuracy(tree: Tree, data: Any) -> float:
    """The share of images that are read right."""
    images, labels = data
    scores = np.tanh(images @ tree["hidden"] + tree["hidden_bias"]) @ tree["output"] + tree["output_bias"]
    return float((scores.argmax(axis=1) == labels).mean())
