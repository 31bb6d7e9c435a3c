"""sooner.util.flat with tensors of PyTorch: they come back as tensors; steps in place end no process."""

from __future__ import annotations

import pickle
from collections import OrderedDict

import numpy as np
import pytest
from support import WAIT, run_driver

import sooner
from sooner.util.flat import Flat, Layout, LayoutError

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: install Debian's python3-torch, or the torch of PyPI, and run this file"
)


class NoArray(torch.Tensor):
    def numpy(self, *, force=False):
        raise RuntimeError("Numpy is not available")


def model(width=3):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))


def test_a_module_stands_for_its_named_parameters():
    net = model()
    flat = Flat.of(net)
    back = flat.tree()
    assert type(back) is dict
    assert list(back) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert all(type(leaf) is torch.Tensor and not leaf.requires_grad for leaf in back.values())
    assert all(torch.equal(back[name], parameter) for name, parameter in net.named_parameters())
    assert Layout.of(dict(net.named_parameters())) == flat.layout
    assert Flat.of({"net": net}).layout == Layout.of({"net": dict(net.named_parameters())})
    with pytest.raises(LayoutError, match=r"expected \['0\.weight'\] with shape \(3, 4\), found .* shape \(5, 4\)"):
        flat.check(Flat.of(model(width=5)))


def test_tensors_are_views_of_the_buffer_but_not_of_the_original():
    net = model()
    flat = Flat.of(net)
    flat.tree()["0.bias"].fill_(7)
    assert flat.buffer[12:15].tolist() == [7, 7, 7]
    assert not (net[0].bias == 7).any()
    flat.buffer[:] = 2
    net.load_state_dict(flat.tree())
    assert all(bool((parameter == 2).all()) for parameter in net.parameters())


def test_state_dicts_come_back():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    state = net.state_dict()
    with pytest.raises(TypeError, match=r"\['0\.weight'\] has float32, \['1\.num_batches_tracked'\] has int64"):
        Flat.of(state)
    back = Flat.of(state, cast=np.float32).tree()
    assert type(back) is OrderedDict
    assert list(back) == list(state)
    net.load_state_dict(back)


def test_tensors_of_any_strides_beside_arrays():
    tensor = torch.arange(6.0).reshape(2, 3)
    tree = [tensor.t(), tensor[:, ::2], np.ones(2, np.float32), torch.tensor(5.0), torch.zeros(0, 3)]
    flat = Flat.of(tree)
    assert flat.buffer.tolist() == [0, 3, 1, 4, 2, 5, 0, 2, 3, 5, 1, 1, 5]
    back = flat.tree()
    assert [type(leaf) for leaf in back] == [torch.Tensor] * 2 + [np.ndarray] + [torch.Tensor] * 2
    assert [tuple(leaf.shape) for leaf in back] == [(3, 2), (2, 2), (2,), (), (0, 3)]
    assert torch.equal(back[0], tensor.t())
    assert flat.layout == Layout.of([leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree])
    conjugate = torch.tensor([1 + 2j]).conj()
    assert Flat.of(conjugate).buffer.tolist() == [1 - 2j]


def test_tensors_of_a_read_only_buffer_can_be_written_to():
    flat = Flat.of({"a": torch.ones(3), "b": np.ones(3, np.float32)})
    flat.buffer.flags.writeable = False
    back = flat.tree()
    back["a"].add_(1)
    assert back["a"].tolist() == [2, 2, 2]
    assert flat.buffer.tolist() == [1] * 6
    assert np.shares_memory(back["b"], flat.buffer)
    assert not back["b"].flags.writeable


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: torch.ones(2, device="meta"), r"a tensor on meta, of which tensor\.cpu\(\) is a copy"),
        (lambda: torch.ones(2, dtype=torch.bfloat16), r"a tensor of torch\.bfloat16"),
        (lambda: torch.eye(2).to_sparse(), r"torch\.sparse_coo"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), r"a tensor of torch\.qint8"),
        (lambda: torch.ones(2).as_subclass(NoArray), r"a tensor of torch\.float32, .*Numpy is not available"),
        (lambda: model().named_parameters(), "class generator"),
    ],
    ids=["device", "bfloat16", "sparse", "quantized", "no array", "generator"],
)
def test_what_is_no_cpu_tensor_of_numbers_is_refused(make, found):
    with pytest.raises(TypeError, match=rf"cannot flatten a\[0\]: found .*{found}"):
        Flat.of({"a": [make()]})


def test_a_process_without_pytorch_has_the_buffer_but_not_the_tree(tmp_path):
    file = tmp_path / "flat"
    file.write_bytes(pickle.dumps(Flat.of({"a": torch.ones(3)})))
    run_driver(
        """
        import pickle, sys
        import numpy as np
        from sooner.util.flat import Layout
        flat = pickle.load(open(sys.argv[1], "rb"))
        assert flat.buffer.tolist() == [1, 1, 1]
        flat.check(Layout.of({"a": np.zeros(3, np.float32)}))
        try:
            flat.tree()
        except RuntimeError as error:
            assert "a was a tensor: import torch" in str(error), error
        else:
            raise AssertionError("a tree without PyTorch")
        assert "torch" not in sys.modules
        import torch
        assert torch.equal(flat.tree()["a"], torch.ones(3))
        """,
        file,
    )


@pytest.mark.api("own.flat")
def test_steps_of_training_in_tasks(shared_session):
    @sooner.remote
    def gradient(layout, weights, inputs):
        torch.set_num_threads(1)
        net = model()
        net.load_state_dict(layout.tree(weights))
        net(inputs).sum().backward()
        return layout.buffer({name: parameter.grad for name, parameter in net.named_parameters()})

    net = model()
    flat = Flat.of(net)
    inputs = torch.arange(8.0).reshape(2, 4)
    weights = sooner.put(flat.buffer)
    refs = [gradient.remote(flat.layout, weights, part) for part in inputs.split(1)]
    total = flat.tree(sum(sooner.get(refs, timeout=WAIT)))
    net(inputs).sum().backward()
    assert all(torch.allclose(total[name], parameter.grad) for name, parameter in net.named_parameters())
