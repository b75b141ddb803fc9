"""References of torch: each computes, of the values of every chip, what the operation does."""

import pytest

from ttkit import ttnn
from ttkit.errors import TTKitError
from ttkit.sim.ops import OPERATIONS, binary, golden, unary


@pytest.fixture
def reference(torch):
    """reference(operation, **how) is the golden function for NumPy arrays."""

    def of(operation, **how):
        function = ttnn.get_golden_function(operation)

        def call(*arrays):
            made = function(*(None if a is None else torch.from_numpy(a) for a in arrays), **how)
            several = isinstance(made, (list, tuple))
            return [t.numpy() for t in made] if several else made.numpy()

        return call

    return of


def of_torch(torch, table):
    here = vars(torch.nn.functional) | vars(torch)
    return [name for name in table if name in here]


def test_functions_of_one_operand(torch, wide, put, check, reference):
    x = put(wide, (3, 32), "S0R")
    small = ttnn.multiply(ttnn.sigmoid(x), 0.9)  # asin and log take such values
    names = of_torch(torch, unary.UNARY.keys() - {"bitwise_not", "erfinv"})
    assert len(names) > 40 and "eqz" not in names
    for name in names:
        operation = OPERATIONS[name].call
        check(operation(small), reference(operation), small, additions=256)


def test_functions_of_two_operands(torch, wide, put, check, reference):
    a, b = put(wide, (3, 32), "S0R", low=0.5), put(wide, (3, 32), "RS0", low=0.25)
    names = {*of_torch(torch, binary.FUNCTIONS)} - {*binary.ONLY_WHOLE, "fill", "heaviside"}
    names -= {"leaky_relu", "prelu"}  # Their second operand is a number.
    assert len(names) > 20
    for name in names:
        operation = OPERATIONS[name].call
        check(operation(a, b), reference(operation), a, b, additions=64)


def test_functions_of_other_operations(wide, put, check, reference):
    a, b, c = (put(wide, (2, 32, 32), "S0R") for _ in range(3))
    calls = {
        ttnn.matmul: ((a, b), {}),
        ttnn.addcmul: ((a, b, c), {"value": 0.5}),
        ttnn.clamp: ((a,), {"min": -0.5, "max": 0.25}),
        ttnn.softmax: ((a,), {"dim": 1}),
        ttnn.sum: ((a,), {"dim": 1, "keepdim": True}), ttnn.std: ((a,), {"dim": 2}),
        ttnn.permute: ((a,), {"dims": (2, 0, 1)}), ttnn.tril: ((a,), {"diagonal": 1}),
    }  # fmt: skip
    for operation, (tensors, how) in calls.items():
        check(operation(*tensors, **how), reference(operation, **how), *tensors, additions=64)


def test_an_operation_in_place_has_the_function_of_its_result(torch):
    assert ttnn.get_golden_function(ttnn.add_) is torch.add
    assert ttnn.get_golden_function(ttnn.div) is torch.divide


def test_norms(wide, put, check, reference):
    x, weight = put(wide, (2, 3, 64), "S0R"), put(wide, (64,))
    for given in (None, weight):
        made = ttnn.rms_norm(x, weight=given, epsilon=0.1)
        check(made, reference(ttnn.rms_norm, epsilon=0.1), x, given, additions=64)
        made, wanted = ttnn.layer_norm(x, weight=given), reference(ttnn.layer_norm)
        check(made, lambda x, w, f=wanted: f(x) * (1 if w is None else w), x, given, additions=64)


@pytest.mark.parametrize("name", ["attention_softmax", "attention_softmax_"])
def test_attention_softmax(torch, wide, put, check, reference, name):
    operation = getattr(ttnn.transformer, name)
    x, mask = put(wide, (2, 3, 32, 64), "S0R"), put(wide, (2, 1, 1, 64))
    given = ttnn.clone(x)
    made = operation(x, head_size=64, attention_mask=mask)
    function = ttnn.get_golden_function(operation)

    def wanted(x, m):
        x, m = torch.from_numpy(x), torch.from_numpy(m)
        return function(x, head_size=64, attention_mask=m).numpy()

    check(made, wanted, given, mask, additions=64)
    check(operation(ttnn.clone(given)), reference(operation), given, additions=64)


@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("transpose", [True, False])
def test_heads(wide, put, check, reference, groups, transpose):
    split = ttnn.transformer.split_query_key_value_and_split_heads
    how = {"num_heads": 4, "num_kv_heads": groups, "transpose_key": transpose}
    width = 8 * (4 + 2 * (groups or 4))
    x = put(wide, (2, 32, width), "S0R")
    check(split(x, **how), reference(split, **how), x)
    q, kv = put(wide, (2, 32, 32), "S0R"), put(wide, (2, 32, width - 32), "S0R")
    check(split(q, kv, **how), reference(split, **how), q, kv)
    join, heads = ttnn.transformer.concatenate_heads, put(wide, (2, 3, 32, 64), "S0R")
    check(join(heads), reference(join), heads)


@pytest.mark.parametrize("name", ["linear", "pad", "all_gather", "eqz", "max"])
def test_what_torch_has_not_or_means_otherwise_is_refused(torch, name):
    with pytest.raises(TTKitError, match=f"no reference for ttnn.{name}"):
        ttnn.get_golden_function(getattr(ttnn, name))


def test_each_known_name_is_an_operation():
    assert {*golden.KNOWN} <= OPERATIONS.keys()
