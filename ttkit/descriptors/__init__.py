"""Mesh graph descriptors: read, check and write them; find their chips on a machine.

Only this subpackage imports protobuf.
"""
