"""Mesh graph descriptors written out in protobuf's text format, laid out as people write them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ttkit.descriptors.descriptor import (
    MeshGraphDescriptor,
    MeshInstance,
    Pinning,
    load_text,
    refuse,
)
from ttkit.files import write_whole

# meshes, channels, policy, devices, z direction
Link = tuple[tuple[int, int], int, str, tuple[int | None, int | None], bool]


def _list(values: Iterable[object]) -> str:
    return f"[ {', '.join(map(str, values))} ]"


def mesh_text(
    name: str,
    arch: str,
    dims: Sequence[int],
    types: Sequence[str],
    hosts: Sequence[int],
    channels: int,
    policy: str,
) -> str:
    """A mesh descriptor's text; an empty policy is left out."""
    return f"""mesh_descriptors {{
  name: {json.dumps(name)}
  arch: {arch}
  device_topology {{ dims: {_list(dims)} dim_types: {_list(types)} }}
  host_topology {{ dims: {_list(hosts)} }}
  channels {{ count: {channels}{f" policy: {policy}" if policy else ""} }}
}}
"""


def _reference(name: str, mesh_id: int, device: int | None = None) -> str:
    return (
        f"mesh {{ mesh_descriptor: {json.dumps(name)} mesh_id: "
        f"{mesh_id}{'' if device is None else f' device_id: {device}'} }}"
    )


def descriptor_text(
    templates: Sequence[str],
    instances: Sequence[tuple[int, str]],
    links: Sequence[Link],
    pinnings: Sequence[Pinning] = (),
) -> str:
    """A descriptor's text: mesh descriptors, then which mesh id is made from which, then what
    joins them.
    """
    names = dict(instances)
    parts = list(templates)
    if len(instances) != 1 or links:
        graph = 'graph_descriptors {\n  name: "G0"\n  type: "FABRIC"\n'
        graph += "".join(
            f"  instances {{ {_reference(name, mesh_id)} }}\n" for mesh_id, name in instances
        )
        for meshes, channels, policy, devices, z in links:
            nodes = "".join(
                f"    nodes {{ {_reference(names[mesh], mesh, device)} }}\n"
                for mesh, device in zip(meshes, devices, strict=True)
            )
            z_line = "    assign_z_direction: true\n" if z else ""
            graph += (
                f"  connections {{\n{nodes}    channels {{ count: {channels} policy: "
                f"{policy} }}\n{z_line}  }}\n"
            )
        parts.append(graph + "}\n")
        top = 'graph { graph_descriptor: "G0" graph_id: 0 }'
    else:
        top = _reference(instances[0][1], instances[0][0])
    parts += [_pinning(pinning) for pinning in pinnings]
    return "\n".join([*parts, f"top_level_instance {{ {top} }}\n"])


def _pinning(pinning: Pinning) -> str:
    lines = [("logical_fabric_node_id", entry) for entry in pinning.nodes] + [
        ("physical_asic_position", entry) for entry in pinning.positions
    ]
    text = "".join(
        f"  {name} {{ {' '.join(f'{key}: {json.dumps(value)}' for key, value in entry)} }}\n"
        for name, entry in lines
    )
    return f"pinnings {{\n{text}{f'  board_revision: {pinning.board_revision}' if pinning.board_revision else ''}}}\n"


def text_of(descriptor: MeshGraphDescriptor) -> str:
    """A descriptor as text; reading it gives an equal descriptor.

    Example:
        >>> from ttkit.descriptors.descriptor import descriptor_for
        >>> print(text_of(descriptor_for(8)).splitlines()[-1])
        top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }
    """

    def template(mesh: MeshInstance) -> str:
        return mesh_text(
            mesh.name,
            mesh.arch,
            mesh.device_dims,
            mesh.dim_types,
            mesh.host_dims,
            mesh.channels,
            mesh.policy if mesh.policy_given else "",
        )

    templates = list(dict.fromkeys(map(template, descriptor.meshes)))
    links = [
        (c.meshes, c.channels, c.policy, c.devices, c.assign_z_direction)
        for c in descriptor.connections
    ]
    return descriptor_text(
        templates,
        [(mesh.mesh_id, mesh.name) for mesh in descriptor.meshes],
        links,
        descriptor.pinnings,
    )


def write_descriptor(descriptor: MeshGraphDescriptor, path: str | os.PathLike[str]) -> Path:
    """Write a descriptor as MGD 2.0 and return the path;

    `read_descriptor` of it gives an equal descriptor.

    Raises:
        TTKitError: it is made by hand and breaks a rule, or the file cannot be written there;
        nothing is written.

    Example:
        >>> import tempfile
        >>> from ttkit.descriptors.descriptor import descriptor_for, read_descriptor
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_descriptor(descriptor_for(32), Path(folder, "galaxy.textproto"))
        ...     read_descriptor(path) == descriptor_for(32)
        True
    """
    asked, text = f"write_descriptor({descriptor!r}, {os.fspath(path)!r})", text_of(descriptor)
    loaded = load_text(text, f"{Path(path).stem}.textproto")
    if loaded.descriptor is None:
        refuse(asked, loaded)
    return write_whole(path, text, asked)
