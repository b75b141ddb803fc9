"""The hierarchical and the pipeline example from their runners, all ranks on this host: roles,
falling loss, checkpoint, resume.
"""

import json
import pathlib

import pytest
import yaml
from started import needs_mpirun, of_example

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCKS = [0], [1], [2, 3], [4], [5]
STAGES = [f"stage {stage} of 5, blocks {blocks}" for stage, blocks in enumerate(BLOCKS)]
THREE = [f"{role} (3-tier mode)" for role in ["worker"] * 3 + ["aggregator", "optimizer"]]
TWO = ["worker (2-tier mode)"] * 4 + ["aggregator_optimizer (2-tier mode)"]
CASES = {
    "nanogpt_3tier": ("hierarchical_parallel", THREE),
    "nanogpt_2tier": ("hierarchical_parallel", TWO),
    "nanogpt_pp": ("pipeline_parallel_training", STAGES),
}


def shortened(name, folder, steps):
    """The example's configuration with so many steps, and its checkpoints in a folder of the
    test.
    """
    settings = yaml.safe_load((ROOT / f"configs/training/{name}.yaml").read_text())
    kept = {"checkpoint_dir": str(folder / "checkpoints")}
    settings["training_config"] |= kept | {"max_steps": steps, "eval_every": 0}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return str(path)


@needs_mpirun
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
        done = of_example(example, "./runner.sh", "--config", shortened(name, tmp_path, steps))
        assert done.returncode == 0, done.stdout + done.stderr
        for rank, role in enumerate(roles):
            assert f"Rank {rank}/5: Running as {role}" in done.stdout, done.stdout
    assert ("Resuming from step 3" in done.stdout) == goes_on
    records = [
        json.loads(line) for line in (tmp_path / "checkpoints/log.jsonl").read_text().splitlines()
    ]
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5]
    assert records[-1]["loss"] < records[0]["loss"] - 0.1


@pytest.mark.parametrize("example", ["hierarchical_parallel", "pipeline_parallel_training"])
def test_an_option_that_is_none(example):
    done = of_example(example, "./runner.sh", "--hosts", "a")
    assert done.returncode == 1 and done.stderr.startswith("usage: runner.sh")
