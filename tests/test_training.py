"""The training examples are right: equal to one process, the same in every bit, also when processes die."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from support import WAIT

import sooner
from sooner.util import state

pytest.importorskip("sklearn")
TRAINING = Path(__file__).parent.parent / "examples" / "training"
STEPS = 50


def of_examples(name):
    """A module of the examples. Workers find it, too: they have this program's `sys.path`."""
    if str(TRAINING) not in sys.path:
        sys.path.insert(0, str(TRAINING))
    return importlib.import_module(name)


network = of_examples("network")
sharded = of_examples("shards")
server = of_examples("parameter_server")
allreduce = of_examples("allreduce")


def in_one_process(rate, momentum, steps=STEPS):
    """The parameters after some steps on whole batches."""
    flat = network.first_parameters(0)
    images, labels = network.load_digits()
    parameters, velocity = flat.buffer.copy(), np.zeros_like(flat.buffer)
    for step in range(steps):
        rows = np.concatenate([network.part_of(step, part, len(images)) for part in range(network.PARTS)])
        _, tree = network.loss_and_gradient(flat.layout.tree(parameters), images[rows], labels[rows])
        velocity = momentum * velocity - rate * flat.layout.buffer(tree)
        parameters += velocity
    return parameters


def test_gradients_are_those_of_finite_differences():
    images, labels = network.load_digits()
    images, labels = images[:20], labels[:20]
    flat = network.first_parameters(1)
    _, tree = network.loss_and_gradient(flat.tree(), images, labels)
    gradient = flat.layout.buffer(tree)
    places = np.random.default_rng(2).choice(flat.buffer.size, 300, replace=False)
    for place in [*places, flat.buffer.size - 1]:
        losses = []
        for change in (1e-6, -1e-6):
            moved = flat.buffer.copy()
            moved[place] += change
            losses.append(network.loss_and_gradient(flat.tree(moved), images, labels)[0])
        assert gradient[place] == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-7)


@pytest.fixture(scope="module")
def calm(shared_session):
    """What two workers and two shards make when nobody dies."""
    return server.train(sharded.Server(2, 2), STEPS)


@pytest.mark.usefixtures("shared_session")
class TestParameterServer:
    def test_it_is_equal_to_one_process(self, calm):
        expected = in_one_process(sharded.RATE, sharded.MOMENTUM)
        np.testing.assert_allclose(calm.parameters, expected, rtol=0, atol=1e-10)
        assert calm.losses[-1] < calm.losses[0] / 2
        assert calm.steps == [STEPS, STEPS]

    @pytest.mark.parametrize(("workers", "shards"), [(2, 2), (1, 1), (4, 3)])
    def test_every_run_has_the_same_bits(self, calm, workers, shards):
        run = server.train(sharded.Server(workers, shards), STEPS)
        assert run.parameters.tobytes() == calm.parameters.tobytes()
        assert run.losses == calm.losses

    @pytest.mark.chaos
    @pytest.mark.parametrize("seed", range(3))
    def test_processes_that_die_change_no_bit(self, calm, seed):
        draws = random.Random(seed)
        made = sharded.Server(2, 2)
        victims = [*made.workers, *made.shards]
        deaths = {step: draws.choice(victims) for step in draws.sample(range(STEPS), 5)}

        def on_step(step):
            if step in deaths:
                sooner.kill(deaths[step], no_restart=False)

        run = server.train(made, STEPS, on_step)
        assert run.parameters.tobytes() == calm.parameters.tobytes()
        assert run.losses == calm.losses
        assert run.steps == [STEPS, STEPS]
        ids = {victim._actor_id.hex() for victim in victims}
        assert sum(row.restarts for row in state.list_actors(limit=10_000) if row.actor_id in ids) > 0

    def test_without_waiting_a_slow_worker_counts_seldom(self):
        run = server.train_async(sharded.Server(4, 2, slow=0.2, rate=server.RATE_ASYNC), STEPS)
        assert sum(run.used) == 2 * STEPS
        assert run.used[0] <= 2 * STEPS / 5
        assert np.mean(run.losses[-10:]) < run.losses[0] / 2
        assert run.steps == [STEPS, STEPS]

    @pytest.mark.parametrize("hidden", [64, 2048])
    def test_the_program_is_sent_little_whatever_the_size_of_the_model(self, monkeypatch, hidden):
        """What a task returns in messages comes to its owner, which is this process."""
        monkeypatch.setattr(network, "SIZES", (64, hidden, 10))
        made = sharded.Server(2, 2)
        in_messages = {}

        def on_step(step):
            rows = state.list_objects(filters=[("location", "=", "message")], detail=True, limit=10_000)
            in_messages.update({row.object_id: row.object_size for row in rows if row.is_owner})

        server.train(made, 10, on_step)
        assert made.layout.size * 8 > 30_000
        assert in_messages, "losses are small"
        assert sum(in_messages.values()) < 10 * 10_000

    def test_what_cannot_be(self):
        for workers, shards in ((0, 1), (1, 0), (1, 10_000_000)):
            with pytest.raises(ValueError, match="at least one worker, and 1 to"):
                sharded.Server(workers, shards)

    def test_a_gradient_that_is_not_finite_is_not_applied(self):
        made = sharded.Server(1, 1)
        made.weights = [sooner.put(np.full_like(network.first_parameters(0).buffer, np.nan))]
        with pytest.raises(FloatingPointError, match="the gradient of step 0, part 0 is not finite"):
            sooner.get(sooner.reduce([made.gradient(0, 0, 0)[1]]), timeout=WAIT)


@pytest.mark.usefixtures("shared_session")
class TestAllReduce:
    def test_replicas_are_equal_to_one_process_and_to_each_other(self):
        expected = in_one_process(allreduce.RATE, 0.0)
        runs = [allreduce.train(replicas, STEPS) for replicas in (1, 2, 3)]
        for run in runs:
            np.testing.assert_allclose(run.parameters[0], expected, rtol=0, atol=1e-10)
            assert {parameters.tobytes() for parameters in run.parameters} == {runs[0].parameters[0].tobytes()}
            assert run.losses == runs[0].losses


@pytest.mark.usefixtures("shared_session")
class TestAllReduceOfTorch:
    def test_replicas_are_equal_to_one_process_and_to_each_other(self):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        replicas = of_examples("allreduce_torch")
        model = replicas.network()
        images, labels = map(torch.tensor, network.load_digits())
        optimizer = torch.optim.SGD(model.parameters(), replicas.RATE, replicas.MOMENTUM)
        for step in range(STEPS):
            parts = [network.part_of(step, part, len(images)) for part in range(network.PARTS)]
            rows = torch.tensor(np.concatenate(parts))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
        expected = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
        runs = [replicas.train(count, STEPS) for count in (1, 2, 3)]
        for run in runs:
            np.testing.assert_allclose(run.weights[0][0], expected, rtol=0, atol=1e-10)
            assert {values.tobytes() for values, _ in run.weights} == {runs[0].weights[0][0].tobytes()}
            assert run.losses == runs[0].losses


@pytest.mark.parametrize(
    ("example", "argument", "said"),
    [
        ("allreduce", "--replicas=0", "argument --replicas: at least 1, not 0"),
        ("allreduce", "--steps=-3", "argument --steps: at least 1, not -3"),
        ("parameter_server", "--workers=0", "argument --workers: at least 1, not 0"),
        ("parameter_server", "--shards=x", "argument --shards: invalid count value: 'x'"),
        ("parameter_server", "--slow=-1", "--slow takes seconds, 0 or more, not -1.0"),
        ("ring", "--members=1", "a ring has at least 2 members, not 1"),
        ("ring", "--size=-1", "argument --size: at least 1, not -1"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(monkeypatch, capsys, example, argument, said):
    monkeypatch.setattr("sys.argv", [f"{example}.py", argument])
    with pytest.raises(SystemExit):
        of_examples(example).main()
    assert said in capsys.readouterr().err
