"""A descriptor against a machine: the machine seen through it, the fabric it allows, and what
may go wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ttkit.descriptors.descriptor import (
    Loaded,
    MeshGraphDescriptor,
    MeshInstance,
    load_text,
    read_text,
    refuse,
)
from ttkit.descriptors.placing import placed, the_mesh
from ttkit.errors import Finding, fail
from ttkit.hardware.device_order import opens_transposed
from ttkit.hardware.systems import System, current_machine, system_named

VARIABLE = "TT_MESH_GRAPH_DESC_PATH"
TEXTPROTO_ONLY = (
    "Mesh graph descriptor file must use the .textproto format. "
    "The YAML format (MGD 1.0) has been deprecated.",
    "ttkit.cluster.write_descriptor(ttkit.cluster.read_descriptor(old), "
    "'mgd.textproto') converts one",
)
TORUS = {
    "FABRIC_2D_TORUS_X": (False, True),
    "FABRIC_2D_TORUS_Y": (True, False),
    "FABRIC_2D_TORUS_XY": (True, True),
}


def seen_through(path: str, machine: System) -> System:
    """The machine as a process sees it whose TT_MESH_GRAPH_DESC_PATH is `path`.

    Raises:
        TTKitError: the file is refused, or its mesh does not fit on the machine.
    """
    return _placed(machine, *_mesh_of(path))


_placed = lru_cache(maxsize=64)(placed)


def _mesh_of(path: str) -> tuple[MeshInstance, bool]:
    """The mesh that this process opens, and whether chips of it are pinned to trays."""
    asked = f"{VARIABLE}={path!r}"
    return _parsed(path, read_text(path, asked, TEXTPROTO_ONLY), asked)


@lru_cache(maxsize=64)
def _parsed(path: str, text: str, asked: str) -> tuple[MeshInstance, bool]:
    loaded = load_text(text, path)
    if loaded.descriptor is None:
        refuse(asked, loaded)
    mesh = the_mesh(loaded.descriptor, asked)
    if mesh.num_hosts > 1:
        rule = f"Mesh {mesh.mesh_id} has {mesh.num_hosts} host ranks, expected 1"
        fail(
            asked,
            rule,
            "one process a host rank (TT_MESH_HOST_RANK), or use_system(read_descriptor(...)) "
            "for the whole mesh in one process",
        )
    return mesh, bool(loaded.descriptor.pinnings)


def check_fabric(fabric: str, asked: str) -> None:
    """Fail where a fabric cannot start under the descriptor in use; without a descriptor it can.

    Raises:
        TTKitError: the descriptor has no ring where the fabric needs one, or asks for more links
        than the machine has.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    machine, (mesh, pinned) = current_machine(), _mesh_of(path)
    # two chips are neighbours both ways round
    rings = tuple(kind == "RING" or n <= 2 for kind, n in zip(mesh.dim_types, mesh.device_dims))
    if any(need and not has for need, has in zip(TORUS.get(fabric, ()), rings)):
        has = "_".join(
            ["TORUS", "X"]
            if mesh.dim_types[1] == "RING"
            else ["TORUS", "Y"]
            if mesh.dim_types[0] == "RING"
            else ["MESH"]
        )
        rule = (
            f"FabricConfig {fabric} requests topology {fabric.removeprefix('FABRIC_2D_')} "
            f"which requires more connectivity than MGD provides {has}."
        )
        rule += (
            " FabricConfig can only restrict topology (e.g., torus→mesh), "
            "not create new connections."
        )
        fail(
            asked,
            rule,
            "FabricConfig.FABRIC_2D, or dim_types RING in the descriptor where the cables are",
        )
    system = _placed(machine, mesh, pinned)
    if mesh.channels > machine.links_per_pair and mesh.num_devices > 1:
        a, b = next(
            (
                (a, b)
                for a, b in sorted(system.links(), key=lambda pair: system.coordinate_of[pair[0]])
            )
        )
        cure = (
            f"channels {{ count: {machine.links_per_pair} }} in the descriptor: "
            "that many links join two chips"
        )
        fail(
            asked,
            f"Expected {mesh.channels} eth links from physical chip {a} to physical chip {b}",
            cure,
        )


def fit_findings(
    descriptor: MeshGraphDescriptor, loaded: Loaded, path: str, system: Any, mesh_shape: Any
) -> Iterator[Finding]:
    """Findings about a descriptor on a machine, and about the shape that will be opened."""
    machine = (
        current_machine()
        if system is None
        else system_named(system)
        if isinstance(system, str)
        else system
    )

    def finding(severity: str, mesh: MeshInstance, where: str, message: str, cure: str) -> Finding:
        return Finding(
            severity,
            path,
            loaded.lines("mesh_descriptors", loaded.templates.index(mesh.name), *where.split()),
            message,
            cure,
        )

    for mesh in {mesh.name: mesh for mesh in descriptor.meshes[::-1]}.values():  # one of each kind
        if mesh.arch != machine.chip.arch:
            message = (
                f"arch {mesh.arch}, but this machine ({machine.name}) is "
                f"{machine.chip.arch}: the real library does not compare the two"
            )
            yield finding(
                "warning",
                mesh,
                "arch",
                message,
                f"arch: {machine.chip.arch}, or check on the machine that it is for",
            )
        rows, columns = mesh.host_shape
        if rows * columns > machine.num_devices:
            message = (
                f"one host has {rows}x{columns} = {rows * columns} chips of mesh "
                f"{mesh.mesh_id}, but this machine ({machine.name}) has {machine.num_devices}"
            )
            yield finding(
                "warning",
                mesh,
                "device_topology dims",
                message,
                "smaller dims, more hosts in host_topology, or check on the machine that it is for",
            )
        if (
            mesh.channels > machine.links_per_pair
            and mesh.num_devices > 1
            and mesh.arch == machine.chip.arch
        ):
            message = (
                f"{mesh.channels} links between two chips, but this machine "
                f"({machine.name}) has {machine.links_per_pair}"
            )
            yield finding(
                "warning", mesh, "channels count", message, f"count: {machine.links_per_pair}"
            )
    if mesh_shape is not None:
        mesh = descriptor.meshes[0]
        for severity, message, cure in _shape_problems(mesh, tuple(mesh_shape)):
            yield finding(severity, mesh, "device_topology dims", message, cure)


def _shape_problems(mesh: MeshInstance, shape: tuple[int, ...]) -> Iterator[tuple[str, str, str]]:
    """What happens when `shape` is opened on a mesh: it is refused, turned or unrolled."""
    asked, (rows, columns) = "x".join(map(str, shape)), mesh.device_dims
    size = 1
    for n in shape:
        size *= n
    same = f"open {mesh.size_text} and make the other shape from it by create_submeshes or reshape"
    if len(shape) != 2 or size < 1:
        yield "error", f"{asked} is not a mesh shape of rows and columns", mesh.size_text
    elif size > mesh.num_devices:
        yield (
            "error",
            f"{asked} requires {size} devices, but only {mesh.num_devices} devices are available "
            f"in the mesh {mesh.size_text}",
            same,
        )
    elif 1 in shape and size > 1:
        if 1 not in mesh.device_dims:
            message = (
                f"{asked} is opened as a snake around the rim of the {mesh.size_text}: "
                "a collective along it may find no route and hang"
            )
            yield "warning", message, same
    elif shape[0] > rows or shape[1] > columns:
        if words := opens_transposed(mesh.device_dims, shape):
            yield "warning", words, same
        else:
            yield (
                "error",
                f"Requested mesh is too big and is not rotatable: {asked} on {mesh.size_text}",
                same,
            )
    if len(shape) == 2 and 0 < size < mesh.num_devices:
        yield (
            "warning",
            f"{asked} leaves chips of the {mesh.size_text} unopened: "
            "a fabric wants all of them active",
            same,
        )
