"""What all sections of a training configuration have in common: the kinds of their numbers, and
what a fault that pydantic found is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, StrictInt, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from ttkit.cluster.files.documents import Where, did_you_mean
from ttkit.errors import fail

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
IN_A_FILE = "in a file"  # the context in which a fault is reported with its line
TAGS = ("AdamW", "SGD", "[key]")  # what pydantic adds to a place
ALSO = {"dropout": "dropout_prob", "steps": "max_steps"}  # ttml's name in C++; the 3-tier guide's
MOST = 2**31 - 1  # of a count


def _number(value: Any) -> Any:
    """3e-4 is text to YAML 1.1."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Share = Annotated[float, Field(strict=True, ge=0, lt=1), BeforeValidator(_number)]
Rate = Annotated[float, Field(strict=True, ge=0), BeforeValidator(_number)]
Above0 = Annotated[float, Field(strict=True, gt=0), BeforeValidator(_number)]
Count = Annotated[StrictInt, Field(ge=1, le=MOST)]
Natural = Annotated[StrictInt, Field(ge=0, le=MOST)]


@dataclass(frozen=True, config=STRICT)
class Section:
    """The base of all sections: values from Python code are checked like those of a file."""

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, value: Any, handler: Callable[[Any], Any], info: Any) -> Any:
        names = [field.name for field in fields(cls)]
        if isinstance(value, ArgsKwargs) and len(value.args) <= len(names):  # name each argument
            value = ArgsKwargs((), dict(zip(names, value.args)) | (value.kwargs or {}))
        try:
            return handler(value)
        except ValidationError as error:
            if info.context == IN_A_FILE:
                raise
            where, rule, cure = next(faults(cls, error))
            fail(f"{cls.__name__}({'.'.join(map(str, where))})", rule, cure)


def faults(section: type[Section], error: ValidationError) -> Iterator[tuple[Where, str, str]]:
    """Yield (place, rule, cure) of each fault that pydantic found."""
    for fault in error.errors(include_url=False):
        kind, context, value = fault["type"], fault.get("ctx", {}), fault["input"]
        where = tuple(part for part in fault["loc"] if part not in TAGS)
        key = str(where[-1] if where else "")
        expected = context.get("expected") or context.get("expected_tags")
        if kind in ("unexpected_keyword_argument", "extra_forbidden", "invalid_key"):
            known = _keys(section, where[:-1])
            cure = did_you_mean(key, known) or f"one of {', '.join(known)}"
            yield where, f"unknown key {key[:60]!r}: ttml ignores it", cure
        elif expected:
            rule = f"Unknown {key}: {str(context.get('tag', value))[:40]}"
            yield where, rule, f"one of {expected}"
        else:
            name = str(where[0]) if where else ""
            default = getattr(section(), ALSO.get(name, name), None)
            cure = "one line 'key: value' below it for each setting"
            if isinstance(default, (str, int, float, tuple)):
                cure = f"the default is {json.dumps(default)}"
            yield where, f"got {_shown(value)}: {fault['msg'][0].lower()}{fault['msg'][1:]}", cure


def _keys(section: type[Section], where: Where) -> list[str]:
    """Return the keys that a place in a section may have."""
    kinds: list[Any] = [section]
    for part in where:
        hints = [get_type_hints(kind).get(str(part)) for kind in kinds]
        kinds = [each for hint in hints for each in (hint, *get_args(hint))]
        kinds = [kind for kind in kinds if hasattr(kind, "__annotations__")]
    return list(dict.fromkeys(key for kind in kinds for key in get_type_hints(kind)))


def _shown(value: Any) -> str:
    try:
        return repr(value)[:40]
    except ValueError:
        return "a number of more digits than Python prints"
