"""ipyparallel's client, with an end to every wait."""

from __future__ import annotations

from typing import Any

import ipyparallel
from ipyparallel.error import RemoteError

UNREADABLE = "an answer that cannot be read"  # stands where the name of an engine's error would


class Client(ipyparallel.Client):
    """Take answers that cannot be read here as errors of the rank that sent them."""

    def _handle_apply_reply(self, msg: Any) -> None:
        try:
            super()._handle_apply_reply(msg)
        except Exception as error:  # an answer is read by code of its own kind
            future = self._futures.get(msg["parent_header"]["msg_id"])
            if future is None or future.done():
                raise
            future.set_result(RemoteError(UNREADABLE, f"{type(error).__name__}: {error}", ""))
