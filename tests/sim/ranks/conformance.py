"""Run by every rank: all recorded cases of the real library, on a mesh that the ranks share.

python conformance.py EVERY   takes each EVERY-th case; prints what passed on this rank, what cannot be asked here, and what failed.

The cases were recorded with one process that drives all chips. Where ranks share them, the real
library says other things in five kinds of cases, and the simulator refuses a sixth; only these may
come out differently, and everything else must be the same on every rank:

- a case that asks for ids of devices, how many a process has, or which are local: ids are a host's
  own, other ranks' chips have none;
- a tensor in a file: the first rank writes it, and here each rank has a folder of its own;
- a printed table: it shows Local and Remote chips;
- a tensor read without a composer: a rank reads its own shards, and one that has a single one of
  them may;
- memory of a small mesh: a rank that has no chip of it takes none;
- tokens to experts and back, borders of neighbours: the simulator has these in one process only.
"""

import collections
import contextlib
import gc
import glob
import io
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "conformance"))
os.environ.setdefault("TT_MESH_ID", "0")
os.environ.setdefault("TT_MESH_HOST_RANK", os.environ["OMPI_COMM_WORLD_RANK"])
OF_DEVICES = (
    "get_device_id", "get_num_devices()", "get_num_pcie_devices()", "get_pcie_device_ids()",
    "is_local(", "physical_device_ids", "dump_tensor(",
)  # fmt: skip
READ_ELSEWHERE = ("has these values: read them there", "expected RuntimeError('mesh to row-major")


def differs_by_right(case, why: str) -> bool:
    """Whether this case is one of the six kinds above."""
    if case["kind"] == "visualize" or "the simulator has no such collective" in why:
        return True
    if "Out of Memory" in json.dumps(case["expect"]):
        return "mesh" in case["spec"]
    if case["cat"] == "compose-default":
        return any(text in why for text in READ_ELSEWHERE)
    return any(word in json.dumps(case["spec"]) for word in OF_DEVICES)


def main(every: int) -> None:
    sys.modules["torch"] = None  # NumPy will do, and torch takes seconds of each rank
    import run

    import ttkit
    from ttkit import ttnn

    ttkit.strict()
    cases = run.load(sorted(glob.glob(str(HERE.parent.parent / "conformance" / "*.json"))))
    cases = sorted(cases, key=run.order)[::every]
    gc.freeze()  # The runner collects garbage at each close; what was imported is never any.
    env, passed, other, failed = run.Env(ttnn), collections.Counter(), collections.Counter(), {}
    for case in cases:
        with contextlib.redirect_stdout(io.StringIO()):
            why = run.compare(case, run.observe(env, case), False)
        if why is None:
            passed[case["cat"]] += 1
        elif differs_by_right(case, why):
            other[case["cat"]] += 1
        else:
            failed[case["id"]] = why
    env.close()
    ttnn.distributed_context_barrier()
    print(
        json.dumps({"cases": len(cases), "passed": passed, "other": other, "failed": failed}),
        flush=True,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
