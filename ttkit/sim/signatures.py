"""Bind the arguments of a call to the parameters that ttnn's own function has.

`signatures.json` has them, recorded from the library by `tests/real/record_signatures.py`: the
name, type and default of each parameter of each overload. Functions of the kit's own, which ttnn
does not have, are bound to their Python parameters in the same way.
"""

import functools
import inspect
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ttkit.errors import fail, nearest, older_form
from ttkit.sim.arguments import describe, refuse

# Keywords of earlier versions have these names in ttnn 0.81.1; one with "" is gone from it, and
# changes no value.
OLDER = {
    "accurate_mode": "",
    "distributed_program_config": "",
    "fast_and_approximate_mode": "",
    "mesh_device": "",  # A tensor has its mesh, so none is given.
    "round_mode": "rounding_mode",
    "tiles_per_chunk": "",
    "use_multicore": "",
    "use_pack_untilize": "",
}
Classes = tuple[type, ...]
# A name of a type stands for these classes; `ttkit.sim.ttnn` adds its own. A type that is not here,
# such as Sequence[int], takes anything, and the function itself looks at the value.
CLASSES: dict[str, Classes] = {
    "int": (int, np.integer),
    "float": (int, float, np.number),
    "bool": (bool, int, np.bool_),
    "str": (str,),
    "None": (NoneType,),
}
# ttnn takes these for every operation.
QUEUES = (("queue_id", "int | QueueId | None", None), ("cq_id", "int | QueueId | None", None))
PLACE = inspect.Parameter.POSITIONAL_OR_KEYWORD
# A tensor under one of these names gets the result, and is returned.
OUTPUTS = frozenset(
    """input_grad optional_output_tensor optional_tensor out output output_tensor output_tensors
    persistent_output_buffer persistent_output_buffers persistent_output_tensor
    preallocated_output""".split()
)
# These change values, so that a function here that does not name them refuses them. What else ttnn
# takes and a function here does not name is a hint to the hardware.
CHANGE_VALUES = frozenset(
    """attention_sink attn_mask_block_map bias block_size cache_position_modulo chunks correction
    cu_window_seqlens dims fuse_swiglu fused_ternary_input_a fused_ternary_input_b
    fused_ternary_scalar groups in0_column_offset indices input_dtype kv_tied num_kv_heads
    optional_output_mapping_tensor optional_output_reduced_tensor output_concat_heads output_layout
    output_padded_shape padding_idx paged_cache_geometry slice_dim spec_multi_pos_tiles
    valid_seq_len_tensor windowed_q_token_offset windowed_q_token_offset_tensor""".split()
)


@functools.cache
def classes_of(kind: str) -> Classes:
    """Return the classes that a written type stands for; `object` where it may be anything.

    Example:
        >>> classes_of("str | None"), classes_of("list[int]")
        ((<class 'str'>, <class 'NoneType'>), (<class 'object'>,))
    """
    return sum((CLASSES.get(member, (object,)) for member in kind.split(" | ")), ())


@functools.cache
def known() -> dict[str, list[list]]:
    """Return what `signatures.json` has, by ttnn's names."""
    path = pathlib.Path(__file__).with_name("signatures.json")
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def recorded(name: str, *more: tuple) -> list[inspect.Signature]:
    """Return the overloads of one of ttnn's functions; none where ttnn has no such name.

    Args:
        more: keywords that each of them takes as well.

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
            own, types, *default = each
            value = default[0] if default else inspect.Parameter.empty
            made.append(inspect.Parameter(own, kind, default=value, annotation=types))
        # In ttnn a parameter without a default may stand behind one that has one.
        unchecked: Any = functools.partial(inspect.Signature, __validate_parameters__=False)
        found.append(unchecked(made))
    return found


# ---------------------------------------------------------------- how arguments reach a function
class Way(NamedTuple):
    """How the arguments of calls with the same classes and names reach a function.

    Attributes:
        places: the parameter of each argument by place, if the function has another order.
        own: the function's name of each argument by name that it has.
        usual: ttnn's defaults of arguments that it does not have, and that change values.
        output, memory: the names of the other ones that say where the result goes, or "".
    """

    places: list[str]
    own: dict[str, str]
    usual: dict[str, Any]
    output: str = ""
    memory: str = ""

    def sort(self, args: tuple, kwargs: dict[str, Any]):
        """Return the function's arguments by place and by name, the output, and its memory.

        Raises:
            TTKitError: an argument that it does not have changes values.
        """
        if self.places:
            args, kwargs = (), {**dict(zip(self.places, args)), **kwargs}
        for key, usual in self.usual.items():
            value = kwargs[key]
            if value is not None and (type(value) is not type(usual) or value != usual):
                refuse(f"ttkit's simulator does not have {key}", f"leave {key} out")
        mine = {own: kwargs[key] for key, own in self.own.items()}
        return args, mine, kwargs.get(self.output), kwargs.get(self.memory)


class Signature:
    """What a function takes; it is made when it is first asked for.

    Args:
        name: ttnn's.
        more: keywords that ttnn takes beside those that are recorded.
    """

    def __init__(self, function: Callable, name: str, *more: tuple):
        self.__wrapped__, self.name, self.more = function, name, more

    @functools.cached_property
    def own(self) -> inspect.Signature:
        """The function's Python signature."""
        return inspect.signature(self.__wrapped__)

    @functools.cached_property
    def overloads(self) -> list[inspect.Signature]:
        """ttnn's, or the function's own where ttnn has none of that name."""
        return recorded(self.name, *self.more) or [self.own]

    @property
    def __signature__(self) -> inspect.Signature:
        """The overload that takes most, which `help` shows."""
        return max(self.overloads, key=lambda overload: len(overload.parameters))

    def names(self, overload: inspect.Signature) -> dict[str, str]:
        """Return the function's name of each parameter of an overload that it has.

        One that has another name is the one in the same place.
        """
        has, there = self.own.parameters, overload.parameters
        found = {name: name for name in there if name in has}
        for mine, name in zip(has, there):
            by_place = {has[mine].kind, there[name].kind} == {PLACE}
            if by_place and not (name in has or mine in there or name in OUTPUTS | CHANGE_VALUES):
                found[name] = mine
        return found

    @functools.cached_property
    def known(self) -> set[str]:
        """The parameters of all overloads."""
        return {name for overload in self.overloads for name in overload.parameters}

    def newer(self, names: Iterable[str]) -> dict[str, str]:
        """Return what ttnn 0.81.1 calls arguments, and their names in the call."""
        named = {name if name in self.known else OLDER.get(name, name): name for name in names}
        named.pop("", None)
        return named

    def given(self, args: Sequence, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a right call by the function's names, and its defaults."""
        usual, places = self._places(len(args), tuple(kwargs))
        values = (*args, *kwargs.values())
        return usual | {name: values[place] for name, place in places.items()}

    @functools.cache  # noqa: B019 - A signature lasts as long as its operation.
    def _places(self, count: int, names: tuple) -> tuple[dict, dict]:
        """Return the defaults, and which argument has each of the function's names."""
        newer = {new: count + names.index(old) for new, old in self.newer(names).items()}
        bound = next(filter(None, (bind(o, range(count), newer)[0] for o in self.overloads)))
        own, usual = self.names(bound.signature), self.own.parameters.values()
        places = {own.get(name, name): place for name, place in bound.arguments.items()}
        return {p.name: p.default for p in usual}, places

    def way(self, asked: describe) -> Way | None:
        """Return how the arguments reach the function: None where it takes them as they are.

        Raises:
            TypeError: they are no call of it.
        """
        args, kwargs = asked.args, asked.kwargs
        tried = [bind(overload, args, kwargs) for overload in self.overloads]
        fit = [bound for bound, _ in tried if bound]
        if not fit:
            unknown = [name for name in kwargs if name not in self.known]
            if unknown and OLDER.keys() >= {*unknown}:
                newer, new = self.newer(kwargs), OLDER[unknown[0]]
                spelling = f"{new}=" if new else f"ttnn.{asked.name} without {unknown[0]}"
                if older_form(f"{asked.name}(..., {unknown[0]}=)", spelling):
                    rest = {new: kwargs[name] for new, name in newer.items()}
                    way = self.way(describe(asked.name, args, rest))
                    way = way or Way([], dict(zip(rest, rest)), {})
                    return way._replace(own={newer.get(k, k): own for k, own in way.own.items()})
            rule = f"incompatible function arguments: {tried[0][1]}"
            if unknown and (closest := nearest(unknown[0], self.known)):
                rule += f"; the closest is {closest}"
            cure = " or ".join(f"{asked.name}({', '.join(o.parameters)})" for o in self.overloads)
            fail(asked, rule, cure, TypeError)
        bound = min(fit, key=_misfit)
        if _misfit(bound)[0]:
            self._refuse_class(asked, fit)
        own, places = self.names(bound.signature), [*bound.signature.parameters][: len(args)]
        mine = [p.name for p in self.own.parameters.values() if p.kind <= PLACE]
        in_order = [own.get(name) for name in places] == mine[: len(args)]
        named = [*kwargs] if in_order else [*places, *kwargs]
        others = [name for name in named if name not in own]
        if in_order and not others and all(own[name] == name for name in named):
            return None
        changing = CHANGE_VALUES.intersection(others)
        usual = {name: bound.signature.parameters[name].default for name in changing}
        output = "".join(OUTPUTS.intersection(others))
        memory = "memory_config" if "memory_config" in others else ""
        named_own = {name: own[name] for name in named if name in own}
        return Way([] if in_order else places, named_own, usual, output, memory)

    def _refuse_class(self, asked: describe, fit: list[inspect.BoundArguments]) -> NoReturn:
        """Raise a TypeError that names the parameter, what was given and what it takes."""
        # The overload that takes the most of the arguments is the one that was meant.
        worst = max(map(_misfit, fit))
        meant = [bound for bound in fit if _misfit(bound) == worst]
        name, value = worst[1], meant[0].arguments[worst[1]]
        kinds = " | ".join(bound.signature.parameters[name].annotation for bound in meant)
        wanted = " | ".join(dict.fromkeys(kinds.split(" | ")))
        shown = f"{name}={describe.show(value)} is a {type(value).__name__}"
        cure = "ttnn.from_torch(...) it first" if wanted == "Tensor" else f"help(ttnn.{asked.name})"
        fail(asked, f"incompatible function arguments: {shown}, not {wanted}", cure, TypeError)


def bind(overload, args, kwargs) -> tuple[inspect.BoundArguments | None, str]:
    """Return the arguments by name, or why they are no call of this overload."""
    try:
        return overload.bind(*args, **kwargs), ""
    except TypeError as error:
        return None, str(error)


def _misfit(bound: inspect.BoundArguments) -> tuple[int, str]:
    """Return the number of the first argument of a wrong class, from 1, and its name; else 0."""
    for number, (name, value) in enumerate(bound.arguments.items(), 1):
        kind = bound.signature.parameters[name].annotation
        if not isinstance(value, classes_of(str(kind))):
            return number, name
    return 0, ""
