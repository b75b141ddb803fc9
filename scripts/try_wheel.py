"""Do what somebody without git does: install the wheel, `ttkit lab` in an empty folder, lesson 00.

Exit status 1 when a step fails. The wheel is built from the checkout that holds this file, the
environment is a new venv of the Python that runs this script, HOME and the folder are empty.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from try_readme import try_lab

ROOT = pathlib.Path(__file__).resolve().parent.parent
PIP = ["-m", "pip", "--disable-pip-version-check", "--quiet"]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ttkit wheel ") as place:
        wheels, home, work, venv = (pathlib.Path(place, name) for name in ("w", "h", "work", "v"))
        for folder in (home, work):
            folder.mkdir()
        python = str(venv / "bin" / "python")
        env = {"PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
        env |= {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
        env["LANG"] = "C.UTF-8"

        def step(*words: str) -> None:
            print("+", *words, flush=True)
            subprocess.run(words, cwd=work, env=env, check=True, stdin=subprocess.DEVNULL)

        try:
            step(sys.executable, "-m", "venv", str(venv))
            step(python, *PIP, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT))
            step(python, *PIP, "install", *map(str, wheels.glob("*.whl")))
            lessons = work / "my lessons"
            command = f"exec ttkit lab '{lessons}' --no-browser --port 0"
            if wrong := try_lab(command, work, env, lessons / "notebooks"):
                print(f"`ttkit lab` {wrong}", file=sys.stderr)
                return 1
            lesson = str(lessons / "notebooks" / "00_start_here.ipynb")
            step("jupyter", "execute", "--timeout=120", lesson)
            step("ttkit", "lessons")
        except subprocess.CalledProcessError as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    print("wheel: every step passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
