"""Passing a provider's stream on to a client that may hang up: the stream is read to its end all the same, so that the
reply is stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

_running: Final[set[asyncio.Task[None]]] = set()
"""A task that nobody refers to may be collected before it has ended."""


async def relay(
    source: AsyncIterator[Any],
    *,
    encode: Callable[[Any], bytes],
    fail: Callable[[BaseException], bytes],
    end: bytes,
    finish: Callable[[list[Any]], Awaitable[None]],
) -> AsyncIterator[bytes]:
    """The stream for the client.

    Args:
        source: the provider's chunks.
        encode: a chunk on the wire.
        fail: an error in the middle of the stream, on the wire.
        end: what closes a complete stream; sent after `finish`, so that the client's next request finds the reply.
        finish: given all chunks of a complete stream.
    """
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def pump() -> None:
        chunks: list[Any] = []
        try:
            async for chunk in source:
                chunks.append(chunk)
                queue.put_nowait(encode(chunk))
            await finish(chunks)
            queue.put_nowait(end)
        except Exception as error:  # the answer has begun: the client is told inside the stream
            queue.put_nowait(fail(error))
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(pump())
    _running.add(task)
    task.add_done_callback(_running.discard)
    while (item := await queue.get()) is not None:
        yield item
