"""One machine that takes part in a run: starts what the host plans, tells it what becomes of it."""

import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...cluster.grace import Notice
from ...cluster.group import Task, TaskGroup
from ...cluster.local_tasks import ACTIONS
from ...cluster.signals import Signals, choose_signal
from ...errors import DistributedError, RunError, first_line
from ...processes.connection import split_address
from ...processes.handshake import ChannelLost
from ...tf_config import join_address, parse_tf_config
from ..programs import ProgramLauncher
from ..run_record import Print, RunRecord, Say
from ..settings import RunReport, RunSettings, TaskReport
from .channel import MeetingChannel, MeetingFrame
from .compare import describe_machine
from .copies import CheckpointCopy
from .fetching import Fetcher
from .lines import LineBuffer
from .names import clean_name
from .reach import OpenPorts, describe_firewall, measure_rate, name_interface, try_all
from .settings import RendezvousSettings

LOOK_SECONDS = 2.0  # between two looks at what tasks do
MAX_HANDOUT, NOT_STARTED, MAX_GRACE_SECONDS = 4096, 127, 3600.0


class HostLost(RunError):
    """The host has hung up, or is silent: it may come back."""


class RefusedByHost(RunError):
    """The host doesn't let this machine take part."""


class MemberRecord(RunRecord):
    """The tasks' output here: as in any run, and on its way to the host."""

    def __init__(self, logs: Path, show: Print, say: Say) -> None:
        super().__init__(logs, show, say)
        self.waiting: dict[str, LineBuffer] = {}  # to be sent

    def open_log(self, task: str, attempt: int) -> Path:
        self.waiting[task] = LineBuffer(socket.gethostname())
        return super().open_log(task, attempt)

    def add_line(self, task: str, line: str) -> None:
        self.waiting[task].add(line)
        super().add_line(task, line)


class MemberTasks:
    """The tasks that a member runs for its host, as the host's frames say."""

    def __init__(
        self,
        command: Sequence[str],
        settings: RunSettings,
        logs: Path,
        show: Print,
        send: Callable[..., None],
        takes_handout: bool,
    ) -> None:
        """`takes_handout`: whether tasks get the text that the host hands out."""
        self._command, self._settings, self._send = command, settings, send
        self._takes_handout = takes_handout
        self.record = MemberRecord(logs, show, lambda _: None)
        self.launcher = ProgramLauncher(settings)
        self.group: TaskGroup | None = None
        self._ended, self._listening = set[str](), set[str]()  # of which the host knows
        self._next_look = 0.0

    def start(self, frame: MeetingFrame) -> None:
        """Start tasks in place of those that were there."""
        self.end(0.0)
        self._ended, self._listening = set(), set()
        handout = frame.get("handout", str, "")[:MAX_HANDOUT]
        told = {"handout": handout if self._takes_handout else None}
        told["run_id"] = frame.get("run", str)[:MAX_HANDOUT]
        settings, attempt = replace(self._settings, **told), frame.get("attempt", int)
        configs = [parse_tf_config(str(text)) for text in frame.get("tf_configs", list)]
        tasks = []
        for config in configs:
            if config.job != "worker":
                raise ChannelLost(f"wants to start a {config.job} here, not a worker")
            order = settings.make_order(config, self._command, frame.get("restart", int))
            tasks.append(Task(order, config.job, config.index))
            self.record.open_log(order.name, attempt)
        self.group = TaskGroup(tasks, attempt, self.record)
        try:
            self.group.start(self.launcher, b"")
        except DistributedError as error:
            for task in tasks:
                self.group.take_line(task.name, first_line(error))
                self.group.take_end(task.name, NOT_STARTED)

    @property
    def is_running(self) -> bool:
        """True while a task runs."""
        return self.group is not None and any(task.status is None for task in self.group.tasks)

    def find(self, frame: MeetingFrame) -> Task | None:
        """Return the task that a frame names, None where it isn't here."""
        name = frame.get("task", str)
        found = self.group.tasks if self.group is not None else []
        return next((task for task in found if task.name == name), None)

    def act(self, frame: MeetingFrame) -> None:
        task, action = self.find(frame), frame.get("action", str)
        if task is not None and task.launched is not None and action in ACTIONS:
            task.launched.act(task.name, action)

    def ask_to_end(self, frame: MeetingFrame) -> None:
        task, action = self.find(frame), frame.get("action", str)
        seconds = min(frame.get("seconds", float), MAX_GRACE_SECONDS)
        if task is not None and task.launched is not None and action in ACTIONS:
            task.launched.ask_to_end([task.name], Notice(action, seconds))

    def start_again(self, frame: MeetingFrame) -> None:
        if task := self.find(frame):
            self._ended.discard(task.name)
            self._listening.discard(task.name)
            self.group.start_again(task)

    def tell(self) -> None:
        """Send the lines that have come, who has ended and, now and then, what the others do."""
        for task in self.group.tasks if self.group is not None else ():
            status = task.status  # before the lines, which are complete then
            if lines := self.record.waiting[task.name].take():
                self._send("lines", task=task.name, lines=lines)
            if status is not None and task.name not in self._ended:
                self._ended.add(task.name)
                self._send("ended", task=task.name, status=status)
        if time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._tell_state()

    def _tell_state(self) -> None:
        for task in self.group.tasks if self.group is not None else ():
            if task.status is None and task.launched is not None:
                if task.name not in self._listening and task.listens:
                    self._listening.add(task.name)
                told = {"listens": task.name in self._listening}
                told["idle_seconds"] = task.launched.find_idle_seconds(task.name)
                self._send("state", task=task.name, **told)

    def end(
        self,
        grace_seconds: float,
        number: int = signal.SIGTERM,
        hurries: Callable[[], bool] = lambda: False,
    ) -> None:
        """Send `number` to all tasks; kill them after the grace, or once they do nothing."""
        if self.group is not None:
            self.group.let_end(grace_seconds, number, hurries)
            self.group.end()

    def close(self) -> None:
        self.launcher.close()
        self.record.close()


class Member:
    """This machine in a run that another one hosts. `run` returns the run's report."""

    def __init__(
        self,
        channel: MeetingChannel,
        command: Sequence[str],
        settings: RunSettings,
        rendezvous: RendezvousSettings,
        logs: Path,
        show: Print,
        say: Say,
        identity: str = "",
    ) -> None:
        """With the same `identity`, a machine takes the place of the one that it was before."""
        self._channel, self._command, self._settings = channel, list(command), settings
        self._rendezvous, self._logs, self._say = rendezvous, logs, say
        self._identity = identity
        self.address = rendezvous.advertise_address or channel.own_address
        self._inbox, self._ports = queue.Queue[MeetingFrame](), None
        self._next_host: tuple[str, str] | None = None  # name and address
        folder = settings.checkpoint_dir
        self._copy = CheckpointCopy(folder, is_origin=False) if folder else None
        self._fetcher = Fetcher(self._copy, channel.send) if self._copy else None
        self._tasks = MemberTasks(
            command, settings, logs, show, self._send, bool(rendezvous.gathering)
        )
        self._tasks.launcher.variables = name_interface(self.address)
        if settings.ports:
            port = split_address(rendezvous.address)[1]
            say(describe_firewall(self.address, port, settings.ports))

    @property
    def was_needed(self) -> bool:
        """True if this machine has had a task."""
        return self._tasks.group is not None

    def run(self, signals: Signals) -> RunReport:
        """Take part to the end. Raises RefusedByHost, or HostLost once the tasks have ended."""
        about = describe_machine(self._command, self._settings, self._rendezvous)
        about |= {"address": self.address, "logs": str(self._logs.absolute()), "id": self._identity}
        if self._rendezvous.node_rank is not None:
            about["rank"] = self._rendezvous.node_rank
        try:
            self._send("join", **about, seats=self._rendezvous.local_workers)
            threading.Thread(target=self._read, daemon=True).start()
            while True:
                if signals.number:
                    return self._leave(signals)
                report = self._take_next()
                if report is not None:
                    return report
        except ChannelLost as lost:
            self._let_tasks_end(str(lost), signals)
            raise HostLost(self._explain_lost_host(str(lost))) from None
        finally:
            self._close()

    def _let_tasks_end(self, why: str, signals: Signals) -> None:
        """Once the host is lost: its tasks have their grace, as after any end."""
        grace = self._settings.grace_seconds
        if self._tasks.is_running:
            self._say(f"the host is lost ({why}); this machine's tasks have {grace:g} s to end")
        self._tasks.end(grace, hurries=lambda: signals.hurries)

    def _read(self) -> None:
        """In a thread: everything that the host says, pieces of a copy to the fetcher."""
        try:
            while True:
                frame = self._channel.receive()
                if frame.kind == "piece" and self._fetcher:
                    self._fetcher.take(frame)
                else:
                    self._inbox.put(frame)
        except ChannelLost as lost:
            self._inbox.put(MeetingFrame("lost", {"why": str(lost)}))

    def _take_next(self) -> RunReport | None:
        """Handle what comes next, if anything does within a moment."""
        try:
            got = self._inbox.get(timeout=0.1)
        except queue.Empty:
            got = None
        self._tasks.tell()
        return None if got is None else self._handle(got)

    def _handle(self, frame: MeetingFrame) -> RunReport | None:
        if frame.kind == "finish":
            return replace(_read_report(frame), logs=str(self._logs))
        if frame.kind == "lost":
            raise ChannelLost(frame.get("why", str))
        if frame.kind == "refuse":
            raise RefusedByHost(f"The host refuses this machine. {frame.get('why', str)}")
        if frame.kind == "say":
            self._say(frame.get("text", str))
            return None
        handlers = {"prepare": self._on_prepare, "probe": self._on_probe, "start": self._on_start}
        handlers |= {"measure": self._on_measure}
        handlers |= {"act": self._tasks.act, "again": self._tasks.start_again}
        handlers |= {"ask": self._tasks.ask_to_end, "offer": self._on_offer, "give": self._on_give}
        if frame.kind not in handlers:
            raise ChannelLost(f"has sent the unknown order {frame.kind[:20]!r}")
        handlers[frame.kind](frame)
        return None

    def _on_prepare(self, frame: MeetingFrame) -> None:
        """Open the ports of the next attempt. Tell them, and which checkpoint is here."""
        self._release_ports()
        try:
            self._settings.divide_gpus(frame.get("seats", int))
            self._ports = OpenPorts(self.address, frame.get("seats", int), self._settings.ports)
            copy = self._copy.find_state().to_data() if self._copy else None
        except (DistributedError, OSError) as error:
            return self._answer(frame, "ready", error=first_line(error))
        told = {"ports": self._ports.ports, "token": self._ports.token, "copy": copy}
        self._answer(frame, "ready", **told)

    def _on_probe(self, frame: MeetingFrame) -> None:
        targets = [(str(h), int(p), str(t)) for h, p, t in frame.get("targets", list)]
        self._answer(frame, "reached", answers=try_all(targets))

    def _on_measure(self, frame: MeetingFrame) -> None:
        host, port, token = frame.get("target", list)
        rate = measure_rate(str(host), int(port), str(token))
        self._answer(frame, "measured", rate=rate)

    def _on_start(self, frame: MeetingFrame) -> None:
        opened = self._ports.ports if self._ports is not None else []
        if len(frame.get("tf_configs", list)) > len(opened):
            raise ChannelLost("wants to start more tasks than it has asked ports for")
        self._release_ports()
        machines = [(clean_name(str(n)), str(a)[:100]) for n, a in frame.get("machines", list)]
        self._next_host = machines[0] if machines else None
        self._tasks.start(frame)

    def _on_offer(self, frame: MeetingFrame) -> None:
        if self._fetcher:
            self._fetcher.offer(frame.data)

    def _on_give(self, frame: MeetingFrame) -> None:
        path, offset = frame.get("path", str), frame.get("offset", int)
        piece = self._copy.read_piece(path, offset) if self._copy else None
        self._send("piece", piece or b"", gone=piece is None)

    def _answer(self, question: MeetingFrame, kind: str, **data: Any) -> None:
        self._send(kind, question=question.get("question", int), **data)

    def _send(self, kind: str, body: bytes = b"", **data: Any) -> None:
        self._channel.send(kind, body, **data)

    def _release_ports(self) -> None:
        if self._ports is not None:
            self._ports.release()

    def _leave(self, signals: Signals) -> RunReport:
        """After a signal: tell the host, pass it on, and give the tasks their time."""
        grace, name = self._settings.grace_seconds, signals.name
        self._say(f"{name}: this machine leaves; its tasks have {grace:g} s to end")
        self._send("leaving", why=name)
        self._tasks.end(grace, choose_signal(signals.number), lambda: signals.hurries)
        return RunReport(self._settings.workers, 0, 0.0, [], None, 128 + signals.number)

    def _close(self) -> None:
        self._channel.close()
        self._release_ports()
        if self._fetcher:
            self._fetcher.close()
        self._tasks.end(0.0)
        self._tasks.close()

    def _explain_lost_host(self, why: str) -> str:
        address = self._rendezvous.address
        if self._rendezvous.gathering is not None:
            again = "Type the same command again to take part from the next start."
            return f"The connection to {address} is lost ({why}), and your task was ended. {again}"
        words = f"The rendezvous host {address} is lost ({why}), and its tasks here were ended. "
        if self._copy is not None:
            words += f"The run resumes from the newest copy of {self._settings.checkpoint_dir}. "
        return words + self._name_next_host()  # last, as it ends with what to type

    def _name_next_host(self) -> str:
        """Return who should host if that machine is gone, and what to type: all say the same."""
        if self._next_host is None:
            return "If it doesn't come back, name another machine's address after --rendezvous."
        (name, host), old = self._next_host, self._rendezvous.address
        address = join_address(host, split_address(old)[1])
        line = self._rendezvous.line.replace(old, address) or f"--rendezvous {address}"
        return (
            f"If it doesn't come back, {name} ({host}) should host. Type there, then here: {line}"
        )


def _read_report(frame: MeetingFrame) -> RunReport:
    """Return the report that the host sends at the end. Raises RunError where it has none."""
    if "error" in frame.data:
        raise RunError(f"The host ended the run: {frame.get('error', str)}")
    told = frame.get("report", dict)
    try:
        tasks = [TaskReport(**task) for task in told.pop("tasks")]
        return RunReport(**told, tasks=tasks)
    except (KeyError, TypeError):
        raise ChannelLost("has sent something that isn't a report") from None
