"""The machine that hosts a rendezvous: a run whose tasks are on several machines.

Before each attempt there is a round: who is here takes a place in the order of joining (the
host first, so that worker 0 runs here), every machine opens its ports and tries all others',
and the newest copy of the checkpoint goes to every machine that lacks it.
"""

import contextlib
import re
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from ...cluster.streams import Streams
from ...errors import first_line
from ...tf_config import ClusterSpec, build_tf_config, join_address, parse_tf_config
from ..handshake import ChannelLost
from ..local import Interrupted, Run
from ..settings import RunReport, RunSettings
from ..signals import Signals
from ..task_process import Print, RunningTask, TaskPlan, TaskProcess
from .compare import describe_machine
from .door import Door
from .guest import LOST_STATUS, Guest, Prepared, RemoteTask
from .lobby import ELASTIC_SECONDS, Lobby
from .reach import OpenPorts
from .settings import RendezvousSettings
from .spread import CheckpointSpread
from .trial import check_pairs, try_pairs

FINISH_SECONDS = 3.0  # for members to hear how the run has ended
WORKER = re.compile(r"\bworker \d+")
AGAIN_SECONDS = 2.0  # for more people who meet, once they start again


@dataclass(frozen=True)
class Presence:
    """One machine of a run as its host sees it: what it is called, and its task, None if it waits.

    `status` is the task's, None while it runs; `lost` says why the machine is, `silent_seconds`
    for how long nothing has been heard of it.
    """

    name: str
    address: str
    task: str | None = None
    status: int | None = None
    lost: str | None = None
    silent_seconds: float = 0.0


class HostedRun(Run):
    """A run at a rendezvous, of which this machine is the host."""

    def __init__(
        self, command: list[str], settings: RunSettings, rendezvous: RendezvousSettings,
        listener: socket.socket, code: str, show: Print, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(command, settings, show, self._say_everywhere)
        self._say_here = say
        self._rendezvous = rendezvous
        self._own_seats = min(rendezvous.local_workers, settings.workers)
        self.address = rendezvous.advertise_address or listener.getsockname()[0]
        about = describe_machine(command, settings, rendezvous.gathering)
        self._about = about | {"address": self.address}
        self.lobby = Lobby(about["same"], say)
        if rendezvous.gathering is not None:
            self.lobby.try_out = lambda guest: try_pairs(self._about, [guest])
            self.lobby.own_name = self._about["host"]
        self._places: dict[str, tuple[Guest, int]] = {}  # of tasks elsewhere: who, which seat
        self._ports: OpenPorts | None = None
        folder = settings.checkpoint_dir
        self._spread = CheckpointSpread(folder, self.lobby, say) if folder else None
        self._door = Door(listener, code, self.lobby.welcome)

    def run(self) -> RunReport:
        try:
            report = super().run()
            if self._spread is not None:
                self._spread.hand_out_last()
            self._tell_end(report=asdict(report))
            return report
        except BaseException as error:
            self._tell_end(error=first_line(error) or type(error).__name__)
            raise
        finally:
            self._door.close()
            self._release_ports()
            for guest in self.lobby.guests:
                guest.channel.close()
            if self._spread is not None:
                self._spread.close()

    def _say_everywhere(self, text: str) -> None:
        """Say it here and on every other machine: who waits for whom, what has failed."""
        if self._rendezvous.gathering is not None:
            text = WORKER.sub(lambda found: self._name_owner(found[0]), text)
        self._say_here(text)
        for guest in self.lobby.guests:
            with contextlib.suppress(ChannelLost):
                guest.send("say", text=text)

    def _name_owner(self, task: str) -> str:
        """Return what the people call the machine of a task."""
        return self._places[task][0].host if task in self._places else self._about["host"]

    def look(self) -> list[Presence]:
        """Return who is here now: each task of the last start, then who waits for a place."""
        tasks = dict(self.attempt.tasks) if self.attempt is not None else {}
        found = [self._look_at(name, task) for name, task in tasks.items()]
        seated = {id(task.guest) for task in tasks.values() if isinstance(task, RemoteTask)}
        waiting = [guest for guest in self.lobby.guests if id(guest) not in seated]
        return found + [Presence(guest.host, guest.address) for guest in waiting]

    def _look_at(self, name: str, task: RunningTask) -> Presence:
        if not isinstance(task, RemoteTask):
            return Presence(self._about["host"], self.address, name, task.status)
        guest = task.guest
        silent = time.monotonic() - guest.channel.heard_at
        return Presence(guest.host, guest.address, name, task.status, guest.lost, silent)

    def _tell_end(self, **data: object) -> None:
        """Tell every member how the run has ended, and give it time to hear that."""
        guests = self.lobby.guests
        for guest in guests:
            with contextlib.suppress(ChannelLost):
                guest.send("finish", **data)
        self.lobby.wait_until(lambda: all(guest.lost for guest in guests), FINISH_SECONDS)

    def _plan_tasks(self, signals: Signals) -> list[TaskPlan]:
        """Hold rounds until one is complete; return the plan of every task."""
        self.lobby.is_running = False
        while True:
            crew = self._gather(lambda: signals.number)
            if signals.number:
                raise Interrupted
            try:
                plans = self._hold_round(crew)
            except ChannelLost as lost:
                self._say(f"a machine was lost meanwhile, which {lost}: another round")
                continue
            self.lobby.is_running = True
            return plans

    def _gather(self, stop: Callable[[], int]) -> list[tuple[Guest, int]]:
        """Return who takes part. People who meet are all waited for, before they have begun."""
        most, seconds = self.settings.workers, self._rendezvous.join_seconds
        gathering = self._rendezvous.gathering
        if gathering is None or self.attempt is not None:
            least = self.settings.min_workers or most
            settle = ELASTIC_SECONDS if gathering is None else AGAIN_SECONDS
            return self.lobby.gather(self._own_seats, least, most, seconds, stop, settle)
        wanted = self._own_seats, min(2, most), most, seconds, stop
        return self.lobby.gather(*wanted, seconds, gathering.begin.is_set)

    def _hold_round(self, crew: list[tuple[Guest, int]]) -> list[TaskPlan]:
        """Raises ChannelLost where a member is lost meanwhile, RunError where it cannot be done."""
        ps = self.settings.ps
        self._release_ports()
        self._gpus = self.settings.divide_gpus(self._own_seats)
        self._ports = OpenPorts(self.address, self._own_seats + ps + bool(ps))
        for guest, seats in crew:
            guest.send("prepare", seats=seats)
        ready = [guest.wait_prepared(seats) for guest, seats in crew]
        guests = [guest for guest, _ in crew]
        check_pairs(self._about, self._ports, guests, ready, self._say)
        if self._spread is not None:
            self._spread.bring(guests, [each.copy for each in ready])
        cluster = self._make_cluster(crew, ready)
        self._release_ports()
        return [self._plan_task(cluster, job, index) for job, index in cluster.tasks]

    def _make_cluster(self, crew: list[tuple[Guest, int]], ready: list[Prepared]) -> ClusterSpec:
        """Return the cluster: the coordinator, servers and first workers here, the rest in turn."""
        own = [join_address(self.address, port) for port in self._ports.ports]
        ps, chief = self.settings.ps, bool(self.settings.ps)
        workers, self._places = own[: self._own_seats], {}
        for (guest, _), each in zip(crew, ready):
            for seat, port in enumerate(each.ports):
                self._places[f"worker {len(workers)}"] = guest, seat
                workers.append(join_address(guest.address, port))
        self.workers = len(workers)
        rest = own[self._own_seats :]
        return ClusterSpec(tuple(rest[:chief]), tuple(workers), tuple(rest[chief : ps + chief]))

    def _plan_task(self, cluster: ClusterSpec, job: str, index: int) -> TaskPlan:
        if f"{job} {index}" not in self._places:
            return super()._plan_task(cluster, job, index)
        guest, _ = self._places[f"{job} {index}"]
        config = parse_tf_config(build_tf_config(cluster, job, index))
        return TaskPlan(config, self.command, {}, f"{guest.logs}/{job}-{index}.log")

    def _start_task(
        self, plan: TaskPlan, streams: Streams, show: Print, on_end: Callable[[RunningTask], None]
    ) -> RunningTask:
        if plan.name not in self._places:
            return TaskProcess(plan, streams, show, on_end)
        guest, seat = self._places[plan.name]
        task = guest.tasks[plan.name] = RemoteTask(plan, guest, show, on_end)
        with contextlib.suppress(ChannelLost):  # the task is then lost, as it may be at any time
            guest.send("start", tf_config=plan.config.to_json(), seat=seat, restart=self.restarts,
                       handout=self.settings.handout or "")  # fmt: skip
        if guest.lost:
            task.finish(LOST_STATUS, [], guest.lost)
        return task

    def _release_ports(self) -> None:
        if self._ports is not None:
            self._ports.release()
