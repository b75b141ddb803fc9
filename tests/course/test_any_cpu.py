"""What ttkit claims about numbers holds on every CPU, tried under several kernels of BLAS."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np

from scripts import try_cpus

TESTS = pathlib.Path(__file__).resolve().parent.parent
# No product in tests/support/kernels.py has an inner dimension above 256 (the vocabulary), so that its sum
# is off by at most 256 roundings to float32, each 2**-24 of the value; usually by a few.
ROUNDING = 256 * 2**-24


@functools.cache
def kernels():
    return try_cpus.environments()


@functools.cache
def found():
    """What tests/support/kernels.py prints under the oldest kernel and the newest, by its name."""
    results, running = {}, kernels()[0]
    for name in dict.fromkeys([next(iter(running)), list(running)[-1]]):
        variables = running[name]
        command = [sys.executable, TESTS / "support" / "kernels.py"]
        path = os.pathsep.join(map(str, (TESTS.parent, TESTS)))
        env = os.environ | variables | try_cpus.counts(1) | {"PYTHONPATH": path}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        results[name] = json.loads(done.stdout.splitlines()[-1])
    return results


def test_losses_agree_within_rounding():
    wanted = next(iter(found().values()))["losses"]["one"]
    assert wanted[-1] < wanted[0] - 0.5
    for kernel, result in found().items():
        for form, losses in result["losses"].items():
            close = {"rtol": ROUNDING, "err_msg": f"{form} under {kernel}"}
            np.testing.assert_allclose(losses, wanted, **close)


def test_what_is_claimed_to_be_equal_is_equal_under_each_kernel():
    for kernel, result in found().items():
        assert all(result["same bits"].values()), (kernel, result["same bits"])


def test_the_first_weights_are_the_same_everywhere():
    assert len({result["first weights"] for result in found().values()}) == 1


def test_a_kernel_that_is_asked_for_runs_or_is_skipped_with_the_reason():
    running, skipped = kernels()
    assert running
    listed = {each.name: each for each in (*try_cpus.X86, *try_cpus.ARM)}
    for name in running.keys() & listed.keys():
        assert try_cpus.probe(running[name])[0] in listed[name].shown_as
        # OpenBLAS takes another kernel for a name that it does not have.
        unknown = try_cpus.Kernel("NoSuchKernel", ("NoSuchKernel",), ())
        said = try_cpus.refusal(unknown, {"OPENBLAS_CORETYPE": unknown.name})
        assert said.startswith("OpenBLAS runs ") and said.endswith(" instead")
    assert all("skipped, " in line or "only the kernel" in line for line in skipped)


def test_a_kernel_that_this_cpu_cannot_run_is_skipped(monkeypatch):
    monkeypatch.setattr(try_cpus, "PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    kernel = try_cpus.X86[0]
    assert try_cpus.refusal(kernel, {}) == f"this CPU cannot run it ({signal.SIGILL.name})"


def test_a_cpu_lacks_the_features_of_newer_ones():
    features = ["X86_V3", "X86_V4", "AVX512_ICL"]
    lacking = [try_cpus.environment(each, features) for each in try_cpus.X86]
    assert [each["NPY_DISABLE_CPU_FEATURES"] for each in lacking] == [
        "X86_V3 X86_V4 AVX512_ICL",
        "X86_V4 AVX512_ICL",
        "",
    ]


def test_one_combination_runs_and_a_failure_is_counted(capfd):
    few = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # The plugins take seconds to import.
    quick = ["--no-header", "-k", "test_default_fidelity", "tests/hardware/test_roofline.py"]
    line, passed = try_cpus.run(quick, few)
    assert passed and line.startswith("1 passed, 0 failed, 0 skipped, ")
    line, passed = try_cpus.run(["tests/no_such_file.py"], few)
    assert not passed and "no_such_file" in capfd.readouterr().out
