"""Unchanged programs: `import ttnn` and `import ttml` in a process of their own, and the command
`ttkit python`.
"""

import os
import re
import subprocess
import sys
import textwrap

import pytest

TTKIT = [sys.executable, "-m", "ttkit"]
PROGRAM = """
import sys

import numpy as np
import ttnn

ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
    x = ttnn.from_torch(
        np.ones((64, 80), np.float32),
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, 1)),
    )
    for _ in range(3):
        y = ttnn.all_gather(x, dim=1, cluster_axis=1)
    print(__name__, sys.argv[1:], list(ttnn.matmul(y, y, transpose_b=True).shape))
    if sys.argv[-1:] == ["fail"]:
        ttnn.matmul(x, y)
    if sys.argv[-1:] == ["exit"]:
        sys.exit(7)
"""


def run(*command, cwd, **env):
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=os.environ | env, capture_output=True, text=True
    )


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "there" / "program.py"
    path.parent.mkdir()
    path.write_text(PROGRAM)
    return path


def python(folder, code, **env):
    """Run lines of code; what it prints, or the last line of its error."""
    done = run(sys.executable, "-c", textwrap.dedent(code), cwd=folder, **env)
    return (done.stdout.splitlines() or done.stderr.splitlines()[-2:]), done.stderr.splitlines()


# ---------------------------------------------------------------- install_as_ttnn
def test_names_of_a_program(tmp_path):
    code = """
        import ttkit
        ttkit.install_as_ttnn()
        ttkit.install_as_ttnn()
        import ttnn, ttml, ttnn.experimental, ttnn.operations.ccl, ttml.ops.loss as loss
        assert ttnn.operations.normalization.layer_norm is ttnn.layer_norm
        from ttnn import ShardTensorToMesh
        from ttnn.distributed.distributed import MeshToTensor
        from ttnn.model_preprocessing import ParameterDict
        from ttnn.transformer import concatenate_heads
        from ttml.autograd import AutoContext, Tensor
        import ttnn.database
        with ttnn.manage_config("report_name", ttnn.Config(ttnn.CONFIG).report_name):
            ttnn.tracer.disable_tracing()
        print(ttnn is ttkit.ttnn, ttml is ttkit.ttml, ttnn.experimental.dropout is not None)
        print(loss.mse_loss.__name__, ttnn.distributed.ShardTensorToMesh is ShardTensorToMesh)
    """
    printed, errors = python(tmp_path, code)
    assert printed == ["True True True", "mse_loss True"]
    assert errors == ["ttkit: ttnn and ttml are the simulator's, on a t3000"]


def test_a_missing_module(tmp_path):
    _, errors = python(tmp_path, "import ttkit; ttkit.install_as_ttnn(); import ttnn.nothing")
    assert "No module named 'ttnn.nothing'" in errors[-1]


@pytest.mark.parametrize("name", ["ttnn", "ttml"])
def test_refused_beside_the_real_one(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("")
    last, _ = python(
        tmp_path, f"import {name}, ttkit; ttkit.install_as_ttnn()", TTKIT_BACKEND="sim"
    )
    assert f"install_as_ttnn(): the real {name} is imported already" in last[0]
    assert "ttkit python PROGRAM" in last[1]


def test_modules_of_tt_train_come_from_its_sources(tmp_path):
    """`ttml.common` is Python: it is found below TT_METAL_HOME or on sys.path, and uses ours."""
    common = tmp_path / "home" / "tt-train" / "sources" / "ttml" / "ttml" / "common"
    common.mkdir(parents=True)
    (common / "config.py").write_text(
        "import ttml\nseed = ttml.autograd.AutoContext().get_seed()\n"
    )
    models = tmp_path / "more" / "ttml" / "models" / "tiny"
    models.mkdir(parents=True)
    (models / "__init__.py").write_text("from ttml.modules import LinearLayer\n")
    code = """
        import sys, ttkit
        ttkit.install_as_ttnn()
        sys.path.append("more")
        from ttml.common.config import seed
        from ttml.models.tiny import LinearLayer
        print(seed, LinearLayer.__name__)
    """
    assert python(tmp_path, code, TT_METAL_HOME=str(tmp_path / "home"))[0] == ["5489 LinearLayer"]


# ---------------------------------------------------------------- the command
def test_a_program(program, tmp_path):
    done = run(*TTKIT, program, "a", "--strict", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "__main__ ['a', '--strict'] [32, 32]\n")
    assert done.stderr == "ttkit: ttnn and ttml are the simulator's, on a t3000\n"


def test_a_missing_program(tmp_path):
    missing = run(*TTKIT, "python", "nothing.py", cwd=tmp_path)
    assert missing.returncode == 1 and "No such file or directory" in missing.stderr


def test_its_own_folder_comes_first(program, tmp_path):
    (program.parent / "beside.py").write_text("word = 'beside'")
    program.write_text("import beside\nprint(beside.word)\n")
    assert run(*TTKIT, program, cwd=tmp_path).stdout == "beside\n"


@pytest.mark.parametrize("arguments, code", [(("fail",), 1), (("--steps", "-m", "exit"), 7)])
def test_a_report_comes_however_a_program_ends(program, tmp_path, arguments, code):
    done = run(*TTKIT, "python", "--report", program, *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert "t3000, 2x4 chips: Profile(1 operations, 3 collectives, 1 transfers" in done.stderr
    assert "8 chips used: 0, 1, 2, 3, 4, 5, 6, 7" in done.stderr
    # of each chip: a tile, and two results of all_gather, the one before still there
    peak = 2 * (32 * 32 + 2 * 32 * 96)
    assert f"memory: at most {peak / 1000:.1f} kB of a chip's 12 GB" in done.stderr
    rows = [line for line in done.stderr.splitlines() if "all_gather" in line]
    where, _, along, _, _, calls = [cell.strip() for cell in rows[0].split("│")[1:7]]
    assert (where, along, calls) == ("there/program.py:17", "axis 1 of 4 chips", "3")
    assert rows[1].split()[3] == "3"  # calls
    if code == 1:
        trace = done.stderr[done.stderr.index("Traceback") :]
        assert trace.count("File ") == 1 and f'File "{program}", line ' in trace
        assert "The width of the first tensor must be equal to the height" in trace


def test_the_systems(program, tmp_path):
    program.write_text("import ttnn\nprint(ttnn.get_num_devices(), end='')\n")
    assert run(*TTKIT, "--system", "galaxy", program, cwd=tmp_path).stdout == "32"
    wrong = run(*TTKIT, "python", "--system", "galaxi", program, cwd=tmp_path)
    assert wrong.returncode == 1 and "galaxy" in wrong.stderr


def test_pytest_in_the_same_process(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import ttnn\n\n"
        "def test_right():\n    assert ttnn.get_num_devices() == 8\n\n"
        "def test_wrong():\n    assert ttnn.get_num_devices() == 9\n\n"
        "def test_refused():\n    ttnn.arange(4, 8, 0)\n"
    )
    command = (*TTKIT, "python", "--report", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = run(*command, "test_it.py", cwd=tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 1 and "2 failed, 1 passed" in done.stdout
    places = [line for line in done.stdout.splitlines() if re.search(r"\.py:\d+: ", line)]
    assert [place.split(":")[0] for place in places] == ["test_it.py", "test_it.py"]
    assert "chips used" not in done.stderr  # Nothing ran on a mesh.


def test_reports_of_two_runs_are_compared(program, tmp_path):
    for name, wanted in (("a", "dim=1"), ("b", "dim=0")):
        program.write_text(PROGRAM.replace("dim=1", wanted))
        done = run(*TTKIT, "python", "--report", f"{name}.json", program, cwd=tmp_path)
        assert "collectives:" in done.stderr
    parted = run(*TTKIT, "report", "a.json", "b.json", cwd=tmp_path)
    assert parted.returncode == 0
    assert [line.split(":")[0] for line in parted.stdout.splitlines() if line[0] in "+-"] == [
        "- all_gather along axis 1 of 4 chips",
        "+ all_gather along axis 1 of 4 chips",
    ]
    assert "at there/program.py:17" in parted.stdout
    missing = run(*TTKIT, "report", "a.json", "c.json", cwd=tmp_path)
    assert missing.returncode == 1 and "report not found: c.json" in missing.stderr


def test_programs_that_a_card_would_compile(tmp_path):
    (tmp_path / "count.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            import ttnn
            from tracy import signpost

            ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
            mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 8))
            how = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": mesh}
            x, y = (ttnn.from_torch(np.full((32, 32), n, np.float32), **how) for n in (1, 2))
            signpost("start")
            counts = []
            for call in (
                lambda: ttnn.add(x, x),
                lambda: ttnn.add(x, y),
                lambda: ttnn.all_gather(x, 0),
                lambda: ttnn.all_gather(x, 1),
                lambda: ttnn.all_gather(y, 1),
                lambda: ttnn.to_torch(ttnn.get_device_tensors(x)[0]),
                mesh.clear_program_cache,
            ):
                call()
                counts.append(mesh.num_program_cache_entries())
            print(counts)
            """
        )
    )
    done = run(*TTKIT, "count.py", cwd=tmp_path)
    assert done.stdout == "[1, 1, 2, 3, 3, 3, 0]\n", done.stderr


def test_without_a_program(tmp_path):
    done = run(*TTKIT, "python", "--strict", cwd=tmp_path)
    assert done.returncode == 2 and "PROGRAM is missing" in done.stderr
    usage = run(*TTKIT, cwd=tmp_path)
    assert usage.returncode == 2 and "ttkit python --help" in usage.stderr
