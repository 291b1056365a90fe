"""Readers of recorded conversations, for `om replay`."""

from __future__ import annotations

from om_core.transcripts.model import Conversation, Step, Transcript, steps
from om_core.transcripts.reader import FORMATS, detect, read

__all__ = ["FORMATS", "Conversation", "Step", "Transcript", "detect", "read", "steps"]
