"""The program that `ttkit doctor` runs on every host, by any Python and its standard library alone:
ttkit may not be installed there yet.

    python - QUESTION < probe.py

The question is JSON: [folder, mpirun, names to exclude, [[another host, its address], ...]]. The
answer is a line of JSON: what is there, and which of the other hosts it cannot reach.
"""

import fnmatch
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
CODE = (".py", ".sh", ".yaml", ".yml", ".json", ".textproto", ".toml", ".txt")
CODE_BYTES = 1 << 20  # A bigger file is data.
FILES = 20_000
REACH_S = 2.0
PORT = 50_000  # Ranks may listen on it.


def code(folder, excluded):
    """Return {file: digest} of the code in a folder."""
    found = {}
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not any(fnmatch.fnmatch(name, pattern) for pattern in excluded)
        )
        for name in sorted(files):
            path = os.path.join(where, name)
            if name.endswith(CODE) and os.path.isfile(path) and os.path.getsize(path) <= CODE_BYTES:
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()[
                        :12
                    ]
        if len(found) > FILES:
            break
    return found


def output(words, seconds):
    """Return (exit code, output) of a command; (None, why) where it fails to run or is too slow."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer in {seconds:g} s"
    except OSError as error:
        return None, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


def version_of_ttkit(folder):
    """Return the version that a rank in the folder imports, or why the import fails."""
    text = "import ttkit; print(ttkit.__version__)"
    status, out = output(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r}); {text}"], 10
    )
    last = (out.strip().splitlines() or [""])[-1]
    return {"version": last} if status == 0 else {"wrong": last}


def mpi(named):
    """Return the path of mpirun, as named or on PATH, and the first line of its version."""
    path = named if os.access(named, os.X_OK) else shutil.which(os.path.basename(named))
    os.environ.setdefault("HOME", os.path.expanduser("~"))  # Open MPI needs HOME to start.
    status, out = output([path, "--version"], 10) if path else (None, "")
    return {
        "path": path,
        "version": out.strip().splitlines()[0] if status == 0 and out.strip() else "",
    }


def devices():
    """Return the PCIe devices, and whether ttnn is there."""
    folder = "/dev/tenstorrent"
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return {
        "numbers": sorted(int(name) for name in names if name.isdigit()),
        "ttnn": importlib.util.find_spec("ttnn") is not None,
    }


def unreached(host, address):
    """Return the host if no TCP connection to it can be opened, else None."""
    try:
        socket.create_connection((address, PORT), REACH_S).close()
    except ConnectionRefusedError:  # Nothing listens there, but the way is open.
        return None
    except OSError:
        return host
    return None


def main():
    """Answer the question."""
    folder, mpirun, excluded, others = json.loads(sys.argv[1])
    there = os.path.isdir(folder)
    with ThreadPoolExecutor(32) as pool:
        lost = [host for host in pool.map(lambda other: unreached(*other), others) if host]
    answer = {
        "folder": there,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "ttkit": version_of_ttkit(folder) if there else {"wrong": "the folder is missing"},
        "code": code(folder, excluded) if there else {},
        "mpi": mpi(mpirun),
        "devices": devices(),
        "lost": lost,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
