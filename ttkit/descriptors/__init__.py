"""Mesh graph descriptors: read, check and write them; find their chips on a machine.

protobuf is imported in this room and in no other.
"""
