"""Run the code of each lesson on the simulator and write down its ttnn calls, and the namespace: `record.py FILE`."""

import contextlib
import io
import json
import os
import pathlib
import sys

os.environ["TTKIT_BACKEND"] = "sim"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))


def lesson(path: pathlib.Path) -> list[dict]:
    """The calls of one lesson."""
    import ttkit

    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    names: dict = {"__name__": "__lesson__"}
    with ttkit.tape() as calls, contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            exec(compile("".join(cell["source"]), f"{path.name}", "exec"), names)
    return list(calls)


def namespace() -> dict[str, list[str]]:
    """Public names of the simulated ttnn and of its inner namespaces."""
    from ttkit.sim import ttnn

    inner = {name: sorted(vars(getattr(ttnn, name))) for name in ("transformer", "experimental", "model_preprocessing")}
    return {"": sorted(n for n in vars(ttnn) if not n.startswith("_")), **inner}


def main() -> None:
    tapes = {path.stem: lesson(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    pathlib.Path(sys.argv[1]).write_text(json.dumps({"namespace": namespace(), "tapes": tapes}))


if __name__ == "__main__":
    main()
