"""The program that `ttkit doctor` runs on every host, by any Python and its standard library alone:
ttkit may not be installed there yet.

    doctor -> probe   [folder, mpirun, names to exclude, whether to open the devices]
    probe -> doctor   what is there, and a TCP port that is open for the other hosts
    doctor -> probe   [[host, address, port], ...]
    probe -> doctor   the hosts that it could not reach

Each is one line of JSON.
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

# what must be the same on all hosts
CODE = (".py", ".sh", ".yaml", ".yml", ".json", ".textproto", ".toml", ".txt")
CODE_BYTES = 1 << 20  # a bigger file is data
FILES = 20_000
REACH_S = 2.0
OPEN_S = 25.0  # for ttnn to open the devices


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
    os.environ.setdefault("HOME", os.path.expanduser("~"))  # Open MPI does not start without one
    status, out = output([path, "--version"], 10) if path else (None, "")
    return {
        "path": path,
        "version": out.strip().splitlines()[0] if status == 0 and out.strip() else "",
    }


def devices(asked_to_open):
    """Return the PCIe devices, whether ttnn is there, and on request how many chips it finds."""
    folder = "/dev/tenstorrent"
    found: dict[str, object] = {
        "numbers": sorted(int(name) for name in os.listdir(folder) if name.isdigit())
        if os.path.isdir(folder)
        else []
    }
    found["ttnn"] = importlib.util.find_spec("ttnn") is not None
    if asked_to_open and all(found.values()):
        status, out = output(
            [sys.executable, "-c", "import ttnn; print('chips', ttnn.get_num_devices())"], OPEN_S
        )
        last = (out.strip().splitlines() or [""])[-1]
        found["chips"] = (
            int(last.split()[1])
            if status == 0 and last.startswith("chips ")
            else f"ttnn does not open them: {last[:200]}"
        )
    return found


def reach(host, place, port):
    """Return the host if it cannot be reached, else None."""
    try:
        socket.create_connection((place, port), REACH_S).close()
    except OSError:
        return host
    return None


def main():
    """Answer the two questions."""
    folder, mpirun, excluded, open_devices = json.loads(sys.stdin.readline())
    there = os.path.isdir(folder)
    both = socket.has_dualstack_ipv6()
    listening = socket.create_server(
        ("", 0),
        family=socket.AF_INET6 if both else socket.AF_INET,
        backlog=128,
        dualstack_ipv6=both,
    )
    answer = {
        "name": socket.gethostname(),
        "folder": there,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "ttkit": version_of_ttkit(folder) if there else {"wrong": "the folder is missing"},
        "code": code(folder, excluded) if there else {},
        "mpi": mpi(mpirun),
        "devices": devices(open_devices),
        # the caller's address and port, ours and sshd's
        "seen": os.environ.get("SSH_CONNECTION", "").split(),
        "port": listening.getsockname()[1],
    }
    print(json.dumps(answer), flush=True)
    others = json.loads(sys.stdin.readline() or "[]")
    with ThreadPoolExecutor(32) as pool:
        print(
            json.dumps([host for host in pool.map(lambda other: reach(*other), others) if host]),
            flush=True,
        )
    sys.stdin.readline()  # the port stays open until all the others have tried it


if __name__ == "__main__":
    main()
