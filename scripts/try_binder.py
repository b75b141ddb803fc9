"""Do what repo2docker does with binder/, in a clean folder: install, postBuild, lesson 00.

Exit status 1 when a step fails.

The folder holds the tracked files only, HOME is new, and the environment is a plain venv of the
Python that runs this script (repo2docker takes the one of binder/runtime.txt; the steps after it
are the same)."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)


def main() -> int:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="ttkit-binder-") as folder:
        repo, home, venv = (pathlib.Path(folder) / name for name in ("repo", "home", "venv"))
        home.mkdir()
        for name in filter(None, tracked):
            if (ROOT / name).is_file():
                (repo / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, repo / name)
        env = {
            name: value
            for name, value in os.environ.items()
            if name.upper() in KEPT or name.startswith("PIP_")
        }
        env |= {"HOME": str(home), "PATH": f"{venv / 'bin'}{os.pathsep}{env['PATH']}"}
        steps = [
            [sys.executable, "-m", "venv", str(venv)],
            [
                "python",
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-cache-dir",
                "-r",
                "binder/requirements.txt",
            ],
            ["./binder/postBuild"],
            ["./binder/start", "jupyter", "execute", "--timeout=120", "00_start_here.ipynb"],
        ]
        for step in steps:
            print("+", *step, flush=True)
            if subprocess.run(step, cwd=repo, env=env).returncode:
                print(f"failed: {' '.join(step)}", file=sys.stderr)
                return 1
    print("binder: every step passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
