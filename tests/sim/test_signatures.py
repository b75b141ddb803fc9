"""Every keyword that ttnn's own function takes is taken here, or refused by name."""

from __future__ import annotations

import inspect
import json
import pathlib
import re

import numpy as np
import pytest
from shards import hint

import ttkit
from ttkit import errors, ttnn
from ttkit.sim import hints, signatures
from ttkit.sim.ops import OPERATIONS

RECORDED = json.loads(
    pathlib.Path(signatures.__file__).with_name("signatures.json").read_text(encoding="utf-8")
)
# Functions in Python whose keywords are not taken as the library writes them, and why.
ANOTHER_FORM = {
    "allocate_tensor_on_device": "help shows the other overload",
    "create_mesh_mapper": "help shows the other overload",
    "is_sharded": "it is a method of a tensor",
    "model_preprocessing.preprocess_model_parameters": "no files of converted models are kept",
}


@pytest.fixture
def mesh():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as opened:
        yield opened


def sample(mesh, kind: str):
    """A value of a recorded type."""

    def tensor():
        values = np.ones((1, 1, 32, 32), np.float32)
        return ttkit.from_numpy(values, device=mesh, layout=ttnn.TILE_LAYOUT)

    first = kind.split(" | ")[0]
    if first in hints.RECORDS:
        return hint(first)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 1))])
    found = {
        "Tensor": tensor,
        "Sequence[Tensor]": lambda: [tensor(), tensor()],
        "tuple[Tensor, Tensor]": lambda: (tensor(), tensor()),
        "Sequence[Tensor | None]": lambda: [tensor(), tensor(), tensor()],
        "torch.Tensor": lambda: np.ones((32, 32), np.float32),
        "int": lambda: 1,
        "float": lambda: 0.5,
        "bool": lambda: True,
        "MeshSocket": lambda: object.__new__(ttnn.MeshSocket),
        "str": lambda: "zeros",
        "Sequence[int]": lambda: [0, 1],
        "Shape": lambda: ttnn.Shape([32, 32]),
        "CoreRangeSet": lambda: cores,
        "CoreGrid": lambda: ttnn.CoreGrid(x=1, y=1),
        "CoreCoord": lambda: ttnn.CoreCoord(1, 1),
        "MeshDevice": lambda: mesh,
        "MemoryConfig": lambda: ttnn.DRAM_MEMORY_CONFIG,
        "SubDeviceId": lambda: ttnn.SubDeviceId(0),
        "MeshCoordinate": lambda: ttnn.MeshCoordinate(0, 0),
        "Tile": lambda: ttnn.Tile((32, 32)),
        "UnaryWithParam": lambda: ttnn.UnaryOpType.RELU,
        "Sequence[EltwiseUnaryWithParam]": lambda: [ttnn.UnaryOpType.RELU],
    }
    if first in found:
        return found[first]()
    members = [*getattr(getattr(ttnn, first, None), "__members__", {}).values()]
    return members[0] if members else None if kind.endswith("None") else object()


def calls(mesh, name: str):
    """Yield (keyword, arguments): what an overload needs, and one keyword more."""
    for overload in RECORDED[name]:
        split = overload.index("*") if "*" in overload else len(overload)
        named = [each for each in overload if each != "*"]
        needed = [each for each in named if len(each) == 2]
        if any(kind == "ComplexTensor" for _, kind, *_ in needed):
            continue  # Complex tensors are not here.
        for keyword, kind, *_ in overload[split + 1 :] or needed[:1]:
            given = {need: sample(mesh, its) for need, its, *_ in needed}
            yield keyword, given | {keyword: sample(mesh, kind)}


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() & RECORDED.keys()))
def test_each_keyword_is_taken(mesh, name):
    for keyword, given in calls(mesh, name):
        try:
            OPERATIONS[name].call(**given)
        except ttkit.TTKitError as error:
            if "simulator does not have" in str(error):
                assert any(f"does not have {each}" in str(error) for each in given)
                assert signatures.CHANGE_VALUES & given.keys(), keyword
        except TypeError as error:  # Others come from values that do not fit.
            wrong = re.search("unexpected|missing|multiple values| is a .*, not ", str(error))
            assert not wrong, (keyword, str(error))
        except IndexError:
            pass  # The sample's shape does not fit.


def test_only_what_is_not_ttnns_has_no_record():
    """Without a record a keyword with a typing error would be dropped as a hint."""
    cure = "record what ttnn takes: docs/architecture.md, How to add, An operation"
    assert OPERATIONS.keys() - RECORDED.keys() == {"to_numpy"}, cure


def test_few_keywords_are_refused():
    assert len(signatures.CHANGE_VALUES) + len(ANOTHER_FORM) <= 40
    known = {each[0] for overloads in RECORDED.values() for o in overloads for each in o}
    assert known > signatures.CHANGE_VALUES | signatures.OUTPUTS


@pytest.mark.parametrize("name", sorted(RECORDED.keys() - OPERATIONS.keys() - hints.RECORDS.keys()))
def test_each_parameter_of_a_function_is_there(name):
    function = ttnn
    for part in name.split("."):
        function = getattr(function, part)
    if function in [record.call for record in OPERATIONS.values()] or name in ANOTHER_FORM:
        return
    parameters = inspect.signature(function).parameters
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values()):
        return
    names = {each[0] for overload in RECORDED[name] for each in overload if "*" not in each}
    assert names <= parameters.keys() | {"arg"}  # The library names no other one so.


def test_arguments_by_place_have_the_order_of_ttnn(mesh):
    x = ttkit.from_numpy(np.eye(32, dtype=np.float32), device=mesh, layout=ttnn.TILE_LAYOUT)
    two = ttnn.Topology.Linear
    gather = ttnn.experimental.all_gather_async
    for whole in (gather(x, None, 0, None), gather(x, 0, 1, mesh, two, None)):
        assert list(whole.shape) == [64, 32]
    assert ttnn.pow(x, 2).shape == ttnn.pow(input_tensor=x, exponent=2.0).shape
    full = ttnn.full([32, 32], 2.0, ttnn.float32, ttnn.TILE_LAYOUT, mesh, None, x)
    assert full is x and ttkit.to_numpy(ttnn.get_device_tensors(x)[1])[3, 4] == 2.0


REFUSED = [
    ("add", {"memory_confg": None}, "unexpected keyword argument 'memory_confg'; the closest is m"),
    ("add", {"program_config": None}, "unexpected keyword argument 'program_config'"),
    ("add", {"memory_config": "DRAM"}, "memory_config='DRAM' is a str, not MemoryConfig | None"),
    ("concat", {"groups": 2}, "ttkit's simulator does not have groups"),
    ("sum", {"num_links": 1}, "incompatible function arguments"),
]


@pytest.mark.parametrize(("name", "more", "says"), REFUSED)
def test_what_is_refused_is_named(mesh, name, more, says):
    x = ttkit.from_numpy(np.eye(32, dtype=np.float32), device=mesh, layout=ttnn.TILE_LAYOUT)
    operands = {"add": (x, x), "concat": ([x, x], 0), "sum": (x,)}[name]
    with pytest.raises((TypeError, ttkit.TTKitError)) as error:
        getattr(ttnn, name)(*operands, **more)
    assert says in str(error.value) and name in str(error.value)


def test_a_default_is_no_change(mesh):
    x = ttkit.from_numpy(np.eye(32, dtype=np.float32), device=mesh, layout=ttnn.TILE_LAYOUT)
    assert ttnn.concat([x, x], 0, groups=1).shape == [64, 32]
    attend = ttnn.transformer.scaled_dot_product_attention
    q = ttnn.reshape(x, [1, 1, 32, 32])
    assert attend(q, q, q, attention_sink=None).shape == [1, 1, 32, 32]


@pytest.mark.parametrize(
    "call, same",
    [
        (lambda x: ttnn.div(x, 3.0, round_mode="floor"), lambda x: ttnn.floor(ttnn.div(x, 3.0))),
        (lambda x: ttnn.div(x, input_tensor_b=x, round_mode=None), lambda x: ttnn.div(x, x)),
        (lambda x: ttnn.div(x, 3.0, accurate_mode=False), lambda x: ttnn.div(x, 3.0)),
        (
            lambda x: ttnn.argmax(x, dim=3, keepdim=True, use_multicore=True),
            lambda x: ttnn.argmax(x, 3, True),
        ),
        (
            lambda x: ttnn.untilize(x, use_multicore=False, use_pack_untilize=True),
            lambda x: ttnn.untilize(x),
        ),
    ],
    ids=["renamed", "None", "mode", "dropped", "one of two"],
)
def test_keywords_of_earlier_versions_are_taken_with_a_warning_but_not_by_strict(mesh, call, same):
    values = np.arange(2048, dtype=np.float32).reshape(1, 1, 32, 64) % 37 + 1
    x = ttkit.from_numpy(values, device=mesh, layout=ttnn.TILE_LAYOUT)
    ttkit.strict()
    with pytest.raises(TypeError, match="incompatible function arguments"):
        call(x)
    ttkit.strict(False)
    errors._warned.clear()
    with pytest.warns(ttkit.DialectWarning, match="an older form"), ttkit.profile() as profile:
        found = call(x)
    assert len(profile.records) == 1  # A reader of the tape binds the same arguments.
    assert (found.full_array() == same(x).full_array()).all()


def test_a_queue_is_taken_by_place_where_the_library_takes_it_so(mesh):
    tensor = ttkit.from_numpy(np.float32([[0, 0]]), device=mesh)
    ttnn.copy_host_to_device_tensor(ttnn.from_device(ttnn.add(tensor, 1)), tensor, 1)
    assert (tensor.full_array() == 1).all()
    with pytest.raises(TypeError, match="too many positional arguments"):
        ttnn.all_gather(*[tensor] * 30)
