"""The examples run, small, and show what they say that they show."""

import contextlib
import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import yaml
from machine import close_all

import ttkit
from ttkit.train import AutoContext

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(autouse=True)
def strict():
    """As on hardware: older forms are refused, and there is no fabric unless the example asks
    for one.
    """
    ttkit.strict()
    yield
    AutoContext.get_instance().close_device()
    close_all()
    ttkit.strict(False)


def example(name):
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", ROOT / "examples" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("variant", ["column", "row"])
def test_linear_regression_tp_dp(variant):
    main, found = example("linear_regression_tp_dp").main, {}
    for system, mesh in (("galaxy", (8, 4)), ("t3000", (2, 4)), ("t3000", (4, 2))):
        ttkit.use_system(system)
        # a T3000 has it only turned
        with (
            pytest.warns(UserWarning, match="try: mesh_shape")
            if mesh == (4, 2)
            else contextlib.nullcontext()
        ):
            found[mesh], distance = main(mesh, variant)
        assert distance < 2e-3
    losses = np.array(found[8, 4])
    assert all(losses[i + 5] < losses[i] / 5 for i in range(0, 15, 5)) and losses[0] > 50
    for other in found.values():
        np.testing.assert_allclose(other, losses, rtol=2e-2, atol=1e-6)


def test_falcon_mlp():
    alike = example("falcon_mlp").main("small", length=32)
    assert list(alike) == ["data_parallel", "tensor_parallel", "hybrid_parallel"]
    assert min(alike.values()) > 0.9999


def smaller(module, folder):
    """An example's configuration with a model and a batch that take a blink."""
    sections = yaml.safe_load(module.CONFIG.read_text())
    batches = {"batch_size": 4, "validation_batch_size": 2, "eval_every": 0}
    sections["training_config"] |= batches | {"checkpoint_dir": str(folder / "run")}
    sizes = {"num_blocks": 1, "embedding_dim": 32, "max_sequence_length": 32}
    sections["transformer_config"] |= sizes
    path = folder / "smaller.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


def test_nano_gpt(tmp_path, capsys):
    module = example("nano_gpt")
    config = smaller(module, tmp_path)
    first, said = module.main(config, steps=2)
    assert said.startswith("The owl ") and len(said) == 33 and said in capsys.readouterr().out
    again, _ = module.main(config, steps=2)  # goes on
    assert [record.step for record in first + again] == [1, 2, 3, 4]
    assert again[-1].loss < first[0].loss
    assert "Resuming from step 2" in capsys.readouterr().out


def test_llama(tmp_path):
    module = example("llama")
    records, texts = module.main(smaller(module, tmp_path), steps=3, new_tokens=8)
    assert records[-1].loss < records[0].loss and records[0].lr < records[1].lr
    assert all(
        len(text) == len(prompt) + 8 and text.startswith(prompt)
        for each in texts.values()
        for text, prompt in zip(each, ("The fox ", "On Monday it is "))
    )


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_docstring_says_how_to_run_it(path):
    done = run(path, "--help")
    assert done.returncode == 0 and f"python examples/{path.name}" in done.stdout, done.stderr


def test_as_a_command_without_enough_chips():
    program = ROOT / "examples" / "linear_regression_tp_dp.py"
    done = run(program)
    assert done.returncode == 1
    assert "requires 32 devices, but only 8 devices are available" in done.stderr
    done = run(program, "--steps", "5", TTKIT_SYSTEM="galaxy")
    assert done.returncode == 0, done.stderr
    assert "8x4 mesh; ddp: axis 0, 8 chips, tp: axis 1, 4 chips" in done.stdout


def run(*words, **environment):
    """Python on these words, with nothing of ttkit's in the environment but what is given."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("TTKIT")}
    env |= {"PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
