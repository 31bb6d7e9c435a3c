"""PyTorch's tensors: out of band, of this process alone, and sharing what they shared."""

from __future__ import annotations

import pytest
from support import WAIT, run_driver

import sooner

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: install Debian's python3-torch, or the torch of PyPI, and run this file"
)

pytestmark = pytest.mark.usefixtures("shared_session")

_LARGE = 500_000


def through(value):
    return sooner.get(sooner.put(value), timeout=WAIT)


def size_of(value):
    (found,) = sooner.experimental.get_local_object_locations([sooner.put(value)]).values()
    return found["object_size"]


@pytest.mark.api("values.tensors")
@pytest.mark.parametrize("count", [10, _LARGE])
def test_a_step_in_place_works_and_changes_no_other_copy(count):
    @sooner.remote
    def step(weights):
        weights += 1
        weights.zero_()[0] = 7
        return weights

    ref = sooner.put(torch.ones(count))
    first, second = sooner.get(ref, timeout=WAIT), sooner.get(ref, timeout=WAIT)
    first.mul_(3)
    assert float(second.sum()) == count
    assert float(first.sum()) == 3 * count
    result = sooner.get(step.remote(ref), timeout=WAIT)
    result -= 1
    assert float(result[0]) == 6.0
    assert torch.equal(sooner.get(ref, timeout=WAIT), torch.ones(count))
    for kept in (sooner.get(ref, copy=True), sooner.take(sooner.put(torch.ones(count)))):
        kept.add_(1)
        assert float(kept[0]) == 2


def test_a_step_in_place_by_a_program_of_its_own():
    run_driver(
        """
        import sooner, torch
        sooner.init(num_cpus=1)
        class Holder:
            def __init__(self):
                self.tensor = torch.ones(300_000)
        holder = sooner.get(sooner.put(Holder()))
        holder.tensor.mul_(2)
        assert float(holder.tensor[-1]) == 2
        sooner.shutdown()
        """
    )


def test_large_tensors_travel_out_of_band():
    ref = sooner.put(torch.arange(_LARGE))
    assert _LARGE * 8 <= size_of(torch.arange(_LARGE)) < _LARGE * 8 + 4096
    # Unread pages cost nothing: both lie in the store's memory until they are written to.
    assert torch.equal(sooner.get(ref, timeout=WAIT), torch.arange(_LARGE))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        lambda: torch.arange(10)[3:7],
        lambda: torch.arange(10)[:: -1 * -3],
        lambda: torch.tensor(5.5),
        lambda: torch.empty(0, 3),
        lambda: torch.ones(3, 1).expand(3, 50),
        lambda: torch.ones(4, dtype=torch.bfloat16),
        lambda: torch.tensor([True, False]),
        lambda: torch.tensor([1 + 2j, 3j]),
        lambda: torch.tensor([1 + 2j, 3j]).conj(),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        lambda: torch.arange(100).reshape(10, 10)[:, 3],
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_kinds_of_tensors(make):
    before = make()
    got = through({"in": before})["in"]
    assert (got.dtype, got.size(), got.layout) == (before.dtype, before.size(), before.layout)
    if before.layout is torch.strided and not before.is_quantized:
        assert torch.equal(got, before)


def test_gradients_and_strides_are_kept():
    weights = torch.ones(200_000, requires_grad=True)
    got = through(weights)
    assert got.requires_grad
    assert got.is_leaf
    (got * 2).sum().backward()
    assert float(got.grad[0]) == 2
    assert weights.grad is None
    turned = through(torch.zeros(300, 500).t())
    assert turned.stride() == (1, 500)


def test_shared_storages_stay_shared_and_parts_travel_alone():
    whole = torch.zeros(_LARGE)
    a, b = through([whole[10:20], whole[15:100]])
    a[5] = 3
    assert float(b[0]) == 3
    assert size_of([whole[10:20], whole[15:100]]) < 20_000
    assert size_of(whole[10:20]) < 20_000
    assert size_of(torch.zeros(2_000, 1_000)[:, 7]) < 40_000
    layer = torch.nn.Linear(3, 3)
    tied = torch.nn.Sequential(layer, layer, torch.nn.Linear(3, 3))
    tied[2].weight = layer.weight
    got = through(tied)
    assert got[0] is got[1]
    assert got[2].weight is got[0].weight
    assert isinstance(got[0].weight, torch.nn.Parameter)


def test_models_in_closures_and_actors():
    model = torch.nn.Linear(400, 400)
    part = torch.arange(float(_LARGE))[5:8]

    @sooner.remote
    class Trainer:
        def step(self, given):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1)
                given.add_(part.sum())
            return model.state_dict(), given

    state, given = sooner.get(Trainer.remote().step.remote(torch.zeros(50_000)), timeout=WAIT)
    assert torch.allclose(state["weight"], model.weight + 1)
    state["weight"].zero_()
    assert float(given[0]) == 18


def test_saving_and_plain_pickling_are_those_of_torch(tmp_path):
    import pickle

    through(torch.ones(3))
    torch.save(torch.ones(3), tmp_path / "t.pt")
    assert torch.equal(torch.load(tmp_path / "t.pt"), torch.ones(3))
    assert b"sooner" not in pickle.dumps(torch.ones(3))
