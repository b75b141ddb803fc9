"""Bind the arguments of a call to the parameters that ttnn's own function has.

`signatures.json` has the name, type and default of each parameter of each overload.
`tests/real/record_signatures.py` records them from the library. Functions that ttkit has and ttnn
does not have are bound to their Python parameters in the same way.
"""

import inspect
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from types import NoneType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ttkit.errors import fail, nearest, older_form
from ttkit.sim.arguments import describe, refuse

# The keys are keywords of earlier versions, and the values are their names in ttnn 0.81.1. If the
# value is "", ttnn 0.81.1 no longer has the keyword, and the keyword does not change a result. (A
# tensor knows its mesh, so a call does not need `mesh_device`.)
OLDER = {"round_mode": "rounding_mode"} | dict.fromkeys(
    """accurate_mode distributed_program_config fast_and_approximate_mode mesh_device reciprocals
    tiles_per_chunk use_multicore use_pack_untilize""".split(),
    "",
)
Classes = tuple[type, ...]
# A parameter whose type has one of these names takes arguments of these classes. `ttkit.sim.ttnn`
# adds the classes of ttnn. A type that is not here, such as Sequence[int], takes any argument, and
# the function itself checks the value.
CLASSES = {
    "int": (int, np.integer),
    "float": (int, float, np.number),
    "bool": (bool, int, np.bool_),
    "str": (str,),
    "None": (NoneType,),
}
# Every operation of ttnn takes these keywords.
QUEUES = (("queue_id", "int | QueueId | None", None), ("cq_id", "int | QueueId | None", None))
PLACE = inspect.Parameter.POSITIONAL_OR_KEYWORD
# If a call gives a tensor under one of these names, the result is written into that tensor, and the
# call returns it.
OUTPUTS = frozenset(
    """input_grad optional_output_tensor optional_tensor out output output_tensor output_tensors
    persistent_output_buffer persistent_output_buffers persistent_output_tensor
    preallocated_output""".split()
)
# These parameters change values, so a function of the simulator that does not have one of them
# refuses it. Any other parameter that only ttnn has is a hint to the hardware.
CHANGE_VALUES = frozenset(
    """are_required_outputs attention_sink attn_mask_block_map bias block_size cache_position_modulo
    chunks correction cu_window_seqlens dims fuse_swiglu fused_ternary_input_a
    fused_ternary_input_b fused_ternary_scalar groups in0_column_offset indices input_a_grad
    input_b_grad input_dtype kv_tied mesh_axis num_kv_heads optional_output_mapping_tensor
    optional_output_reduced_tensor other_grad output_concat_heads output_layout
    output_padded_shape padding_idx paged_cache_geometry slice_dim spec_multi_pos_tiles
    valid_seq_len_tensor windowed_q_token_offset windowed_q_token_offset_tensor""".split()
)


@cache
def classes_of(kind: str) -> Classes:
    """Return the classes of a type that is written as text; `object` stands for any class.

    Example:
        >>> classes_of("str | None"), classes_of("list[int]")
        ((<class 'str'>, <class 'NoneType'>), (<class 'object'>,))
    """
    return sum((CLASSES.get(member, (object,)) for member in kind.split(" | ")), ())


@cache
def known() -> dict[str, list[list]]:
    """Return the overloads in `signatures.json`, by ttnn's name of the function."""
    path = pathlib.Path(__file__).with_name("signatures.json")
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def recorded(name: str, *more: tuple) -> list[inspect.Signature]:
    """Return the overloads of one of ttnn's functions, or [] if ttnn has no function of this name.

    Args:
        more: keywords that each overload takes as well.

    Example:
        >>> [list(overload.parameters) for overload in recorded("copy")]
        [['input_a', 'input_b']]
    """
    found = []
    for parameters in known().get(name, ()):
        kind: Any = PLACE
        made = []
        names = {each[0] for each in parameters}  # Some operations take a queue by position.
        for each in [*parameters, "*", *(each for each in more if each[0] not in names)]:
            if each == "*":
                kind = inspect.Parameter.KEYWORD_ONLY
                continue
            own, types, value = [*each, inspect.Parameter.empty][:3]
            made.append(inspect.Parameter(own, kind, default=value, annotation=types))
        # In ttnn a parameter without a default may follow one with a default. Python would refuse
        # this order.
        found.append(inspect.Signature(made, __validate_parameters__=False))
    return found


# ---------------------------------------------------------------- how arguments reach a function
class Argument(NamedTuple):
    """An argument of a call.

    Attributes:
        number: its number in the call, from 0; positional arguments come before keywords.
        name: the function's name for it, or ttnn's name if the function does not have it.
        parameter: ttnn's parameter.
    """

    number: int
    name: str
    parameter: inspect.Parameter


class Way(NamedTuple):
    """How the arguments of calls with the same classes and names reach a function.

    Attributes:
        in_order: True if the function takes the positional arguments as they are; otherwise it
            takes every argument by name.
        own: the number of each argument that the function takes by name.
        changing: the arguments that the function does not have and that change values.
        output, memory: the numbers of the output tensor and of the memory configuration, or -1 if
            the call does not give one.
    """

    in_order: bool
    own: dict[str, int]
    changing: list[Argument]
    output: int
    memory: int

    def sort(self, args: tuple, kwargs: dict[str, Any]):
        """Return the positional arguments, the keywords, the output and the memory configuration.

        Raises:
            TTKitError: the call gives an argument that changes values and that the function does
                not have, with another value than None or ttnn's default.
        """
        # The number -1 stands for an argument that was not given, so the last value is None.
        values = (*args, *kwargs.values(), None)
        for number, name, parameter in self.changing:
            value = values[number]
            usual = parameter.default
            if value is not None and (type(value) is not type(usual) or value != usual):
                refuse(f"ttkit's simulator does not have {name}", f"leave {name} out")
        mine = {name: values[number] for name, number in self.own.items()}
        return args if self.in_order else (), mine, values[self.output], values[self.memory]


class Signature:
    """The parameters of a function and of ttnn's overloads; they are computed on first use.

    Args:
        name: ttnn's name of the function.
        more: keywords that ttnn takes in addition to the recorded ones.
    """

    def __init__(self, function: Callable, name: str, *more: tuple):
        self.__wrapped__ = function
        self.name = name
        self.more = more

    @cached_property
    def own(self) -> Mapping[str, inspect.Parameter]:
        """The function's Python parameters."""
        return inspect.signature(self.__wrapped__).parameters

    @cached_property
    def usual(self) -> dict[str, Any]:
        """The defaults of the function's parameters."""
        return {name: parameter.default for name, parameter in self.own.items()}

    @cached_property
    def overloads(self) -> list[inspect.Signature]:
        """ttnn's overloads, or the function's own signature if ttnn has no function of its name."""
        return recorded(self.name, *self.more) or [inspect.signature(self.__wrapped__)]

    @property
    def __signature__(self) -> inspect.Signature:
        """The overload with the most parameters, which `help` shows."""
        return max(self.overloads, key=lambda overload: len(overload.parameters))

    @cached_property
    def known(self) -> set[str]:
        """The names of the parameters of all overloads."""
        return {name for overload in self.overloads for name in overload.parameters}

    def names(self, there: Mapping[str, inspect.Parameter]) -> dict[str, str]:
        """Return the function's name for each of an overload's parameters, by ttnn's name.

        If the names differ, the name of the function's parameter in the same place is used. A
        parameter that the function does not have keeps ttnn's name.
        """
        has = self.own
        found = {name: name for name in there}
        for mine, name in zip(has, there):
            by_place = {has[mine].kind, there[name].kind} == {PLACE}
            if by_place and not (name in has or mine in there or name in OUTPUTS | CHANGE_VALUES):
                found[name] = mine
        return found

    @cache  # noqa: B019 - A signature lasts as long as its operation.
    def bound(self, count: int, names: tuple[str, ...]) -> list[list[Argument]]:
        """Return the arguments of a call for each overload that takes them.

        Args:
            count: the number of positional arguments.
            names: the names of the keyword arguments. A name of an earlier version is replaced by
                the new name, or left out if there is none.
        """
        newer = [name if name in self.known else OLDER.get(name, name) for name in names]
        numbers = {name: number for number, name in enumerate(newer, count) if name}
        found = []
        for overload in self.overloads:
            fit, _ = bind(overload, range(count), numbers)
            if fit:
                there = overload.parameters
                own = self.names(there)
                found.append([Argument(n, own[k], there[k]) for k, n in fit.arguments.items()])
        return found

    def given(self, args: Sequence, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a valid call, and the other defaults, by the function's names."""
        values = (*args, *kwargs.values())
        arguments = self.bound(len(args), tuple(kwargs))[0]
        return self.usual | {name: values[number] for number, name, _ in arguments}

    def way(self, asked: describe) -> Way | None:
        """Return how the arguments reach the function, or None if it takes them as they are.

        Raises:
            TypeError: no overload takes these arguments.
        """
        args, kwargs = asked.args, asked.kwargs
        values = (*args, *kwargs.values())
        fits = self.bound(len(args), tuple(kwargs))
        unknown = [name for name in kwargs if name not in self.known]
        if not fits or (unknown and not self._takes_older(unknown)):
            rule = f"incompatible function arguments: {bind(self.overloads[0], args, kwargs)[1]}"
            rule += nearest(unknown[0], self.known, "; the closest is {}") if unknown else ""
            cure = " or ".join(f"{asked.name}({', '.join(o.parameters)})" for o in self.overloads)
            fail(asked, rule, cure, TypeError)
        fit = min(fits, key=lambda fit: _misfit(fit, values))
        if _misfit(fit, values) != RIGHT:
            self._refuse_class(asked, values, fits)
        mine = [name for name, parameter in self.own.items() if parameter.kind <= PLACE]
        in_order = [each.name for each in fit[: len(args)]] == mine[: len(args)]
        # The arguments are sorted by number, so they are in the order of the call.
        named = sorted(fit[len(args) :] if in_order else fit)
        own = {each.name: each.number for each in named if each.name in self.own}
        if in_order and own.keys() == kwargs.keys():
            return None
        others = [each for each in named if each.name not in own]
        changing = [each for each in others if each.name in CHANGE_VALUES]
        output, memory = (
            next((each.number for each in others if each.name in which), -1)
            for which in (OUTPUTS, {"memory_config"})
        )
        return Way(in_order, own, changing, output, memory)

    def _takes_older(self, unknown: list[str]) -> bool:
        """Return whether all these keywords are of earlier versions, and the dialect takes them."""
        if not OLDER.keys() >= {*unknown}:
            return False
        new = OLDER[unknown[0]]
        spelling = f"{new}=" if new else f"ttnn.{self.name} without {unknown[0]}"
        return older_form(f"{self.name}(..., {unknown[0]}=)", spelling)

    def _refuse_class(self, asked: describe, values: tuple, fits: list[list[Argument]]) -> NoReturn:
        """Raise a TypeError that names the parameter, the argument and the types that it takes."""
        # The user meant the overload that accepts the most arguments before the first wrong one.
        place, name = max(_misfit(fit, values) for fit in fits)
        meant = [fit[place - 1] for fit in fits if _misfit(fit, values) == (place, name)]
        kinds = " | ".join(each.parameter.annotation for each in meant)
        wanted = " | ".join(dict.fromkeys(kinds.split(" | ")))
        value = values[meant[0].number]
        shown = f"{name}={describe.show(value)} is a {type(value).__name__}"
        cure = "ttnn.from_torch(...) it first" if wanted == "Tensor" else f"help(ttnn.{asked.name})"
        fail(asked, f"incompatible function arguments: {shown}, not {wanted}", cure, TypeError)


def bind(overload, args, kwargs) -> tuple[inspect.BoundArguments | None, str]:
    """Return the bound arguments and "", or None and the reason why they do not fit."""
    try:
        return overload.bind(*args, **kwargs), ""
    except TypeError as error:
        return None, str(error)


RIGHT = 0, ""


def _misfit(arguments: list[Argument], values: tuple) -> tuple[int, str]:
    """Return the place (from 1) and name of the first argument of a wrong class, or RIGHT."""
    for place, (number, _, parameter) in enumerate(arguments, 1):
        if not isinstance(values[number], classes_of(str(parameter.annotation))):
            return place, parameter.name
    return RIGHT
