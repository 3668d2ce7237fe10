"""The machine that hosts a rendezvous: a run whose tasks are on several machines.

Before each attempt there is a round: who is here takes a place in the order of joining (the
host first, so that worker 0 runs here), every machine opens its ports and tries all others',
and the newest copy of the checkpoint goes to every machine that lacks it.
"""

import contextlib
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ...cluster.grace import Notice
from ...cluster.group import Task, TaskGroup
from ...cluster.launcher import RESTART_VARIABLE, Stop, Stopped, TaskListener, TaskOrder
from ...cluster.local_tasks import ACTIONS, LocalTasks
from ...errors import RunError, first_line
from ...processes.handshake import ChannelLost
from ...tf_config import join_address
from ..programs import ProgramLauncher, ProgramRun
from ..run_record import OUTPUT, Print, Say, find_log
from ..settings import RunReport, RunSettings
from .channel import open_door
from .guest import Guest, Opened, RemoteTask
from .lobby import ELASTIC_SECONDS, open_lobby
from .reach import OpenPorts, describe_firewall, name_interface
from .settings import RendezvousSettings
from .spread import CheckpointSpread
from .trial import check_pairs, describe_rates, measure_pairs, try_pairs

END_SECONDS = 10.0  # for a killed task on another machine
WORKER = re.compile(r"\bworker \d+")
AGAIN_SECONDS = 2.0  # for more people who meet, once they start again


@dataclass(frozen=True)
class Presence:
    """One machine of a run as its host sees it: its name, and its task, None if it waits.

    `status` is the task's, None while it runs; `lost` says why the machine is, `silent_seconds`
    for how long nothing has been heard of it.
    """

    name: str
    address: str
    task: str | None = None
    status: int | None = None
    lost: str | None = None
    silent_seconds: float = 0.0


class MeetingLauncher:
    """Starts programs on the machines that have met: who is here, where each task runs.

    A machine runs the program that it has, and its own settings make the environment: an order's
    command and environment count for tasks of this machine. Functions aren't sent to others.
    """

    description, actions = "on machines that meet", ACTIONS

    def __init__(
        self,
        command: Sequence[str],
        settings: RunSettings,
        rendezvous: RendezvousSettings,
        listener: socket.socket,
        code: str,
        say: Say,
    ) -> None:
        self._settings, self._rendezvous, self._say_here = settings, rendezvous, say
        self._own_seats = min(rendezvous.local_workers, settings.workers)
        self.about, self.lobby = open_lobby(command, settings, rendezvous, listener, say)
        self.address = self.about["address"]
        if rendezvous.grow == "at-checkpoint":
            self.lobby.when_running = (
                "the run has begun, and you take part from the next checkpoint"
            )
        if rendezvous.gathering is not None:
            self.lobby.try_out = lambda guest: try_pairs(self.about, [guest])
            self.lobby.own_name = self.about["host"]
        self.places: dict[str, Guest] = {}  # of tasks elsewhere
        self._starts = 0
        self._grows = False  # whether the next start was planned, so that all are here
        self._here, self._ports = ProgramLauncher(settings), None
        self._here.variables = name_interface(self.address)
        if settings.ports:
            say(describe_firewall(self.address, listener.getsockname()[1], settings.ports))
        folder, self._has_begun = settings.checkpoint_dir, False
        try:
            self.spread = CheckpointSpread(folder, self.lobby, say) if folder else None
        except BaseException:
            self._here.close()
            raise
        heartbeat = rendezvous.heartbeat_seconds
        self._door = open_door(listener, code, self.lobby.welcome, heartbeat)

    @property
    def alive(self) -> bool:
        return self._here.alive

    def say(self, text: str) -> None:
        """Say it here and on every other machine: who waits for whom, what has failed."""
        if self._rendezvous.gathering is not None:
            text = WORKER.sub(lambda found: self._name_owner(found[0]), text)
        self._say_here(text)
        for guest in self.lobby.guests:
            with contextlib.suppress(ChannelLost):
                guest.send("say", text=text)

    def _name_owner(self, task: str) -> str:
        """Return what the people call the machine of a task."""
        return self.places[task].host if task in self.places else self.about["host"]

    def find_addresses(self, count: int, stop: Stop = lambda: 0) -> list[str]:
        """Hold rounds until one is complete. Return the addresses of every task."""
        self.lobby.is_running = False
        while True:
            crew = self._gather(stop)
            if stop():
                raise Stopped
            try:
                found = self._hold_round(crew)
            except ChannelLost as lost:
                self.say(f"lost a machine, which {lost}; starting another round")
                continue
            self.lobby.is_running, self._has_begun, self._grows = True, True, False
            return found

    def _gather(self, stop: Stop) -> list[tuple[Guest, int]]:
        """Return who takes part. People who meet are all waited for, before they have begun."""
        most, seconds = self._settings.workers, self._rendezvous.join_seconds
        gathering = self._rendezvous.gathering
        if gathering is None or self._has_begun:
            least = self._settings.min_workers or most
            settle = ELASTIC_SECONDS if gathering is None else AGAIN_SECONDS
            settle = 0.0 if self._grows else settle
            return self.lobby.gather(self._own_seats, least, most, seconds, stop, settle)
        wanted = self._own_seats, min(2, most), most, seconds, stop
        return self.lobby.gather(*wanted, seconds, gathering.begin.is_set)

    def plan_restart(self) -> str:
        """Return why all should start again now, with more workers; "" if they shouldn't.

        That is when a machine waits, and a checkpoint was completed after it came.
        """
        if self._rendezvous.grow != "at-checkpoint":
            return ""
        guests, before = self.lobby.guests, self._own_seats + len(self.places)
        seated = {id(guest) for guest in self.places.values()}
        waiting = [guest for guest in guests if id(guest) not in seated]
        if not any(guest.joined_at < self.spread.saved_at for guest in waiting):
            return ""
        present = self._own_seats + sum(guest.seats for guest in guests)
        workers = min(present, self._settings.workers)
        if workers <= before:
            return ""
        self._grows = True
        return f"a checkpoint is complete, so {workers} workers can resume from it, not {before}"

    def _hold_round(self, crew: list[tuple[Guest, int]]) -> list[str]:
        """Raises ChannelLost where a member is lost meanwhile, RunError where it can't be done."""
        ps = self._settings.ps
        self._release_ports()
        self._settings.divide_gpus(self._own_seats)
        count = self._own_seats + ps + bool(ps)
        self._ports = OpenPorts(self.address, count, self._settings.ports)
        for guest, seats in crew:
            guest.ask("prepare", seats=seats)
        ready = [guest.wait_prepared(seats) for guest, seats in crew]
        guests = [guest for guest, _ in crew]
        self._check_pairs(guests, ready)
        if self._rendezvous.preflight and not self._has_begun and guests:
            rates = measure_pairs(self.about, self._ports, guests, ready)
            names = [self.address, *(guest.address for guest in guests)]
            for line in describe_rates(names, rates):
                self.say(line)
        if self.spread is not None:
            self.spread.bring(guests, [each.copy for each in ready])
        found = self._list_addresses(guests, ready)
        self._release_ports()
        return found

    def _check_pairs(self, guests: list[Guest], ready: list[Opened]) -> None:
        """Raises RunError for a blocked route, ChannelLost if its machine turns out lost.

        That may not be known yet: it has closed its ports, and is about to call again.
        """
        try:
            check_pairs(self.about, self._ports, guests, ready, self.say)
        except RunError:
            seconds = self._rendezvous.heartbeat_seconds if self._has_begun else 0.0
            if self.lobby.wait_until(lambda: any(guest.lost for guest in guests), seconds):
                raise ChannelLost("was not reached") from None
            raise

    def _list_addresses(self, guests: list[Guest], ready: list[Opened]) -> list[str]:
        """Return the coordinator here, the first workers here, the others in turn, servers here."""
        own = [join_address(self.address, port) for port in self._ports.ports]
        workers, rest, self.places = own[: self._own_seats], own[self._own_seats :], {}
        for guest, each in zip(guests, ready):
            for port in each.ports:
                self.places[f"worker {len(workers)}"] = guest
                workers.append(join_address(guest.address, port))
        chief = int(bool(self._settings.ps))
        return rest[:chief] + workers + rest[chief:]

    def _release_ports(self) -> None:
        if self._ports is not None:
            self._ports.release()

    def start(
        self, orders: Sequence[TaskOrder], function: bytes, listener: TaskListener
    ) -> "MeetingTasks":
        own = [order for order in orders if order.name not in self.places]
        here = self._here.start(own, function, listener)
        theirs: dict[Guest, list[TaskOrder]] = {}
        for order in orders:
            if order.name in self.places:
                theirs.setdefault(self.places[order.name], []).append(order)
        self._starts += 1
        told = {"attempt": self._starts, "run": self._settings.run_id}
        told |= {"handout": self._settings.handout or ""}
        told |= {"machines": [[guest.host, guest.address] for guest in theirs]}
        away = [_start_there(*both, told, listener) for both in theirs.items()]
        return MeetingTasks(here, {task.name: task for tasks in away for task in tasks})

    def close(self) -> None:
        """Stop admitting machines, and end all that is left here; safe to call twice."""
        self._door.close()
        self._release_ports()
        for guest in self.lobby.guests:
            guest.channel.close()
        if self.spread is not None:
            self.spread.close()
        self._here.close()


def _start_there(
    guest: Guest, orders: list[TaskOrder], told: Mapping[str, object], listener: TaskListener
) -> list[RemoteTask]:
    tasks = [RemoteTask(order.name, guest, listener) for order in orders]
    guest.tasks.update({task.name: task for task in tasks})
    configs = [order.tf_config for order in orders]
    restart = int(orders[0].environment[RESTART_VARIABLE])
    with contextlib.suppress(ChannelLost):  # they are lost then, as they may be at any time
        guest.send("start", tf_configs=configs, restart=restart, **told)
    for task in tasks:
        task.look_if_lost()
    return tasks


class MeetingTasks:
    """The tasks of one start: `here` are this machine's, `away` the others'."""

    def __init__(self, here: LocalTasks, away: dict[str, RemoteTask]) -> None:
        self._here, self.away = here, away

    def act(self, task: str, action: str) -> None:
        if task in self.away:
            self.away[task].act(action)
        else:
            self._here.act(task, action)

    def ask_to_end(self, tasks: Sequence[str], notice: Notice) -> None:
        self._here.ask_to_end([task for task in tasks if task not in self.away], notice)
        for task in tasks:
            if task in self.away:
                self.away[task].ask_to_end(notice)

    def start_again(self, task: str) -> None:
        if task in self.away:
            self.away[task].start_again()
        else:
            self._here.start_again(task)

    def find_process(self, task: str) -> int | None:
        return None if task in self.away else self._here.find_process(task)

    def find_host(self, task: str) -> str:
        return self.away[task].guest.host if task in self.away else self._here.find_host(task)

    def listens(self, task: str) -> bool:
        return self.away[task].listens if task in self.away else self._here.listens(task)

    def find_idle_seconds(self, task: str) -> float:
        if task in self.away:
            return self.away[task].idle_seconds
        return self._here.find_idle_seconds(task)

    def release(self) -> None:
        self._here.release()

    def end(self) -> None:
        for task in self.away.values():
            task.act("kill")
        self._here.end()
        deadline = time.monotonic() + END_SECONDS
        for task in self.away.values():
            task.join(max(0.0, deadline - time.monotonic()))


class HostedRun(ProgramRun):
    """A run at a rendezvous, hosted by this machine."""

    def __init__(
        self,
        command: Sequence[str],
        settings: RunSettings,
        rendezvous: RendezvousSettings,
        listener: socket.socket,
        code: str,
        show: Print,
        say: Say,
    ) -> None:
        launcher = MeetingLauncher(command, settings, rendezvous, listener, code, say)
        try:
            super().__init__(command, settings, launcher, show, launcher.say)
        except BaseException:
            launcher.close()
            raise
        launcher.lobby.tell_joined(self._note_join)
        self.supervisor.plan_restart = launcher.plan_restart

    def _note_join(self, guest: Guest) -> None:
        self.record.note("join", host=guest.host, address=guest.address, workers=guest.seats)

    def run(self) -> RunReport:
        lobby = self.launcher.lobby
        try:
            report = super().run()
            if self.launcher.spread is not None:
                self.launcher.spread.hand_out_last()
            lobby.finish(lobby.guests, report=asdict(report))
            return report
        except BaseException as error:
            lobby.finish(lobby.guests, error=first_line(error) or type(error).__name__)
            raise
        finally:
            self.launcher.close()

    def _open_log(self, task: Task, attempt: int) -> str:
        if task.name not in self.launcher.places:
            return super()._open_log(task, attempt)
        return str(
            find_log(Path(self.launcher.places[task.name].logs), task.name, attempt) / OUTPUT
        )

    @property
    def group(self) -> TaskGroup | None:
        """The tasks of the last start, None before the first."""
        return self.supervisor.group

    @property
    def starts(self) -> int:
        """The number of starts of all tasks."""
        return self.supervisor.attempt

    def look(self) -> list[Presence]:
        """Return who is here now: each task of the last start, then who waits for a place."""
        tasks = self.group.tasks if self.group is not None else []
        found, seated = [], set()
        for task in tasks:
            remote = task.launched.away.get(task.name)
            found.append(self._look_at(task, remote))
            seated |= {id(remote.guest)} if remote else set()
        waiting = [guest for guest in self.launcher.lobby.guests if id(guest) not in seated]
        return found + [Presence(guest.host, guest.address) for guest in waiting]

    def _look_at(self, task: Task, remote: RemoteTask | None) -> Presence:
        if remote is None:
            launcher = self.launcher
            return Presence(launcher.about["host"], launcher.address, task.name, task.status)
        guest = remote.guest
        silent = time.monotonic() - guest.channel.heard_at
        return Presence(guest.host, guest.address, task.name, task.status, guest.lost, silent)
