"""ttml by name: small programs as tt-train writes them, and names with another form than ours."""

import collections
import math
import os
import subprocess
import sys

import formulas
import numpy as np
import pytest
from machine import strict_with_fabric
from started import MPIEXEC, OPEN_MPI

import ttkit
from ttkit import TTKitError, ttml, ttnn

FLOAT32 = ttnn.DataType.FLOAT32
TOKENS = ttml.Layout.ROW_MAJOR, ttml.autograd.DataType.UINT32


def place(array, layout=ttml.Layout.TILE, kind=None):
    return ttml.autograd.Tensor.from_numpy(array, layout, kind)


def test_linear_regression_learns():
    model = ttml.models.linear_regression.create_linear_regression_model(2, 1)
    assert sum(math.prod(p.shape()) for p in model.parameters().values()) == 3
    config = ttml.optimizers.SGDConfig.make(0.1, 0.0, 0.0, 0.0, False)
    optimizer = ttml.optimizers.SGD(model.parameters(), config)
    random = np.random.default_rng(0)
    model.train()
    for _ in range(60):
        x = random.standard_normal((32, 1, 1, 2), dtype=np.float32)
        y = np.float32(x @ [[2], [-3]] + 0.5)
        optimizer.zero_grad()
        loss = ttml.ops.loss.mse_loss(model(place(x)), place(y), ttml.ops.ReduceType.MEAN)
        loss.backward(False)
        optimizer.step()
    found = {name: p.to_numpy(FLOAT32).ravel() for name, p in model.parameters().items()}
    np.testing.assert_allclose(found["linear/weight"], [2, -3], atol=1e-4)
    np.testing.assert_allclose(found["linear/bias"], [0.5], atol=1e-4)


def small(config, **more):
    config.num_heads, config.embedding_dim, config.num_blocks = 4, 64, 1
    config.vocab_size, config.max_sequence_length, config.dropout_prob = 64, 32, 0.0
    config.runner_type = ttml.models.RunnerType.MemoryEfficient
    config.weight_tying = ttml.models.WeightTyingType.Enabled
    for name, value in more.items():
        setattr(config, name, value)
    return config


def gpt2():
    return ttml.models.gpt2.create_gpt2_model(small(ttml.models.gpt2.GPT2TransformerConfig()))


def llama():
    config = small(ttml.models.llama.LlamaConfig(), num_groups=2, theta=5e5)
    return ttml.models.llama.create_llama_model(config)


MASK = np.tril(np.ones((1, 1, 32, 32), np.float32))


@pytest.mark.parametrize("create", [gpt2, llama])
def test_a_transformer_learns(create):
    model = create()
    config = ttml.optimizers.AdamWConfig.make(3e-3, 0.9, 0.999, 1e-8, 0.01)
    optimizer = ttml.optimizers.AdamW(model.parameters(), config)
    ids = np.random.default_rng(0).integers(0, 64, (2, 1, 1, 32), np.uint32)
    targets = np.roll(ids, -1, -1).reshape(2, 32)
    mask, losses = place(MASK, ttml.Layout.TILE, ttml.autograd.DataType.BFLOAT16), []
    for _ in range(8):
        optimizer.zero_grad()
        logits = model(place(ids, *TOKENS), mask)
        assert logits.shape() == [2, 1, 32, 64]
        loss = ttml.ops.loss.cross_entropy_loss(logits, place(targets, *TOKENS))
        wanted = formulas.cross_entropy(logits.to_numpy(FLOAT32).astype(float), targets)
        np.testing.assert_allclose(float(loss.to_numpy()), wanted, rtol=1e-4)
        losses.append(wanted)
        loss.backward(False)
        ttml.autograd.AutoContext.get_instance().reset_graph()
        ttml.core.clip_grad_norm(model.parameters(), 1.0, 2.0, False)
        optimizer.step()
    assert losses[-1] < losses[0] - 0.5


def test_the_same_on_a_mesh():
    """Tensor-parallel over four chips as on one: the same logits.

    The vocabulary is whole tiles on each chip, as tt-train rounds it.
    """
    ids = np.random.default_rng(0).integers(0, 64, (1, 1, 1, 32), np.uint32)
    config = small(ttml.models.gpt2.GPT2TransformerConfig(), vocab_size=128)
    one = ttml.models.gpt2.create_gpt2_model(config)(place(ids, *TOKENS)).to_numpy(FLOAT32)
    context = ttml.autograd.AutoContext.get_instance()
    context.close_device()
    context.open_device([1, 4])
    context.initialize_parallelism_context(ttkit.train.DistributedConfig(enable_tp=True))
    model = ttml.models.distributed.gpt2.create_gpt2_model(config)
    composer = ttml.core.distributed.concat_mesh_to_tensor_composer(context.get_device(), 0)
    four = model(place(ids, *TOKENS)).to_numpy(FLOAT32, composer)
    for values in four:
        np.testing.assert_allclose(values[None], one, atol=1e-4)


DEVICES = {"one": [1, 1], "sharded": [1, 2], "replicated": [1, 4]}


def training(how):
    """Return losses, parameters by name and {collective: calls} of a run as in tt-train's programs,
    which make no parallelism context.
    """
    context, optimizers = ttml.autograd.AutoContext.get_instance(), ttml.optimizers
    context.close_device()
    seed = context.get_seed()
    context.set_seed(42)
    context.open_device(DEVICES[how], [])
    settings = small(ttml.models.llama.LlamaConfig(), num_groups=2)
    settings.weight_tying = ttml.models.WeightTyingType.Disabled
    settings.runner_type = ttml.models.RunnerType.Default
    models = ttml.models.distributed if how == "sharded" else ttml.models
    model = models.llama.create_llama_model(settings)
    rates = optimizers.AdamWConfig.make(3e-3, 0.9, 0.999, 1e-8, 0.01)
    optimizer = optimizers.MorehAdamW(model.parameters(), rates)
    mapper, composer = None, None
    if how != "one":
        mesh = context.get_device()
        composer = ttml.core.distributed.concat_mesh_to_tensor_composer(mesh, 0)
    if how == "replicated":
        mapper = ttml.core.distributed.shard_tensor_to_mesh_mapper(mesh, 0)
    random, losses = np.random.default_rng(0), []
    with ttkit.profile() as profile:
        for _ in range(3):
            optimizer.zero_grad()
            ids = random.integers(0, 64, (4, 33), np.uint32)
            x = ttml.autograd.Tensor.from_numpy(ids[:, :32].reshape(4, 1, 1, 32), *TOKENS, mapper)
            y = ttml.autograd.Tensor.from_numpy(ids[:, 1:], *TOKENS, mapper)
            reduce = ttml.ops.ReduceType.MEAN
            loss = ttml.ops.loss.cross_entropy_loss(model(x, place(MASK)), y, reduce)
            loss.backward(False)
            losses.append(loss.to_numpy(composer=composer).mean())
            if how == "replicated":
                ttml.core.distributed.synchronize_parameters(model.parameters())
            optimizer.step()
        calls = [record.name for record in profile.records if record.kind == "communication"]
    values = {name: parameter.gather() for name, parameter in model.parameters().items()}
    context.set_seed(seed)
    return losses, values, collections.Counter(calls)


@pytest.fixture(scope="module")
def on_one_chip():
    with strict_with_fabric():
        return training("one")


@pytest.mark.parametrize("how", ["sharded", "replicated"])
def test_parallel_programs_communicate_and_train_as_one_chip(on_one_chip, how):
    losses, values, none = on_one_chip
    assert not none
    have, found, calls = training(how)
    if how == "sharded":
        # of a step: the embedding, attention and MLP forwards; both and the head backwards
        assert calls == {"all_reduce": 3 * 6, "all_gather": 3}
    else:
        assert calls == {"all_reduce": 3 * len(values)}
    np.testing.assert_allclose(have, losses, rtol=1e-5)
    assert found.keys() == values.keys() and "llama/blocks/0/attention/query/weight" in found
    for name, value in found.items():
        np.testing.assert_allclose(value, values[name], atol=2e-4, err_msg=name)


def test_a_sharded_model_has_chips_to_share_it_or_is_refused():
    context, config = ttml.autograd.AutoContext.get_instance(), ttml.autograd.DistributedConfig
    create = ttml.models.distributed.llama.create_llama_model
    layers = ttml.modules.ColumnParallelLinear, ttml.modules.RowParallelLinear
    settings = small(ttml.models.llama.LlamaConfig(), num_groups=2)
    context.open_device([2, 4])
    for make in (
        lambda: create(settings),
        *(lambda layer=layer: layer(64, 64) for layer in layers),
    ):
        with pytest.raises(
            TTKitError, match=r"enable_tp on MeshShape.* must equal mesh dimensions"
        ):
            make()
    context.close_device()
    context.open_device([1, 4])
    assert [layer(64, 64).weight.shape() for layer in layers] == [[1, 1, 16, 64], [1, 1, 64, 16]]
    context.initialize_parallelism_context(config(enable_ddp=True))
    with pytest.raises(TTKitError, match=r"tensor parallelism is off.*\n.*ttml\.models\.llama"):
        create(settings)


def test_cross_entropy():
    """Unequal values on each of two chips; the value and the gradient by their formulas."""
    context = ttml.autograd.AutoContext.get_instance()
    context.open_device([1, 2])
    random, mesh = np.random.default_rng(0), context.get_device()
    values = random.standard_normal((4, 1, 32, 64), dtype=np.float32)
    targets = random.integers(0, 64, (4, 32), np.uint32)
    mapper = ttml.core.distributed.shard_tensor_to_mesh_mapper(mesh, 0)
    logits = ttml.autograd.Tensor.from_numpy(values, ttml.Layout.TILE, FLOAT32, mapper)
    loss = ttml.ops.loss.cross_entropy_loss(
        logits, ttml.autograd.Tensor.from_numpy(targets, *TOKENS, mapper)
    )
    loss.backward(False)
    composer = ttml.core.distributed.concat_mesh_to_tensor_composer(mesh, 0)
    whole = values.astype(float)
    losses = [formulas.cross_entropy(whole[i : i + 2], targets[i : i + 2]) for i in (0, 2)]
    np.testing.assert_allclose(loss.to_numpy(composer=composer).ravel(), losses, rtol=1e-5)
    slope = ttkit.to_numpy(logits.get_grad(), mesh_composer=composer)[:, 0]
    np.testing.assert_allclose(
        slope, (formulas.softmax(whole[:, 0]) - np.eye(64)[targets]) / 64, atol=1e-6
    )


def test_gradient_mode():
    context, modes = ttml.autograd.AutoContext.get_instance(), ttml.autograd.GradMode
    x = place(np.ones((1, 1, 32, 32), np.float32))
    context.set_gradient_mode(modes.DISABLED)
    try:
        assert context.get_gradient_mode() is modes.DISABLED
        y = ttml.ops.unary.relu(x)
    finally:
        context.set_gradient_mode(modes.ENABLED)
    assert not y.get_requires_grad() and context.get_gradient_mode() is modes.ENABLED
    assert ttml.ops.unary.relu(x).get_requires_grad()


def test_refused():
    x = place(np.ones((1, 1, 32, 32), np.float32))
    with pytest.raises(AttributeError, match="SUM"):
        ttml.ops.loss.mse_loss(x, x, ttml.ops.ReduceType.SUM)
    with pytest.raises(TTKitError, match="p_norm_type=1 is not 2"):
        ttml.core.clip_grad_norm({}, 1.0, 1)
    model, ids = gpt2(), np.zeros((1, 1, 1, 32), np.uint32)
    tokens = place(ids, *TOKENS)
    with pytest.raises(TTKitError, match="attention is causal here"):
        model(tokens, place(np.ones_like(MASK)))
    with pytest.raises(TTKitError, match="num_head"):
        ttml.models.gpt2.create_gpt2_model(ttml.models.gpt2.GPT2TransformerConfig(num_head=2))
    with pytest.raises(AttributeError, match="begin_capture"):
        ttml.core.utils.MemoryUsageTracker.begin_capture()
    with pytest.raises(AttributeError, match=r"ttkit\.ttml\.ops\.loss.*nll_loss"):
        ttml.ops.loss.nll_loss  # noqa: B018


PROGRAM = """
import sys

import numpy as np
import ttml

context = ttml.autograd.AutoContext.get_instance()
context.initialize_distributed_context(*sys.argv)
ranks = context.get_distributed_context()
context.initialize_socket_manager(ttml.core.distributed.SocketType.MPI)
sockets, rank = context.get_socket_manager(), ranks.rank()
values = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
kinds = ttml.Layout.TILE, ttml.autograd.DataType.BFLOAT16
if rank == 0:
    tensor = ttml.autograd.Tensor.from_numpy(values, *kinds)
    tensor.set_grad((tensor * 3.0).get_value())
    for other in range(1, ranks.size()):
        sockets.send(tensor, ranks, other)
        sockets.send(tensor, ranks, other, use_grad=True)
else:
    like = ttml.autograd.Tensor.from_numpy(np.zeros_like(values), *kinds)
    sockets.recv(ttml.core.empty_like(like), ranks, 0)
    got = sockets.recv(like, ranks, 0, use_grad=True)
    assert got is like and not like.to_numpy().any()
    print("rank", rank, ttml.autograd.Tensor(like.get_grad()).to_numpy().ravel().tolist())
ranks.barrier()
context.close_device()
"""


def test_tensors_between_ranks(tmp_path):
    pytest.importorskip("mpi4py")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [MPIEXEC, "-n", "2", sys.executable, "-m", "ttkit", program]
    done = subprocess.run(
        command, env=os.environ | OPEN_MPI, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 1 [0.0, 3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0]" in done.stdout


def test_gradients_of_all_devices_without_a_context():
    context = ttml.autograd.AutoContext.get_instance()
    ttml.core.distributed.enable_fabric(8)
    context.open_device([1, 8], [])
    device = context.get_device()
    mapper = ttml.core.distributed.shard_tensor_to_mesh_mapper(device, 0)
    composer = ttml.core.distributed.concat_mesh_to_tensor_composer(device, 0)
    model = ttml.models.linear_regression.create_linear_regression_model(2, 1)
    x = np.random.default_rng(0).standard_normal((8, 1, 1, 2), dtype=np.float32)
    data, zero = (
        ttml.autograd.Tensor.from_numpy(each, ttml.Layout.TILE, None, mapper)
        for each in (x, np.zeros((8, 1, 1, 1), np.float32))
    )
    ttml.ops.loss.mse_loss(model(data), zero).backward(False)
    weight = next(p for name, p in model.parameters().items() if "weight" in name)

    def gradients():
        return ttnn.to_torch(weight.get_grad(), mesh_composer=composer).reshape(8, 2).tolist()

    apart = np.array(gradients())
    ttml.core.distributed.synchronize_gradients(model.parameters())
    np.testing.assert_allclose(gradients(), np.tile(apart.mean(0), (8, 1)), rtol=1e-5)
