"""The tape: what is recorded, in which order gradients go back, what is added up, what hooks
see.
"""

import gc
import operator
import weakref

import numpy as np
import pytest
from formulas import tolerance
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from train.runs import refused

import ttkit
from ttkit import ttnn
from ttkit.train.autograd import Tensor, no_grad, recorded


@pytest.fixture
def leaf(one):
    """leaf(3.0) is a 1x1 tensor that requires a gradient."""
    return lambda value, **kwargs: Tensor.from_numpy(
        np.full((1, 1), value, np.float32), device=one, **kwargs
    )


def number(value):
    return None if value is None else float(ttkit.to_numpy(value).squeeze())


def grad(tensor):
    return number(tensor.get_grad())


def test_each_use_adds_to_the_gradient(leaf):
    a, b = leaf(3.0), leaf(5.0)
    (2 * (a * b) + a * a - b * 4 + 1).backward()
    assert (grad(a), grad(b)) == (2 * 5 + 6, 2 * 3 - 4)
    (a * a).backward()
    assert grad(a) == 16 + 6  # passes add up until the gradient is forgotten


def test_quotients(leaf):
    a, b = leaf(3.0), leaf(4.0)
    quotient = a.__div__(b).__div__(2)
    assert number(quotient.get_value()) == 3 / 8
    quotient.backward()
    assert (grad(a), grad(b)) == (1 / 8, -3 / 32)


def test_whole_numbers_are_subtracted(one):
    a, b = (Tensor.from_numpy(np.full((1, 2), n, np.uint32), device=one) for n in (7, 3))
    assert (a - b).to_numpy().tolist() == [[4, 4]]
    with pytest.raises(TypeError, match="Unsupported type"):
        Tensor.from_numpy(np.ones((2, 2)), new_type=ttnn.bfloat8_b, device=one)


def test_a_shared_part_passes_its_gradient_on_once(leaf):
    a, passes = leaf(2.0), []
    value = ttnn.multiply(a.get_value(), a.get_value())

    def backward(g):
        passes.append(number(g))
        return [ttnn.multiply(g, ttnn.multiply(a.get_value(), 2))]

    shared = recorded("square", value, [a], backward)
    (shared * 3 + shared * shared).backward()
    assert passes == [3 + 2 * 4]
    assert grad(a) == 11 * 4


def test_a_second_pass_needs_retain_graph(leaf):
    a = leaf(3.0)
    y = a * a
    y.backward(retain_graph=True)
    y.backward()
    assert grad(a) == 12
    refused(y.backward, "its backward ran already", "retain_graph=True")


def test_two_losses_that_share_a_part_need_retain_graph(leaf):
    a = leaf(3.0)
    shared = a * a
    first, second = shared * 2, shared * 5
    first.backward()
    refused(second.backward, "the backward of another tensor freed", "retain_graph=True")
    assert grad(a) == 12  # as it was: nothing was added by halves

    shared = a * a
    first, second = shared * 2, shared * 5
    a.set_grad(None)
    first.backward(retain_graph=True)
    second.backward()
    assert grad(a) == 7 * 6


def test_nothing_recorded_is_nothing_to_pass(leaf):
    refused(leaf(3.0).backward, "nothing that it was made from was recorded")
    with no_grad():
        y = leaf(3.0) * leaf(4.0)
    refused(y.backward, "no_grad")
    refused((leaf(3.0, requires_grad=False) * 2).backward, "tensors that require no gradient")


def test_only_tensors_that_require_a_gradient_get_one(leaf):
    a, b = leaf(3.0), leaf(5.0, requires_grad=False)
    (a * b).backward()
    assert (grad(a), grad(b)) == (5, None)
    b.set_requires_grad(True)
    a.set_requires_grad(False)
    a.set_grad(None)
    (a * b).backward()
    assert (grad(a), grad(b)) == (None, 3)
    assert not a.get_requires_grad() and b.get_requires_grad()


def test_no_grad_ends_with_its_block_also_after_an_error(leaf):
    a = leaf(3.0)
    with no_grad():
        with no_grad():
            assert not (a * a).get_requires_grad()
        assert not (a * a).get_requires_grad()
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert (a * a).get_requires_grad()


def test_a_gradient_given_before_is_where_the_pass_starts(leaf):
    a = leaf(3.0)
    y = a * a
    y.set_grad(leaf(10.0).get_value())
    y.backward()
    assert grad(a) == 60
    assert grad(y) is None


def test_a_gradient_has_the_shape_of_its_tensor(one, leaf):
    a = leaf(3.0)
    wide = Tensor.from_numpy(np.ones((2, 3), np.float32), device=one)
    (wide * a).backward()
    assert grad(a) == 6
    assert wide.get_grad().shape == (2, 3)


def test_depth_is_no_recursion(leaf):
    a = leaf(1.0)
    y = a
    for _ in range(3000):
        y = y + a
    y.backward()
    assert grad(a) == 3001


def test_a_pass_frees_what_it_went_through(leaf):
    a = leaf(2.0)
    middle = a * a
    gone, y = weakref.ref(middle), middle * middle
    del middle
    y.backward()
    gc.collect()
    assert gone() is None


NAMES = "add", "sub", "mul"


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(0, 99), st.integers(0, 99)),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 99),
)
def test_gradients_of_random_programs(program, seed):
    """Any graph: tensors used often, once and never. No term of `sizes` cancels."""
    values = np.random.default_rng(seed).uniform(-1, 1, (3, 2, 2)).astype(np.float32)
    right, sizes = slopes(program, values), slopes(program, np.abs(values), sub=operator.add)
    assume(np.max(sizes) < 1e30)  # float32 ends at 3e38
    uses = last(program, [{0}, {1}, {2}], **dict.fromkeys(NAMES, operator.or_))
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as one:
        ours = [Tensor.from_numpy(v, device=one) for v in values]
        last(program, ours).backward()
        for i, leaf in enumerate(ours):
            assert leaf.is_grad_initialized() == (i in uses)
            if i in uses:
                off = np.abs(ttkit.to_numpy(leaf.get_grad()) - right[i])
                assert (off <= tolerance(additions=1000)["rtol"] * sizes[i]).all()


def last(program, leaves, **other):
    """What a program makes last of its leaves, with other operations for some names."""
    made = list(leaves)
    for name, *at in program:
        operation = other.get(name, getattr(operator, name))
        made.append(operation(*(made[i % len(made)] for i in at)))
    return made[-1]


def slopes(program, values, **other):
    """The derivative by each leaf, element by element in float64: a step along the imaginary axis
    is exact, because it is too small for its square to count.
    """
    steps = 1e-30j * np.eye(len(values))[..., None, None]
    return [last(program, values + step, **other).imag / 1e-30 for step in steps]
