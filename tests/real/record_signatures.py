"""Record the parameters of every function that is both in the real ttnn and in the simulator, and
of the constructors of configurations, which are hints:

    TTKIT_REAL_TTNN=/path .venv/bin/python tests/real/record_signatures.py

It writes ttkit/sim/signatures.json whole. Each overload is a list of [name, type] or [name, type,
default], with "*" before those that are given by name only. A default that JSON cannot hold is
written as Python prints it.
"""

import inspect
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REAL = pathlib.Path(os.environ.get("TTKIT_REAL_TTNN") or ROOT / ".real")
KEPT = ROOT / "ttkit" / "sim" / "signatures.json"


def plain(kind) -> str:
    """Return a type without modules, as "Tensor | None"."""
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    text = re.sub(r"ForwardRef\('([\w.]+)'\)", r"\1", text)
    text = re.sub(r"\b(?!torch\.)(\w+(\.|::))+(?=\w)", "", text)
    text = re.sub(r"Optional\[([^\[\]]*(\[[^\[\]]*\])?)\]", r"\1 | None", text)
    while found := re.search(r"Union\[([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]", text):
        text = text.replace(found[0], found[1].replace(", ", " | "))
    members = text.replace("NoneType", "None").split(" | ")
    return " | ".join(dict.fromkeys(members))  # nanobind repeats int for signed and unsigned


def kept(default):
    """Return a default as JSON has it."""
    try:
        return json.loads(json.dumps(default))
    except TypeError:
        text = repr(default).partition("(")[0]
        return "<object>" if " at 0x" in text else plain(text)


def of_nanobind(text: str, defaults: tuple) -> list:
    """Return the parameters of one overload, of `def name(self, a: T, *, b: T = \\0) -> T`."""
    body = text.replace("\\*", "*").partition("(")[2]
    body = body.rpartition(") ->")[0] or body.rstrip(")")
    parameters: list = []
    for part in re.split(r", (?=\w+:|\*|/)", body):
        name, _, kind = part.partition(": ")
        kind, _, default = kind.partition(" = ")
        if kind:
            parameter = [name, plain(kind)]
            if default:
                parameter.append(kept(defaults[int(default[1:])]) if default[0] == "\\" else None)
            parameters.append(parameter)
        elif name == "*":
            parameters.append(name)
    return parameters


def of_python(function) -> list:
    """Return the parameters of a function in Python."""
    parameters: list = []
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in parameters:
            parameters.append("*")
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            parameters.append(f"{'*' if p.kind is p.VAR_POSITIONAL else '**'}{p.name}")
            continue
        parameter = [p.name, "object" if p.annotation is p.empty else plain(p.annotation)]
        parameters.append(parameter + ([] if p.default is p.empty else [kept(p.default)]))
    return parameters


def overloads(function) -> list:
    """Return the parameters of each overload of a function of the real library."""
    inner = getattr(function, "function", function)
    places = inner, vars(type(inner)).get("__call__"), getattr(inner, "__init__", None)
    found = next(filter(None, (getattr(p, "__nb_signature__", None) for p in places)), None)
    if found:
        return [of_nanobind(text, defaults or ()) for text, _, defaults in found]
    return [] if isinstance(inner, type) else [of_python(inner)]


def record(names: list[str]) -> None:
    """Write the file, inside of the real library's environment."""
    import ttnn
    import ttnn.model_preprocessing

    found = {}
    for name in sorted(names):
        function = ttnn
        for part in name.split("."):
            function = getattr(function, part)
        if parameters := overloads(function):  # A class that is only a name has none.
            found[name] = ",\n  ".join(map(json.dumps, parameters))
    lines = ",\n".join(f"{json.dumps(name)}: [\n  {text}\n]" for name, text in found.items())
    KEPT.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> int:
    if len(sys.argv) > 1:
        record(sys.argv[1:])
        return 0
    sys.path[:0] = [str(ROOT), str(ROOT / "docs")]
    from make_ttnn import is_here, recorded

    names = [n for n, what in recorded() if what in ("operation", "function") and is_here(n)]
    names += [n for n, _ in recorded() if re.fullmatch(r"\w+(Program|Kernel|Matmul)Config", n)]
    lines = (REAL / "env.sh").read_text().splitlines()[0].removeprefix("export ")
    settings = dict(word.split("=", 1) for word in lines.split())
    environment = {**os.environ, **settings, "PYTHONPATH": ""}
    command = [REAL / "venv/bin/python", __file__, *names]
    return subprocess.run(command, env=environment, cwd=REAL).returncode


if __name__ == "__main__":
    sys.exit(main())
