"""A real JupyterHub with three users of this machine, configured by `distlab hub-config`."""

import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from child_programs import run_child, run_distlab, run_python
from lab_server import Talk
from needs import need_hub, skip_without
from process_watch import wait_for
from tornado.httpclient import HTTPRequest

from distlab.cli import main
from distlab.grading.release import make_release
from utils.tf_config import pick_free_ports

pytestmark = [pytest.mark.slow(90), pytest.mark.cold_start]
ROOT = Path(__file__).resolve().parents[2]
HUB_PAGE = ROOT / "docs" / "hub.md"
USERS = tuple(f"dl{os.getpid()}{letter}" for letter in "abc")  # two runs at once differ
PREFIX, LESSON = "/deep/er/", "notebooks/01-why-distribute.ipynb"
MORE = """
load_subconfig("jupyterhub_config.py")
from jupyterhub.auth import DummyAuthenticator
c.JupyterHub.authenticator_class = DummyAuthenticator  # in place of PAM's passwords
c.DummyAuthenticator.allow_all = True
c.JupyterHub.bind_url = "http://127.0.0.1:{port}{prefix}"
c.JupyterHub.hub_port = {hub}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.JupyterHub.services = [dict(name="test", api_token="{token}")]
scopes = ["admin:users", "admin:servers", "access:servers"]
c.JupyterHub.load_roles = [dict(name="test", scopes=scopes, services=["test"])]
"""
TELL = """
import json, os, sys
warm = "tensorflow" in sys.modules
import utils
print(json.dumps({"user": os.getuid(), "warm": warm, "utils": utils.__file__,
    "network": os.readlink("/proc/self/ns/net"), "process": os.getpid()}))
"""
CLUSTER = """
import json, os, time, utils
from utils.cluster import LocalCluster
def serve():
    import tensorflow as tf
    tf.distribute.MultiWorkerMirroredStrategy()
    time.sleep(600)
cluster = LocalCluster(workers=2)
job = cluster.start(serve)
limit = time.monotonic() + 300
while not all(task.listens for task in job.tasks):
    assert time.monotonic() < limit
    time.sleep(0.05)
print(json.dumps([task.order.address for task in job.tasks]), flush=True)
"""
THIEF = """
import sys, tensorflow as tf
tf.config.experimental_connect_to_host(f"grpc://{sys.argv[1]}", job_name="worker")
with tf.device("/job:worker/replica:0/task:0"):
    print(tf.io.read_file(sys.argv[2]).numpy().decode())
"""


def list_processes(user: str) -> list[psutil.Process]:
    number = pwd.getpwnam(user).pw_uid
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == number and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def find_python() -> str:
    """Return a Python of this version that every user may run: root's own may be out of reach."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (os.path.realpath(sys.executable), f"/usr/bin/{version}"):
        said = subprocess.run(
            ["su", "nobody", "-s", "/bin/sh", "-c", f"{path} -c 'import venv'"],
            cwd="/",
            capture_output=True,
            check=False,
        )
        if said.returncode == 0:
            return path
    return skip_without("JupyterHub", f"no {version} that all users may run")


def make_environment(course: Path) -> None:
    """An environment with the packages of this one, and a Python that every user may run.

    This one is shown at a place that users can enter, as the way to it may be closed to them.
    """
    folder, shown = course / ".venv", course.with_name("environment")
    subprocess.run([find_python(), "-m", "venv", "--without-pip", str(folder)], check=True)
    shown.mkdir()
    if subprocess.run(["mount", "-o", "bind,ro", sys.prefix, shown]).returncode:
        skip_without("JupyterHub", "this root may not mount")
    (packages,) = folder.glob("lib/python*/site-packages")
    (theirs,) = shown.glob("lib/python*/site-packages")
    lines = [str(course), f"import site; site.addsitedir({str(theirs)!r})"]
    (packages / "ours.pth").write_text("\n".join(lines))
    for part in ("share", "etc"):
        (folder / part).symlink_to(shown / part)
    mains = {"jupyterhub-singleuser": "jupyterhub.singleuser", "distlab": "distlab.cli"}
    for name, module in mains.items():
        script = folder / "bin" / name
        head = f"#!{folder}/bin/python\nimport sys\nfrom {module} import main\n"
        script.write_text(f"{head}sys.exit(main())\n")
        script.chmod(0o755)


class Hub:
    """A hub in a folder, with homes for its users, and what a test asks of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.token = folder, secrets.token_hex(16)
        self.homes = {user: folder / "home" / user for user in USERS}
        self.process: subprocess.Popen[bytes] | None = None
        self.there: set[Path] = set()  # folders of earlier users with the numbers of these

    def start(self) -> None:
        """Make users, course and configuration, and start the hub with them."""
        folder = self.folder
        (folder / "home").mkdir()
        for user, home in self.homes.items():
            subprocess.run(["useradd", "-m", "-d", home, "-s", "/bin/bash", user], check=True)
            home.chmod(0o700)
            self.there |= list_folders(user)
        self._release()
        private = folder / "hub"
        private.mkdir(mode=0o700)
        config = private / "jupyterhub_config.py"
        words = ["hub-config", "--course", str(self.course), "--output", str(config)]
        assert main(words) == 0 and main(words) == 2, "it writes once, and never over a file"
        self.port, hub, api = pick_free_ports(3)
        more = MORE.format(port=self.port, hub=hub, api=api, token=self.token, prefix=PREFIX)
        (private / "test_config.py").write_text(more)
        self.log = folder / "hub.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", "test_config.py"],
                cwd=private,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _release(self) -> None:
        """The students' copy with its environment, and nbgrader's list, as docs/hub.md says."""
        made = make_release(ROOT, self.folder / "release", ["lab01"])
        self.course, self.teacher = self.folder / "course", made.nbgrader
        made.students.rename(self.course)
        make_environment(self.course)
        exchange, settings = self.folder / "exchange", self.course / "distlab" / "lab_config"
        exchange.mkdir()
        exchange.chmod(0o777)
        [lines] = re.findall(r"   ```python\n(.*?)   ```", HUB_PAGE.read_text(), re.DOTALL)
        lines = dedent(lines).replace("/srv/exchange", str(exchange))
        (settings / "nbgrader_config.py").write_text(lines)
        [root] = [line for line in lines.splitlines() if "Exchange.root" in line]
        with open(self.teacher / "nbgrader_config.py", "a") as file:
            file.write(root)
        replace_in(
            settings / "jupyter_server_config.json",
            'assignment_list": false',
            'assignment_list": true',
        )
        (others,) = re.findall(r'by `(".*?)`, so that only', HUB_PAGE.read_text())
        page = settings / "labconfig" / "page_config.json"
        replace_in(page, '"@jupyter/nbgrader": true', others)

    def ask(self, path: str, data: Any = None, method: str | None = None) -> Any:
        address = f"http://127.0.0.1:{self.port}{PREFIX}{path}"
        body = None if data is None else json.dumps(data).encode()
        head = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(address, body, head, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error}\n{self.log.read_text()[-5000:]}") from None
        with suppress(ValueError):
            return json.loads(text)
        return text

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        with suppress(OSError, AssertionError):
            return "version" in self.ask("hub/api/")
        return False

    def start_server(self, user: str) -> None:
        self.ask(f"hub/api/users/{user}", method="POST", data={})
        self.ask(f"hub/api/users/{user}/server", method="POST", data={})
        wait_for(lambda: self._is_ready(user), 240)

    def _is_ready(self, user: str) -> bool:
        servers = self.ask(f"hub/api/users/{user}")["servers"]
        assert servers, self.log.read_text()[-3000:]
        return servers[""]["ready"]

    def open_kernel(self, user: str, path: str = LESSON) -> Talk:
        wanted = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
        kernel = self.ask(f"user/{user}/api/sessions", wanted)["kernel"]["id"]
        place = f"127.0.0.1:{self.port}{PREFIX}user/{user}/api/kernels/{kernel}/channels"
        head = {"Authorization": f"token {self.token}"}
        return Talk(HTTPRequest(f"ws://{place}", headers=head), self.log)

    def close(self) -> None:
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(120)
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        for user in USERS:
            with suppress(KeyError):
                self._end_user(user)
        done = subprocess.run(["umount", "-l", self.folder / "environment"], capture_output=True)
        if not done.returncode or not (self.folder / "environment" / "bin").exists():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _end_user(self, user: str) -> None:
        for process in list_processes(user):
            with suppress(psutil.Error):
                process.kill()
        wait_for(lambda: not list_processes(user))
        subprocess.run(["userdel", user], check=False, capture_output=True)


def as_user(user: str, *words: str, **options: Any) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--", *words]


def for_all(function: Callable[[str], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(USERS)) as pool:
        return list(pool.map(function, USERS))


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    need_hub()
    folder = Path(tempfile.mkdtemp(prefix="hub-", dir="/tmp"))  # which every user can enter
    folder.chmod(0o755)
    made = Hub(folder)
    try:
        made.start()
        wait_for(made.is_up, 240)
        for_all(made.start_server)
        yield made
    finally:
        made.close()


def test_each_user_gets_a_course_with_its_home_its_pictures_and_no_argument_of_ours(hub):
    for user in USERS:
        page = hub.ask(f"user/{user}/distlab/home")["page"]
        assert Path(LESSON).name in page and "0 of 4 exercises passed" in page
        config = hub.ask(f"user/{user}/lab")
        assert '"distlab-home"' in config
        assert "distlab" in hub.ask(f"user/{user}/lab/extensions/distlab-home/static/home.js")
        lesson = hub.ask(f"user/{user}/api/contents/{LESSON}")["content"]
        cells = [cell for cell in lesson["cells"] if cell["cell_type"] == "code"]
        assert all(cell["metadata"]["trusted"] for cell in cells), "so its pictures are shown"
        home = hub.homes[user]
        owner = (home / "course" / "README.md").stat()
        assert owner.st_uid == pwd.getpwnam(user).pw_uid and not (home / "course/.venv").exists()


def test_all_run_a_lesson_at_once_in_warm_kernels_with_their_own_progress(hub):
    cells = json.loads((ROOT / LESSON).read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]

    def work(user: str) -> dict[str, Any]:
        talk = hub.open_kernel(user)
        told = json.loads(talk.run(TELL))
        for cell in code[: 3 + USERS.index(user)]:
            assert talk.read(talk.start("".join(cell["source"])))[1] == "ok"
            hub.ask(f"user/{user}/distlab/ran", {"path": LESSON, "cells": [cell["id"]]})
        talk.close()
        return told

    for user, told in zip(USERS, for_all(work)):
        assert told["user"] == pwd.getpwnam(user).pw_uid and told["warm"]
        assert told["utils"] == str(hub.course / "utils" / "__init__.py"), "the hub's, for all"
        assert told["network"] != os.readlink("/proc/self/ns/net")
        server = psutil.Process(told["process"]).parent().parent()
        assert os.readlink(f"/proc/{server.pid}/ns/net") == os.readlink("/proc/self/ns/net")
        page = hub.ask(f"user/{user}/distlab/home")["page"]
        assert f"{3 + USERS.index(user)} of {len(code)} cells run" in page


def test_a_lab_is_checked_and_submitted_from_a_notebook(hub):
    talk = hub.open_kernel(USERS[2], "labs/lab01-batches-and-words.ipynb")
    said = talk.run(
        "print(__import__('subprocess').run(['distlab', 'submit', 'lab01'], "
        "capture_output=True, text=True, cwd='..'))"
    )
    talk.close()
    sent = list((hub.homes[USERS[2]] / "course" / "submissions").glob(f"lab01*_{USERS[2]}_*.zip"))
    assert len(sent) == 1, said


def test_nbgraders_list_fetches_and_submits_and_the_teacher_collects_and_grades(hub, tmp_path):
    lab, user, course = "lab01-batches-and-words", USERS[0], "distributed-training-lab"

    def nbgrader(command: str) -> None:
        words = ("-m", "nbgrader", command, lab, "--log-level=ERROR")
        run_python(*words, cwd=hub.teacher, status=0)

    nbgrader("generate_assignment")
    nbgrader("release_assignment")
    config = hub.ask(f"user/{user}/lab")
    off = json.loads(re.findall(r'"disabledExtensions": (\[[^]]*\])', config)[0])
    assert "@jupyter/nbgrader" not in off and "@jupyter/nbgrader:formgrader" in off
    assert hub.ask(f"user/{user}/courses")["value"] == [course]
    chosen = f"course_id={course}&assignment_id={lab}"
    [fetched] = hub.ask(f"user/{user}/assignments/fetch?{chosen}", data={})["value"]
    assert hub.ask(f"user/{user}/api/contents/{fetched['notebooks'][0]['path']}")["content"]
    hub.ask(f"user/{user}/assignments/submit?{chosen}", data={})
    nbgrader("collect")
    other = hub.teacher / "submitted" / "by-mail" / lab  # put there by the teacher
    other.mkdir(parents=True)
    shutil.copy(hub.teacher / "source" / lab / f"{lab}.ipynb", other)
    words = ("lab01", hub.teacher / "submitted", "--output", tmp_path, "--json")
    kept = ("--gradebook", hub.teacher / "gradebook.db")
    done = run_distlab("grade", *words, *kept, cwd=ROOT, status=0)
    marks = {one["student"]: one["mark"] for one in json.loads(done.stdout)["submissions"]}
    assert marks == {user: 0, "by-mail": 10}, "an empty lab, and the solution"
    nbgrader("generate_feedback")
    nbgrader("release_feedback")
    pages = list((hub.folder / "exchange" / course / "feedback").glob("*.html"))
    assert len(pages) == 2, "one for each, however they handed in"
    _, sent = hub.ask(f"user/{user}/assignments/fetch_feedback?{chosen}", data={})["value"]
    there = sent["submissions"][0]["local_feedback_path"]
    assert "(Score: 0.0 / 10.0)" in hub.ask(f"user/{user}/files/{quote(there)}/{lab}.html")


def test_nobody_reads_a_file_of_another_user_through_a_clusters_port(hub):
    owner, thief = USERS[0], USERS[1]
    secret = hub.homes[owner] / "course" / "secret.txt"
    secret.write_text("the answer")
    shutil.chown(secret, owner, owner)
    secret.chmod(0o600)
    talk = hub.open_kernel(owner)
    addresses = json.loads(talk.run(CLUSTER))
    kernel = json.loads(talk.run(TELL))["process"]
    try:
        there = hub.open_kernel(thief)
        for address in addresses:
            host, port = address.split(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=10)
            asked = f"import socket; socket.create_connection(({host!r}, {port}), timeout=10)"
            assert there.run(asked) == "ConnectionRefusedError"
        there.close()
        # The same attack, in the cluster's own network: this is what others are kept from.
        inside = [
            "nsenter",
            f"--net=/proc/{kernel}/ns/net",
            *as_user(thief, str(hub.course / ".venv/bin/python"), "-c"),
        ]
        own = {"PATH": os.environ["PATH"], "HOME": str(hub.homes[thief])}
        stolen = run_child(*inside, THIEF, addresses[0], secret, cwd="/", env=own)
        assert stolen.stdout.strip() == "the answer", stolen.stderr[-2000:]
    finally:
        talk.close()


def test_nothing_stays_when_servers_stop_are_killed_and_the_hub_ends(hub):
    hub.ask(f"hub/api/users/{USERS[0]}/server", method="DELETE")
    wait_for(lambda: not list_processes(USERS[0]))
    (server,) = [p for p in list_processes(USERS[1]) if "singleuser" in " ".join(p.cmdline())]
    server.kill()
    wait_for(lambda: not list_processes(USERS[1]))
    assert list_processes(USERS[2])
    hub.process.terminate()
    hub.process.wait(120)
    for user in USERS:
        wait_for(lambda user=user: not list_processes(user))
        assert not list_folders(user) - hub.there


def list_folders(user: str) -> set[Path]:
    """Return the clusters' folders of a user: of this one, or of who had the number before."""
    number, found = pwd.getpwnam(user).pw_uid, set()
    for path in Path("/tmp").glob("distlab-*"):
        with suppress(FileNotFoundError):  # another test's
            if path.lstat().st_uid == number:
                found.add(path)
    return found
