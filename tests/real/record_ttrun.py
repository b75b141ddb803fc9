#!/usr/bin/env python3
"""Give every launch of tests/cluster/cases.py to the real tt-run and note what it starts:

`python record_ttrun.py PYTHON OUT.json`.

PYTHON is one that has ttnn and pydantic. An mpirun that only notes its words stands in for Open
MPI's, so nothing is started. Of launches that tt-run refuses, the exit code is noted, and whether
it says what the case expects."""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))
import cases


def main(python: str, out: str) -> int:
    package = subprocess.run(
        [python, "-c", "import importlib.util as u; print(u.find_spec('ttnn').origin)"],
        capture_output=True,
        text=True,
        check=True,
    )
    # by its path: `-m` would load the whole library each time
    script = pathlib.Path(package.stdout.strip()).parent / "distributed/ttrun.py"
    wrong, launches, codes = [], {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = cases.workshop(name)

        def tt_run(args, files, code="0"):
            cases.write(folder, files)
            shell = {**cases.environment(folder), "RECORD_CODE": code}
            done = subprocess.run(
                [python, script, *args], cwd=folder, env=shell, capture_output=True, text=True
            )
            return done.returncode, done.stdout + done.stderr

        for case in cases.LAUNCHES:
            code, said = tt_run([*case["args"], "--", *cases.PROGRAM], case["files"])
            launches[case["name"]] = cases.noted(folder)
            if code or launches[case["name"]] is None:
                wrong.append(f"{case['name']}: exit code {code}: {said[-500:]}")
            if case["name"] in cases.CONFIGS:
                code, said = tt_run(
                    [*case["args"], "--dry-run", "--", *cases.PROGRAM], case["files"]
                )
                if code or " ".join(["mpirun", *launches[case["name"]]]) not in cases.general(
                    folder, said
                ):
                    wrong.append(f"{case['name']}: the dry run says something else: {said[-500:]}")
        refused = {
            name: (["--rank-binding", "rb.yaml"], {"rb.yaml": text}, 1, phrases)
            for name, (text, phrases) in cases.BAD_FILES.items()
        }
        for name, (args, files, expected, phrases) in {**refused, **cases.BAD_LAUNCHES}.items():
            code, said = tt_run([*args, "--", *cases.PROGRAM], {"rb.yaml": cases.TWO, **files})
            codes[name] = code
            lacking = [phrase for phrase in phrases if phrase not in said]
            if code != expected or lacking:
                wrong.append(
                    f"{name}: exit code {code}, expected {expected}; does not say {lacking}: "
                    f"{said[-600:]}"
                )
        for name, (program, expected, phrases) in cases.BAD_PROGRAMS.items():
            code, said = tt_run(
                ["--rank-binding", "rb.yaml", *program], {"rb.yaml": cases.TWO}, "7"
            )
            codes[name] = code
            if code != expected or not all(phrase in said for phrase in phrases):
                wrong.append(f"{name}: exit code {code}, expected {expected}: {said[-600:]}")
    pathlib.Path(out).write_text(
        json.dumps({"launches": launches, "codes": codes}, indent=1) + "\n"
    )
    print(
        f"tt-run: {len(launches)} launches, {len(codes)} refused or failing, "
        f"{len(wrong)} not as expected"
    )
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
