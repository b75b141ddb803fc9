"""Do what a newcomer does: run README's two commands, as they are printed there, in the checkout
that holds this file.

The first command must bring up JupyterLab on lesson 00, without outputs; it is then stopped. The
second must end with exit status 0. Needs no package: it runs before there is a .venv.
Exit status 1 says which command failed.

python3 scripts/try_readme.py            both commands
python3 scripts/try_readme.py lab        only the first
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETUP_S = 900  # the first command installs about a hundred packages
LISTENS_S = 30  # until a server that has printed its address takes connections
ADDRESS = re.compile(r"(http://(?:localhost|127\.0\.0\.1):\d+)(/lab/tree/\S+?)?\?token=(\w+)")


def commands() -> list[str]:
    """The commands of README's section "Two commands", without their comments."""
    section = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .partition("\n## Two commands\n")[2]
        .partition("\n## ")[0]
    )
    block = section.partition("```\n")[2].partition("```")[0]
    found = [line.partition("#")[0].strip() for line in block.splitlines() if line.strip()]
    if len(found) != 2:
        raise SystemExit(
            f"README.md: the section 'Two commands' must show two commands, it shows {found}"
        )
    return found


def get(address: str, token: str) -> bytes:
    """What the server answers. It prints its address just before it listens there."""
    request = urllib.request.Request(address, headers={"Authorization": f"token {token}"})
    until = time.monotonic() + LISTENS_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read()
        except urllib.error.URLError as error:
            refused = isinstance(error.reason, ConnectionRefusedError)
            if not refused or time.monotonic() > until:
                raise
        time.sleep(0.1)


def problem_with(server: "re.Match[str]", notebooks: pathlib.Path) -> str:
    """What is wrong with the JupyterLab at an address; "" when it shows lesson 00 as a learner
    should see it.
    """
    address, path, token = server.groups()
    lesson = min(file.name for file in notebooks.glob("00_*.ipynb"))
    if path != f"/lab/tree/{lesson}":
        return f"opens {path}, not lesson {lesson}"
    if b"jupyter-config-data" not in get(address + path, token):
        return "does not answer with JupyterLab"
    notebook = json.loads(get(f"{address}/api/contents/{lesson}", token))
    if any(cell.get("outputs") for cell in notebook["content"]["cells"]):
        return f"shows outputs in {lesson} that the learner has not made"
    return ""


def try_lab(
    command: str,
    folder: pathlib.Path = ROOT,
    env: "dict[str, str] | None" = None,
    notebooks: pathlib.Path = ROOT / "ttkit-lessons" / "notebooks",
) -> str:
    """Start a command that serves JupyterLab, look at it, stop it. Return what is wrong, or "".

    It runs in `folder`, with the environment `env`; the lessons are in `notebooks`.
    """
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        server = subprocess.Popen(
            ["sh", "-c", command],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            while True:
                time.sleep(0.5)
                log.seek(0)
                said = log.read()
                if found := ADDRESS.search(said):
                    wrong = problem_with(found, notebooks)
                    break
                if server.poll() is not None or time.monotonic() - start > SETUP_S:
                    return f"gives no address after {time.monotonic() - start:.0f} s:\n{said}"
        except (urllib.error.URLError, OSError) as error:
            return f"does not answer: {error}\n{said}"
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGTERM)
            server.wait(timeout=60)
    if not wrong:
        print(f"JupyterLab was up {time.monotonic() - start:.0f} s after `{command}`", flush=True)
    return wrong


def main() -> int:
    first, second = commands()
    if wrong := try_lab(first):
        print(f"`{first}` {wrong}", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["lab"]:
        return 0
    if code := subprocess.run(["sh", "-c", second], cwd=ROOT, stdin=subprocess.DEVNULL).returncode:
        print(f"`{second}` ended with exit status {code}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
