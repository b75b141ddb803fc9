"""What the training tests share."""

import contextlib
import os

import pytest


@contextlib.contextmanager
def _ordinary_user():
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def ordinary_user():
    """A with-block without root's rights: root may open and write everything."""
    return _ordinary_user
