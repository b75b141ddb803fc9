"""The protobuf messages of a mesh graph descriptor (MGD 2.0, as in ttnn 0.81.1), built without
protoc.

Names and numbers of the fields are those of the descriptor inside the wheel's libtt_metal.so.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# not tt.tt_fabric.proto: the real library may register that name in the same process
PACKAGE = "ttkit.mgd"

ENUMS = {
    "Architecture": ("INVALID_ARCHITECTURE", "WORMHOLE_B0", "BLACKHOLE", "QUASAR"),
    "TorusTopology.Type": ("INVALID_TYPE", "LINE", "RING"),
    "GraphTopology.Type": ("INVALID_TYPE", "ALL_TO_ALL", "RING"),
    "Channels.Policy": ("INVALID_POLICY", "STRICT", "RELAXED"),
    "Connection.Direction": ("INVALID", "N", "E", "S", "W", "C", "NONE"),
    "AsicPinning.BoardRevision": ("BOARD_REVISION_UNSPECIFIED", "BH_REV_AB", "BH_REV_C", "WH"),
}
# A field: its number and type; "*" in front: repeated; "?" in front: optional, so that presence is
# known; "|": one of NodeRef's.
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "MeshGraphDescriptor": {
        "mesh_descriptors": (1, "*MeshDescriptor"),
        "graph_descriptors": (2, "*GraphDescriptor"),
        "top_level_instance": (3, "NodeRef"),
        "switch_descriptors": (4, "*SwitchDescriptor"),
        "pinnings": (5, "*AsicPinning"),
    },
    "MeshDescriptor": {
        "name": (1, "string"),
        "arch": (2, "Architecture"),
        "device_topology": (3, "TorusTopology"),
        "channels": (4, "Channels"),
        "host_topology": (5, "MeshTopology"),
        "express_connections": (7, "*ExpressConnection"),
        "express_links": (8, "*ExpressLink"),
    },
    "SwitchDescriptor": {
        "name": (1, "string"),
        "arch": (2, "Architecture"),
        "device_topology": (3, "TorusTopology"),
        "channels": (4, "Channels"),
        "express_connections": (7, "*ExpressConnection"),
    },
    "ExpressConnection": {"src": (1, "int32"), "dst": (2, "int32")},
    "ExpressLink": {
        "dim_idx": (1, "uint32"),
        "pattern": (2, "Pattern"),
        "wrap": (4, "TorusTopology.Type"),
    },
    "Pattern": {"start": (1, "uint32"), "step": (2, "uint32")},
    "GraphDescriptor": {
        "name": (1, "string"),
        "type": (2, "string"),
        "instances": (3, "*NodeRef"),
        "graph_topology": (4, "?GraphTopology"),
        "connections": (5, "*Connection"),
    },
    "NodeRef": {"mesh": (1, "|MeshRef"), "graph": (2, "|GraphRef"), "switch": (3, "|SwitchRef")},
    "MeshRef": {
        "mesh_descriptor": (1, "string"),
        "mesh_id": (2, "int32"),
        "device_id": (3, "?int32"),
    },
    "SwitchRef": {
        "switch_descriptor": (1, "string"),
        "switch_id": (2, "int32"),
        "device_id": (3, "?int32"),
    },
    "GraphRef": {
        "graph_descriptor": (1, "string"),
        "graph_id": (2, "int32"),
        "sub_ref": (3, "?NodeRef"),
    },
    "TorusTopology": {"dims": (3, "*int32"), "dim_types": (4, "*TorusTopology.Type")},
    "MeshTopology": {"dims": (1, "*int32")},
    "GraphTopology": {
        "layout_type": (1, "GraphTopology.Type"),
        "channels": (2, "Channels"),
        "assign_z_direction": (3, "?bool"),
    },
    "Channels": {"count": (1, "int32"), "policy": (2, "?Channels.Policy")},
    "Connection": {
        "nodes": (1, "*NodeRef"),
        "channels": (2, "Channels"),
        "directional": (3, "?bool"),
        "routing_direction": (4, "*Connection.Direction"),
        "assign_z_direction": (5, "?bool"),
    },
    "AsicPinning": {
        "logical_fabric_node_id": (1, "*NodeId"),
        "physical_asic_position": (2, "*AsicPosition"),
        "board_revision": (3, "?AsicPinning.BoardRevision"),
    },
    "NodeId": {
        "mesh_id": (1, "?uint32"),
        "chip_id": (2, "?uint32"),
        "mesh_id_regex": (3, "string"),
        "chip_id_regex": (4, "string"),
    },
    "AsicPosition": {
        "tray_id": (1, "?uint32"),
        "asic_location": (2, "?uint32"),
        "tray_id_regex": (3, "string"),
        "asic_location_regex": (4, "string"),
    },
}
_SCALARS = {"string": 9, "int32": 5, "uint32": 13, "bool": 8}


@cache
def message_classes() -> dict[str, Any]:
    """The message class of each name of `MESSAGES`.

    Example:
        >>> message_classes()["Channels"](count=2).count
        2
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="ttkit/mgd.proto", package=PACKAGE, syntax="proto3"
    )
    messages = {name: file.message_type.add(name=name) for name in MESSAGES}
    for name, values in ENUMS.items():
        owner, _, inner = name.rpartition(".")
        enum = (
            messages[owner].enum_type.add(name=inner) if owner else file.enum_type.add(name=inner)
        )
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for name, fields in MESSAGES.items():
        message = messages[name]
        for field_name, (number, kind) in fields.items():
            field = message.field.add(
                name=field_name, number=number, label=3 if kind[0] == "*" else 1
            )
            plain = kind.lstrip("*?|")
            if plain in _SCALARS:
                field.type = _SCALARS[plain]
            else:
                field.type, field.type_name = (14 if plain in ENUMS else 11), f".{PACKAGE}.{plain}"
            if kind[0] == "|":
                field.oneof_index = 0
                if not message.oneof_decl:
                    message.oneof_decl.add(name="node")
        for field in message.field:
            # proto3 keeps the presence of a field in a oneof of its own
            if fields[field.name][1][0] == "?":
                field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in MESSAGES
    }
