"""Start `make lab` on a free port, ask it for JupyterLab and for lesson 00, which must be trusted, stop it. Exit status 1 when it does not answer."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 90
TOKEN = "try-lab"


def get(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"token {TOKEN}"}), timeout=10) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error}") from None
    except OSError:
        return None  # not up yet


def main() -> int:
    lesson = next(iter(sorted(path.name for path in (ROOT / "notebooks").glob("00_*.ipynb"))), None)
    if lesson is None:
        print("notebooks/ has no lesson 00", file=sys.stderr)
        return 1
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lab_args = f"--no-browser --ip 127.0.0.1 --port {port} --ServerApp.port_retries=0 --IdentityProvider.token={TOKEN}"
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(["make", "lab", f"LAB_ARGS={lab_args}"], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            start = time.monotonic()
            while (page := get(f"http://127.0.0.1:{port}/lab/tree/{lesson}")) is None:
                if server.poll() is not None or time.monotonic() - start > LIMIT_S:
                    log.seek(0)
                    print(f"make lab does not answer after {time.monotonic() - start:.0f} s:\n{log.read().decode(errors='replace')}", file=sys.stderr)
                    return 1
                time.sleep(0.3)
            notebook = json.loads(get(f"http://127.0.0.1:{port}/api/contents/{lesson}") or b"{}")
            cells = len(notebook["content"]["cells"])
            log.seek(0)
            opens_lesson = f"/lab/tree/{lesson}?token=" in log.read().decode(errors="replace")
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(timeout=30)
    if not all(cell["metadata"].get("trusted") for cell in notebook["content"]["cells"] if cell["cell_type"] == "code"):
        print(f"make lab does not trust {lesson}: its saved pictures are not shown", file=sys.stderr)
        return 1
    if b"jupyter-config-data" not in page or not cells or not opens_lesson:
        print(f"make lab answers, but not with JupyterLab on {lesson}", file=sys.stderr)
        return 1
    print(f"make lab: JupyterLab answers in {time.monotonic() - start:.1f} s and opens {lesson} ({cells} cells)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
