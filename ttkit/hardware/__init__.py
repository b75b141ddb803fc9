"""Chips, boards, systems and their links: the bottom room, which knows nothing of the others."""

from ttkit.hardware.chips import BLACKHOLE, CHIPS, WORMHOLE, Chip, Fact, Link
from ttkit.hardware.systems import SYSTEMS, System, current_machine, current_system, use_system

__all__ = [
    "BLACKHOLE",
    "CHIPS",
    "SYSTEMS",
    "WORMHOLE",
    "Chip",
    "Fact",
    "Link",
    "System",
    "current_machine",
    "current_system",
    "use_system",
]
