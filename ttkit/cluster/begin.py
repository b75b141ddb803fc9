"""Start one of ttkit's own processes: `python begin.py supervisor:main`.

A file of the working folder never takes the place of a module of the standard library, as a
`json.py` would under `python -c` (and Python 3.10 has no -P). ttkit is the one that this file
belongs to, whether it is installed or not.
"""

import os
import sys


def main() -> None:
    """Run the function of this room that the first argument names as MODULE:FUNCTION."""
    here = os.path.dirname(os.path.abspath(__file__))
    package = os.path.dirname(here)
    # Python puts the folder of its script first.
    sys.path[:] = [folder for folder in sys.path if folder != here]
    put_working_folder(before_packages=False)
    from importlib import import_module, util

    file = os.path.join(package, "__init__.py")
    spec = util.spec_from_file_location("ttkit", file, submodule_search_locations=[package])
    assert spec is not None and spec.loader is not None
    sys.modules["ttkit"] = util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["ttkit"])
    module, _, function = sys.argv.pop(1).partition(":")
    getattr(import_module(f"ttkit.cluster.{module}"), function)()


def put_working_folder(before_packages: bool) -> None:
    """Move the working folder on sys.path behind the standard library.

    It may come first by PYTHONPATH, which tt-run sets to it.

    Args:
        before_packages: before the installed packages too, as in a notebook; else last of all.
    """
    path = [folder for folder in sys.path if folder not in ("", os.getcwd())]
    packages = [os.path.basename(each) in ("site-packages", "dist-packages") for each in path]
    place = packages.index(True) if before_packages and True in packages else len(path)
    sys.path[:] = [*path[:place], "", *path[place:]]


if __name__ == "__main__":
    main()
