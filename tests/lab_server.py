"""`distlab lab` started for real, and the browser that looks at it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import psutil
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from distlab.cli import lab
from utils.tf_config import pick_free_ports

START_SECONDS, END_SECONDS = 180, 120  # only so that a hang ends
PATIENCE_MS = 1000 * START_SECONDS  # of a browser's pages
BROWSER_FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
).split()


class Lab:
    """A running `distlab lab` with a home of its own; its kernels are plain unless `warm`."""

    def __init__(self, course: Path, home: Path, *options: str, warm: bool = False) -> None:
        [self.port] = pick_free_ports(1)
        command = [sys.executable, "-m", "distlab", "lab", "--no-browser", "--port", str(self.port)]
        root = str(Path(lab.__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY_"))}
        clean["DISTLAB_COLD_START"] = "" if warm else "1"
        self.log = home / "lab.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [*command, *options],
                cwd=course,
                stdout=log,
                stderr=log,
                env={**clean, "HOME": str(home), "PYTHONPATH": path},
            )
        self.url, self.token = self._wait_for_address()
        self.server = psutil.Process(self.process.pid).children()[0]

    def _wait_for_address(self) -> tuple[str, str]:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"(http://127\.0\.0\.1:\d+/\S+)\?token=(\w+)\s", self.log.read_text())
            if found:
                return found.group(1), found.group(2)
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"distlab lab gave no address:\n{self.log.read_text()}")

    def ask(self, path: str, data: dict | None = None) -> dict | str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{path}",
            data=None if data is None else json.dumps(data).encode(),
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=END_SECONDS) as answer:
            text = answer.read().decode()
        return json.loads(text) if text and path.startswith(("api", "lab/api", "distlab")) else text

    def start_kernel(self) -> list[psutil.Process]:
        self.ask("api/kernels", {"name": "python3"})
        deadline = time.monotonic() + START_SECONDS
        while not (kernels := lab.find_kernel_processes(self.server.pid)):
            assert time.monotonic() < deadline, "no kernel process appeared"
            time.sleep(0.05)
        return kernels

    def talk(self, kernel: str) -> "Talk":
        """Return a connection to a kernel, as a page of JupyterLab has one."""
        address = f"ws://127.0.0.1:{self.port}/api/kernels/{kernel}/channels?token={self.token}"
        return Talk(address, self.log)

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGTERM)

    def find_address(self, path: str) -> str:
        """Return where the page shows a file of the course."""
        return f"http://127.0.0.1:{self.port}/lab/tree/{path}?token={self.token}"

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(END_SECONDS)


class Talk:
    """A kernel's channels through the server, one request at a time."""

    def __init__(self, address: str | HTTPRequest, log: Path) -> None:
        self._loop, self._log = asyncio.new_event_loop(), log
        self._socket = self._run(websocket_connect, address, max_message_size=2**24)

    def _run(self, begin: Any, *arguments: Any, **options: Any) -> Any:
        async def wait() -> Any:
            return await asyncio.wait_for(begin(*arguments, **options), START_SECONDS)

        try:
            return self._loop.run_until_complete(wait())
        except TimeoutError:
            said = f"nothing for {START_SECONDS} s; the server:\n{self._log.read_text()[-3000:]}"
            raise AssertionError(said) from None

    def send(self, kind: str, content: dict, channel: str = "shell") -> str:
        mark = uuid.uuid4().hex
        header = {
            "msg_id": mark,
            "msg_type": kind,
            "session": "test",
            "username": "",
            "version": "5.3",
            "date": "",
        }
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "channel": channel,
            "buffers": [],
        }
        self._run(self._socket.write_message, json.dumps(message))
        return mark

    def start(self, code: str) -> str:
        """Let the kernel run code; return the mark that `read` wants."""
        return self.send("execute_request", {"code": code, "silent": False, "stop_on_error": False})

    def read(self, mark: str) -> tuple[str, str]:
        """Return what was printed (or the error's name) and the reply's status.

        The reply and what was printed come by different channels, in any order.
        """
        said, reply, idle = [], None, False
        while reply is None or not idle:
            message = json.loads(self._run(self._socket.read_message))
            if message["parent_header"].get("msg_id") != mark:
                continue
            kind, content = message["msg_type"], message["content"]
            idle = idle or content.get("execution_state") == "idle"
            if kind == "stream":
                said.append(content["text"])
            elif kind.endswith("_reply"):
                reply = content
        return "".join(said) or reply.get("ename", ""), reply["status"]

    def wait_for_output(self, mark: str) -> None:
        """Wait until the code of `mark` has printed something: its cell is under way."""
        while True:
            message = json.loads(self._run(self._socket.read_message))
            if message["parent_header"].get("msg_id") == mark and message["msg_type"] == "stream":
                return

    def run(self, code: str) -> str:
        return self.read(self.start(code))[0]

    def close(self) -> None:
        async def end() -> None:  # it writes a last frame, for which a loop must run
            self._socket.close()

        self._loop.run_until_complete(end())
        self._loop.close()
