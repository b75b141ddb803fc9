"""The program that `ttkit doctor` runs on every host.

    python - QUESTION < probe.py

It uses nothing but Python's standard library, since ttkit may not be installed there yet. The
question is JSON: [folder, mpirun, folders to leave out, [[another host, its address], ...]]. The
answer is a line of JSON: what the host has, digests of its code, what is wrong, and which other
hosts it cannot reach.
"""

import fnmatch
import glob
import hashlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

# Files of these kinds must be the same on all hosts.
CODE = tuple(".py .sh .yaml .yml .json .textproto .toml .txt".split())
CODE_BYTES = 1 << 20  # A bigger file is data.
REACH_S = 2.0
PORT = 50_000  # Ranks may listen on this port, so a firewall must not block it.


def code(folder, excluded):
    """Return {file: digest} of the code in a folder."""
    found = {}
    for where, folders, files in os.walk(folder):
        folders[:] = set(folders).difference(*(fnmatch.filter(folders, each) for each in excluded))
        for name in files:
            path = os.path.join(where, name)
            if name.endswith(CODE) and os.path.isfile(path) and os.path.getsize(path) <= CODE_BYTES:
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                found[os.path.relpath(path, folder)] = digest[:12]
    return dict(sorted(found.items()))


def run(words):
    """Return whether a command succeeds, and the lines of its output, or why it does not run."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, [str(error)]
    lines = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
    return done.returncode == 0, lines or [""]


def ttkit(folder):
    """Return whether a rank in the folder imports ttkit, and its version, or why not."""
    text = f"import sys; sys.path.insert(0, {folder!r}); import ttkit; print(ttkit.__version__)"
    good, lines = run([sys.executable, "-c", text])
    return good, ("ttkit " if good else "ttkit does not import: ") + lines[-1][:200]


def mpi(named):
    """Return whether an mpirun runs, at `named` or on PATH, and its version and path."""
    path = named if os.access(named, os.X_OK) else shutil.which(os.path.basename(named))
    if not path:
        return False, "there is no mpirun"
    os.environ.setdefault("HOME", os.path.expanduser("~"))  # Open MPI needs HOME to start.
    good, lines = run([path, "--version"])
    return good, f"{lines[0]}, {path}" if good else f"{path} does not run"


def unreached(host, address):
    """Return the host if it does not answer, else None. A refused connection is an answer, too."""
    try:
        socket.create_connection((address, PORT), REACH_S).close()
    except ConnectionRefusedError:  # The host answers, but no program listens on this port.
        return None
    except OSError:
        return host
    return None


def main():
    """Print the answer to the question, which is the first argument of the program."""
    folder, mpirun, excluded, others = json.loads(sys.argv[1])
    with ThreadPoolExecutor(32) as pool:
        lost = [host for host in pool.map(lambda other: unreached(*other), others) if host]
    checked = {
        "folder": (True, folder) if os.path.isdir(folder) else (False, f"{folder} is missing"),
        "Python": (True, "Python {}.{}".format(*sys.version_info)),
        "ttkit": ttkit(folder),
        "MPI": mpi(mpirun),
    }
    answer = {name: text for name, (good, text) in checked.items() if good}
    answer["wrong"] = {name: text for name, (good, text) in checked.items() if not good}
    answer.update(code=code(folder, excluded), lost=lost)
    # Each of these PCIe devices is a card with one or two chips, or one chip of a Galaxy.
    answer["devices"] = len(glob.glob("/dev/tenstorrent/[0-9]*"))
    answer["ttnn"] = importlib.util.find_spec("ttnn") is not None
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
