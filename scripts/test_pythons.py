"""Run the tests with every Python and NumPy that ttkit supports and this machine has.

Exit status 1 when one fails.

make test-pythons                            all of them
make test-pythons PYTHONS="3.10 3.13"        these Pythons
make test-pythons PYTEST_ARGS="-k mesh"      these tests

The Makefile gives the commands in the variables TESTS and NOTEBOOKS. Each combination has an
environment of its own in a temporary folder. The notebooks run once for each Python, with NumPy 2.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUMPYS = ("numpy>=2", "numpy==1.26.*")
LAST_OF_NUMPY_1 = (3, 12)  # newer Pythons have no wheel of NumPy 1.26


def supported() -> list[str]:
    """The versions of Python that pyproject.toml names."""
    return re.findall(
        r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()
    )


def found(version: str) -> str | None:
    """The path of an interpreter of this version, on PATH or below pyenv's folder."""
    pyenv = (
        pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv") / "versions"
    )
    name = f"python{version}"
    for path in [name, *sorted(map(str, pyenv.glob(f"{version}.*/bin/{name}")))]:
        try:  # a shim of pyenv can be on PATH and not start
            words = [
                path,
                "-c",
                "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)",
            ]
            done = subprocess.run(words, capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if done.returncode == 0 and done.stdout.split()[0] == version:
            return done.stdout.split(maxsplit=1)[1].strip()
    return None


def steps(
    python: str, folder: pathlib.Path, numpy: str
) -> Iterator[tuple[str, list[str | pathlib.Path]]]:
    """(what it is, its command) for each step of one combination."""
    here = folder / "bin" / "python"
    pip = [here, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    yield "environment", [python, "-m", "venv", folder]
    yield "environment", [*pip, "--editable", ".[test]", numpy]
    yield "tests", [here, *shlex.split(os.environ["TESTS"])]
    if numpy == NUMPYS[0]:
        yield "notebooks", [here, *shlex.split(os.environ["NOTEBOOKS"])]


def run(python: str, numpy: str) -> str:
    """Run all steps of one combination; "passed", or which steps failed."""
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ttkit-pythons-") as folder:
        for step, command in steps(python, pathlib.Path(folder), numpy):
            if "environment" not in failed and subprocess.run(command, cwd=ROOT).returncode:
                failed.append(step)
    return f"FAILED: {', '.join(failed)}" if failed else "passed"


def main() -> int:
    versions = os.environ.get("PYTHONS", "").split() or supported()
    rows = []
    for version in versions:
        python = found(version)
        if python is None:
            rows.append((version, "", "not on this machine"))
            continue
        for numpy in NUMPYS:
            if numpy == NUMPYS[1] and tuple(map(int, version.split("."))) > LAST_OF_NUMPY_1:
                continue
            print(f"\n== Python {version} ({python}), {numpy}", flush=True)
            start = time.monotonic()
            result = run(python, numpy)
            rows.append((version, numpy, f"{result} in {time.monotonic() - start:.0f} s"))
    print()
    for version, numpy, result in rows:
        print(f"Python {version:5} {numpy:14} {result}")
    return int(
        any(result.startswith("FAILED") for _, _, result in rows)
        or not any(numpy for _, numpy, _ in rows)
    )


if __name__ == "__main__":
    sys.exit(main())
