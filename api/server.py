"""Uvicorn that ends streams when it is told to stop: it waits for open answers, and streams never end by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from types import FrameType

    from fastapi import FastAPI


class ApiServer(uvicorn.Server):
    """The server of one application of `create_app`."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._feed = app.state.om.feed

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """At SIGTERM and Ctrl-C."""
        self.stop()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Stop as soon as the open answers are out."""
        self._feed.stop()
        self.should_exit = True
