"""Make recorded calls on the real ttnn and compare what comes back:

`replay.py TAPES REPORT`. Runs without ttkit.
"""

import ast
import json
import pathlib
import re
import sys

import numpy as np
import ttnn

FIELDS = ("shape", "padded", "dtype", "layout", "storage", "placements", "distribution")
MESH_CALLS = ("get_device_id", "create_submesh", "create_submeshes", "reshape")  # of a mesh
HOST_READS = {"to_numpy"}  # values mean nothing on a mock cluster
COLLECTIVES = ("all_broadcast", "all_gather", "all_reduce", "broadcast", "reduce_scatter")


def namespace_check(names: dict) -> list[str]:
    """Names that the simulator has and the library has not."""
    missing = []
    for inner, listed in names.items():
        # importing it wants torch, which nothing here needs: read its definitions
        if inner == "model_preprocessing":
            source = pathlib.Path(ttnn.__file__).with_name("model_preprocessing.py").read_text()
            there = {
                node.name
                for node in ast.parse(source).body
                if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            }
        else:
            there = set(dir(getattr(ttnn, inner) if inner else ttnn))
        missing += [
            f"ttnn.{inner + '.' if inner else ''}{name}" for name in listed if name not in there
        ]
    # a module, checked above
    return [name for name in missing if name != "ttnn.model_preprocessing"]


def guide_on_the_host() -> list[str]:
    """Sections 2 and 3 of the guide: what the tests of the simulator expect, asked of the
    library.
    """
    wrong = []

    def expect(what: str, have: object, want: object) -> None:
        if have != want:
            wrong.append(f"guide: {what}: {have!r}, expected {want!r}")

    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    expect("repr of a mesh", repr(mesh), "MeshDevice(1x2 grid, 2 devices)")
    values = np.zeros((1, 1, 32, 64), np.float32)
    values[..., :32], values[..., 32:] = 1, 2
    mapper = ttnn.create_mesh_mapper(
        mesh, ttnn.MeshMapperConfig(placements=[ttnn.PlacementReplicate(), ttnn.PlacementShard(3)])
    )
    tensor = ttnn.Tensor(
        values, data_type=ttnn.float32, layout=ttnn.Layout.TILE, mesh_mapper=mapper
    )
    expect("shard shape", list(tensor.shape), [1, 1, 32, 32])
    expect("first shard prints", str(tensor).startswith("ttnn.Tensor([[[[ 1.0"), True)
    expect("second shard prints", "\nttnn.Tensor([[[[ 2.0" in str(tensor), True)
    on_device = ttnn.to_device(tensor, mesh)
    expect("device shards", len(ttnn.get_device_tensors(on_device)), 2)
    expect("device heading", str(on_device).startswith("device_id: "), True)
    ttnn.close_mesh_device(mesh)
    return wrong


class Replay:
    """One lesson's calls on one root mesh: the library opens one at a time."""

    def __init__(self, calls: list, root: tuple):
        self.calls, self.tensors, self.meshes, self.pairs = calls, {}, {}, {}
        # the last chip of a line sends to the first by way of others
        routed = any("send_async" in call["operation"] for call in calls)
        fabric = ttnn.FabricConfig.FABRIC_2D if routed else ttnn.FabricConfig.FABRIC_1D
        ttnn.set_fabric_config(fabric)
        self.root_shape = root
        self.root = ttnn.open_mesh_device(ttnn.MeshShape(*root))
        self.lines: list[str] = []
        self.matched = self.refused = self.skipped = self.failed = 0

    def close(self) -> None:
        self.tensors.clear()
        self.pairs.clear()
        for mesh in list(self.root.get_submeshes())[::-1]:
            ttnn.close_mesh_device(mesh)
        ttnn.close_mesh_device(self.root)

    def mesh(self, described: dict):
        """The mesh with these ids: the root, or a rectangle of it."""
        ids, shape = described["ids"], described["shape"]
        if self.root.get_device_ids() == ids and list(self.root.shape) == shape:
            return self.root
        key = (tuple(ids), tuple(shape))
        if key not in self.meshes:
            rows, columns = self.root_shape
            for start in np.ndindex(max(0, rows - shape[0] + 1), max(0, columns - shape[1] + 1)):
                inside = [
                    self.root.get_device_ids()[(start[0] + r) * columns + start[1] + c]
                    for r in range(shape[0])
                    for c in range(shape[1])
                ]
                if inside == ids:
                    self.meshes[key] = self.root.create_submesh(
                        ttnn.MeshShape(*shape), ttnn.MeshCoordinate(*start)
                    )
                    break
            else:
                raise LookupError(f"devices {ids} are no rectangle of the root mesh")
        return self.meshes[key]

    def sockets(self, mesh, axis: int, step: int) -> dict:
        """Both ends of a socket on which each chip sends to the next one along an axis."""
        if (id(mesh), axis, step) not in self.pairs:
            joined, core = [], ttnn.CoreCoord(0, 0)
            for chip in ttnn.MeshCoordinateRange(mesh.shape):
                to = list(chip)
                to[axis] = (to[axis] + step) % mesh.shape[axis]
                ends = (chip, ttnn.MeshCoordinate(to))
                joined.append(
                    ttnn.SocketConnection(*(ttnn.MeshCoreCoord(end, core) for end in ends))
                )
            memory = ttnn.SocketMemoryConfig(ttnn.BufferType.DRAM, 1 << 22)
            pair = ttnn.create_socket_pair(mesh, mesh, ttnn.SocketConfig(joined, memory))
            self.pairs[id(mesh), axis, step] = dict(zip(("SENDER", "RECEIVER"), pair))
        return self.pairs[id(mesh), axis, step]

    def value(self, written, mesh=None):
        """What was written on the tape, as the library's object."""
        if isinstance(written, list):
            return [self.value(w, mesh) for w in written]
        if not isinstance(written, dict):
            return written
        if "tensor" in written:
            if written["tensor"] not in self.tensors:
                raise LookupError("an operand could not be made")
            return self.tensors[written["tensor"]]
        if "mesh" in written:
            return self.mesh(written)
        if "array" in written:
            return np.zeros(written["array"], written["dtype"])
        if "semaphore" in written:
            corner = ttnn.CoreCoord(*written["semaphore"])
            cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), corner)})
            return ttnn.create_global_semaphore(self.root, cores, 0)
        if "socket" in written:
            return self.sockets(self.mesh(written["on"]), *written["socket"])[written["end"]]
        if "config" in written:
            fields = {name: self.value(each) for name, each in written["fields"].items()}
            pairs = {name: tuple(v) for name, v in fields.items() if isinstance(v, list)}
            return getattr(ttnn, written["config"])(**fields | pairs)
        text = re.sub(r"placements: (\[[^\]]*\])", r"\1", written["value"])
        if text.startswith("MeshMapperConfig"):
            return ttnn.create_mesh_mapper(mesh, eval(text, vars(ttnn)))
        return eval(text.replace("TensorMemoryLayout::", "TensorMemoryLayout."), vars(ttnn))

    def run(self) -> None:
        for call in self.calls:
            name = call["operation"]
            if name in HOST_READS:
                continue
            try:
                have = self.make(call)
            except LookupError as why:
                self.skipped += 1
                self.lines.append(f"  cannot run {name}: {why}")
                continue
            except Exception as error:
                text = " ".join(
                    str(error).partition("info:")[2].split("backtrace")[0].split()
                ) or " ".join(str(error).split())
                if call["result"] is None and name != "deallocate":
                    self.refused += 1
                else:
                    self.failed += 1
                    self.lines.append(
                        f"  REFUSED by ttnn, taken by the simulator: {name}: {text[:160]}"
                    )
                continue
            if call["result"] is None and name in COLLECTIVES and call["fabric"] == "DISABLED":
                # here the root mesh has a fabric; the refusal without one is a conformance case,
                # "ccl-nofabric"
                self.skipped += 1
                continue
            if call["result"] is None and name not in ("deallocate", "copy_host_to_device_tensor"):
                self.failed += 1
                self.lines.append(
                    f"  TAKEN by ttnn, refused by the simulator: {name} {call['args']}"[:200]
                )
                continue
            self.compare(name, call["result"], have)

    def make(self, call: dict):
        args, kwargs = call["args"], call["kwargs"]
        device = next(
            (v for v in [*kwargs.values(), *args] if isinstance(v, dict) and "ids" in v), None
        )
        mapper_mesh = self.mesh(device) if device else self.root
        args = [self.value(a, mapper_mesh) for a in args]
        kwargs = {k: self.value(v, mapper_mesh) for k, v in kwargs.items() if v is not None}
        if call["operation"] != "from_torch":
            home = ttnn
            for part in call["operation"].split("."):
                home = getattr(home, part)
            return home(*args, **kwargs)
        # without torch: the constructor that from_torch itself ends in
        mapper = kwargs.get("mesh_mapper")
        return ttnn.Tensor(
            args[0],
            data_type=kwargs.get("dtype"),
            device=kwargs.get("device"),
            layout=kwargs.get("layout", ttnn.Layout.ROW_MAJOR),
            mesh_mapper=mapper,
        )

    def compare(self, name: str, want, have) -> None:
        if isinstance(want, list):
            for w, h in zip(want, have):
                self.compare(name, w, h)
            return
        if not isinstance(want, dict) or "tensor" not in want:
            self.matched += 1
            return
        self.tensors[want["tensor"]] = have
        topology = have.tensor_topology()
        seen = {
            "shape": list(have.shape),
            "padded": list(have.padded_shape),
            "dtype": have.dtype.name,
            "layout": have.layout.name,
            "storage": have.storage_type().name,
            "placements": [repr(p) for p in topology.placements()],
            "distribution": list(topology.distribution_shape()),
        }
        differing = [
            f"{field}: simulator {want[field]}, ttnn {seen[field]}"
            for field in FIELDS
            if want[field] != seen[field]
        ]
        if differing:
            self.failed += 1
            self.lines.append(f"  DIFFERS {name}: {'; '.join(differing)}")
        else:
            self.matched += 1


def described(value) -> object:
    """What is compared of a result: meshes by shape and ids."""
    if isinstance(value, ttnn.MeshDevice):
        return {"shape": list(value.shape), "ids": list(value.get_device_ids())}
    if isinstance(value, dict):
        return {field: value[field] for field in ("shape", "ids")}
    return [described(v) for v in value] if isinstance(value, (list, tuple)) else value


def of_meshes(call: dict) -> bool:
    """Whether a call opens a mesh or is a method of one; a tensor has a `reshape` too."""
    first = call["args"][0] if call["args"] else None
    return call["operation"] == "open_mesh_device" or (
        call["operation"] in MESH_CALLS and isinstance(first, dict) and "ids" in first
    )


def replay_meshes(calls: list) -> tuple[int, int, int, list[str]]:
    """Open each mesh of a lesson alone, make its calls, close it: how many agree, are refused by
    both, are of other machines; and what differs.
    """
    agree = refused = elsewhere = 0
    notes = []

    def value(written):
        return eval(written["value"], vars(ttnn)) if isinstance(written, dict) else written

    def make(call: dict, function):
        nonlocal agree, refused
        args = call["args"] if call["operation"] == "open_mesh_device" else call["args"][1:]
        want, have, text = call["result"], None, ""
        try:
            have = function(*map(value, args), **{k: value(v) for k, v in call["kwargs"].items()})
        except Exception as error:
            text = " ".join(str(error).split())[:160]
        if call["returned"] != (not text) or (not text and described(have) != described(want)):
            notes.append(
                f"  DIFFERS {call['operation']}{call['args']}: simulator {want}, "
                f"ttnn {text or described(have)}"[:400]
            )
        elif text:
            refused += 1
        else:
            agree += 1
        return have

    for place, call in enumerate(calls):
        if call["operation"] != "open_mesh_device":
            continue
        number = call["result"]["mesh"] if call["result"] else None
        own = [
            c
            for c in calls[place + 1 :]
            if of_meshes(c)
            and number is not None
            and c["args"]
            and c["args"][0].get("mesh") == number
        ]
        if call["system"] != "t3000 2x4":
            elsewhere += 1 + len(own)
            continue
        mesh = make(call, ttnn.open_mesh_device)
        if mesh is None:
            continue
        for inner in own:
            make(inner, getattr(mesh, inner["operation"]))
        for submesh in list(mesh.get_submeshes())[::-1]:
            ttnn.close_mesh_device(submesh)
        ttnn.close_mesh_device(mesh)
    return agree, refused, elsewhere, notes


def roots_of(calls: list) -> list:
    """(root shape, calls) groups: calls on the parts of one machine belong together."""
    groups: dict = {}
    for call in calls:
        devices = [
            v
            for v in [*call["kwargs"].values(), *call["args"]]
            if isinstance(v, dict) and "ids" in v
        ]
        shape = tuple(devices[0]["shape"]) if devices else None
        root = shape if shape in ((4, 2), (8, 1), (1, 8)) else (2, 4) if shape else None
        groups.setdefault(root, []).append(call)
    # calls without a mesh among their arguments work on tensors that were made before
    return sorted({r for r in groups if r}) or [(2, 4)]


def main() -> None:
    recorded = json.loads(pathlib.Path(sys.argv[1]).read_text())
    lines, failed = [], 0
    missing = namespace_check(recorded["namespace"])
    total = sum(map(len, recorded["namespace"].values()))
    lines.append(
        f"namespace: {total - len(missing)} of {total} names exist in ttnn"
        + (f"; missing: {', '.join(missing)}" if missing else "")
    )
    failed += len(missing)
    wrong = guide_on_the_host()
    lines += wrong or ["guide, sections 2 and 3 on the host: as expected"]
    failed += len(wrong)
    for name, everything in recorded["tapes"].items():
        calls = [call for call in everything if not of_meshes(call)]
        agree, refused, elsewhere, notes = replay_meshes(everything)
        failed += len(notes)
        meshes = (
            f"{name}: {len(everything) - len(calls)} calls about meshes; {agree} agree, "
            f"{refused} refused by both, {len(notes)} differ"
        )
        lines += [f"{meshes}, {elsewhere} on other machines than the mock's", *notes]
        counts = [0, 0, 0, 0]
        for root in roots_of(calls):
            replay = Replay(calls, root)
            replay.run()
            replay.close()
            counts = [
                a + b
                for a, b in zip(
                    counts, (replay.matched, replay.refused, replay.skipped, replay.failed)
                )
            ]
            notes += [line for line in replay.lines if "cannot run" not in line]
        left = max(0, counts[2] - len(calls) * (len(roots_of(calls)) - 1))
        agree, refused, _, differ = counts
        reads = sum(call["operation"] in HOST_READS for call in calls)
        counted = (
            f"{agree} agree, {refused} refused by both, {differ} differ, "
            f"{left} not runnable on the mock, {reads} reads of values"
        )
        lines.append(f"{name}: {len(calls)} calls of operations; {counted}")
        lines += sorted(set(notes))
        failed += counts[3]
        if name.startswith("training step") and not agree:
            lines.append(f"  NOTHING of {name} was replayed")
            failed += 1
    pathlib.Path(sys.argv[2]).write_text(json.dumps({"lines": lines, "failed": failed}))


if __name__ == "__main__":
    main()
