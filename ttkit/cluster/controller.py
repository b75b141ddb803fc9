"""The controller: ipyparallel's hub and schedulers, which pass cells to the engines and their
answers back.
"""

from __future__ import annotations

import os
import sys

from ttkit.cluster.lease import hold


def main() -> None:
    """Be the controller until stopped; the arguments are ipcontroller's."""
    hold()
    os.register_at_fork(after_in_child=hold)  # the heart monitor is a process of its own
    from ipyparallel.controller import app

    class IPController(app.IPController):
        def to_work_dir(self) -> None:
            """Stay where we are: ipyparallel would put this folder first on sys.path."""

    IPController.launch_instance(sys.argv[1:])


if __name__ == "__main__":
    main()
