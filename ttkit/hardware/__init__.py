"""Chips, cards, systems and their links: facts with their sources."""

from ttkit.hardware.chips import BLACKHOLE, WORMHOLE, Chip, Fact, Link
from ttkit.hardware.current import current_machine, current_system, use_system
from ttkit.hardware.systems import SYSTEMS, System
