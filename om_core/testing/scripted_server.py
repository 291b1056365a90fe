"""A model server for tests and trials: real HTTP in OpenAI's form on 127.0.0.1, answering by a script.

    with ScriptedModelServer(script=lambda request, n: Reply(text="...", delay_s=0.2)) as server:
        model = LiteLlmModel(api_base=server.base_url, api_key="none")   # then call "openai/scripted"

Each connection has its own thread, so hundreds of slow requests wait side by side. Without a script it answers as a
sensible Observer or Reflector that keeps the tokens it finds (see `scripted_replies`).
As a process: `python -m om_core.testing.scripted_server --port 0 --delay 5` prints its port on the first line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from om_core.testing.scripted_replies import answer_reply, completion_body, completion_events

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from om_core.domain.message import JsonObject

MODEL: Final = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server does with one request.

    `text` is the answer; None: an answer without content; `choices=False`: an answer without choices. `body`, where
    given, is sent as it is; a `status` other than 200 without it makes an OpenAI error body of `text`. `delay_s` passes
    before the first byte; `drip_s` between the bytes after it (streaming: between events). `hang` accepts and never
    answers, `drop` closes the connection instead of answering.
    """

    text: str | None = ""
    delay_s: float = 0.0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: JsonObject | str | None = None
    hang: bool = False
    drop: bool = False
    drip_s: float = 0.0
    choices: bool = True
    finish_reason: str = "stop"
    tool_calls: tuple[JsonObject, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0


Script: TypeAlias = Callable[[dict[str, Any], int], Reply | str]
"""From a request's JSON and its number (from 1) to what happens; a text is a plain answer."""


@dataclass(slots=True, kw_only=True)
class Call:
    """One request in the log; times are `time.monotonic()`. `client_gone`: it hung up before it had its answer."""

    number: int
    path: str
    request: JsonObject
    headers: dict[str, str]
    started: float
    ended: float | None = None
    client_gone: bool = False


class ScriptedModelServer:
    """Starts when it is made; stops with `close` or at the end of `with`.

    Args:
        script: decides each reply; default a sensible Observer and Reflector.
        port: 0 takes a free one.
        delay_s: pause before each answer of the default script.
        any_path: ask the script for every POST, not only for chat completions; for other providers' forms.
    """

    def __init__(
        self, script: Script | None = None, *, port: int = 0, delay_s: float = 0.0, any_path: bool = False
    ) -> None:
        self.any_path = any_path
        self._script = script or (lambda request, number: Reply(text=answer_reply(request), delay_s=delay_s))
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._calls: list[Call] = []
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="scripted", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def base_url(self) -> str:
        """As a model client wants it, with `/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def calls(self) -> list[Call]:
        """All requests that the script was asked about, in order of arrival; a copy."""
        with self._lock:
            return list(self._calls)

    @property
    def in_flight(self) -> int:
        """Requests that have no complete answer yet."""
        return sum(call.ended is None for call in self.calls)

    @property
    def connections(self) -> int:
        """Connections that are open, also those between two requests."""
        return self._server.connections

    def wait_until(self, condition: Callable[[list[Call]], bool], *, timeout_s: float = 10.0) -> bool:
        """Wait until the log of calls satisfies the condition; False when it does not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self._calls), timeout=timeout_s)

    def close(self) -> None:
        """Hang up on every client, also on idle connections, and give the port free."""
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join(timeout=5.0)

    def serve_until_interrupted(self) -> None:
        """Block until Ctrl-C; for a process that does nothing else."""
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, path: str, request: JsonObject, headers: dict[str, str]) -> tuple[Call, Reply]:
        """Log a request and ask the script; for the handler."""
        with self._changed:
            number = len(self._calls) + 1
            call = Call(number=number, path=path, request=request, headers=headers, started=time.monotonic())
            self._calls.append(call)
            self._changed.notify_all()
        reply = self._script(request, call.number)
        return call, Reply(text=reply) if isinstance(reply, str) else reply

    def end(self, call: Call, *, client_gone: bool) -> None:
        """Log that a request is over; for the handler."""
        with self._changed:
            call.ended = time.monotonic()
            call.client_gone = client_gone
            self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], owner: ScriptedModelServer) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._none_open = threading.Condition()
        super().__init__(address, _Handler)

    @property
    def connections(self) -> int:
        with self._none_open:
            return len(self._open)

    def process_request(self, request: Any, client_address: Any) -> None:
        """As the base, and remember the connection."""
        with self._none_open:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """As the base, and forget the connection."""
        super().shutdown_request(request)
        with self._none_open:
            self._open.discard(request)
            self._none_open.notify_all()

    def hang_up(self) -> None:
        """Close every connection and wait for their handlers; a waiting handler wakes because its socket ends."""
        with self._none_open:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._none_open.wait_for(lambda: not self._open, timeout=5.0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is part of the tests; anything else is a mistake in a script."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the log of calls says it all."""

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("/models"):
            entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": "scripted"}
            self._send_json(200, {"object": "list", "data": [entry]}, {})
        else:
            self._send_json(404, {"error": {"message": "no such path"}}, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_completion = self.path.split("?")[0].rstrip("/").endswith("/chat/completions")
        if not is_completion and not self.server.owner.any_path:
            self._send_json(404, {"error": {"message": "no such path"}}, {})
            return
        request: JsonObject = json.loads(body)
        owner = self.server.owner
        call, reply = owner.begin(self.path, request, dict(self.headers.items()))
        answered = False
        try:
            answered = self._answer(request, reply, call.number)
        finally:
            owner.end(call, client_gone=not answered and not reply.drop)

    def _answer(self, request: JsonObject, reply: Reply, number: int) -> bool:
        wait_s = None if reply.hang else reply.delay_s
        if (wait_s is None or wait_s > 0) and not _pause(self.connection, wait_s):
            self.close_connection = True
            return False
        if reply.drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return False
        if reply.body is not None or reply.status != 200:
            return self._send_json(reply.status, _plain_body(reply), reply.headers, reply.drip_s)
        if request.get("stream"):
            return self._send_events(request, reply, number)
        return self._send_json(200, completion_body(request, reply, number), reply.headers, reply.drip_s)

    def _send_json(self, status: int, body: Any, headers: dict[str, str], drip_s: float = 0.0) -> bool:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if drip_s <= 0:
            self.wfile.write(data)
            return True
        return self._drip((data[index : index + 1] for index in range(len(data))), drip_s)

    def _send_events(self, request: JsonObject, reply: Reply, number: int) -> bool:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        pieces = [f"data: {json.dumps(event)}\n\n".encode() for event in completion_events(request, reply, number)]
        return self._drip([*pieces, b"data: [DONE]\n\n"], reply.drip_s)

    def _drip(self, pieces: Any, drip_s: float) -> bool:
        for piece in pieces:
            self.wfile.write(piece)
            if drip_s > 0 and not _pause(self.connection, drip_s):
                self.close_connection = True
                return False
        return True


def _pause(connection: socket.socket, seconds: float | None) -> bool:
    """Wait; False as soon as either side hangs up. None waits for just that."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return not selector.select(seconds)


def _plain_body(reply: Reply) -> JsonObject | str:
    if reply.body is not None:
        return reply.body
    return {"error": {"message": reply.text or "scripted failure", "type": "scripted", "code": None}}


def main(arguments: list[str] | None = None) -> None:
    """Serve until killed; the first line on standard output is the port."""
    parser = argparse.ArgumentParser(description="A scripted model server in OpenAI's form on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    options = parser.parse_args(arguments)
    with ScriptedModelServer(port=options.port, delay_s=options.delay) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        server.serve_until_interrupted()


if __name__ == "__main__":
    main()
