"""The machine that hosts a rendezvous: a run whose tasks are on several machines.

Before each attempt there is a round: who is here takes a place in the order of joining (the
host first, so that worker 0 runs here), every machine opens its ports and tries all others',
and the newest copy of the checkpoint goes to every machine that lacks it.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from ...cluster.streams import Streams
from ...errors import RunError, first_line
from ...tf_config import ClusterSpec, build_tf_config, parse_tf_config
from ..local import Interrupted, Run
from ..settings import RunReport, RunSettings
from ..signals import Signals
from ..task_process import Print, RunningTask, TaskPlan, TaskProcess
from .channel import ChannelLost
from .compare import describe_machine
from .copies import CheckpointCopy, Copy
from .door import Door
from .guest import LOST_STATUS, Guest, Prepared, RemoteTask
from .lobby import Lobby
from .reach import OpenPorts, explain_unreachable, try_all
from .settings import RendezvousSettings

LOOK_SECONDS = 0.25  # between two looks at the checkpoint folder
COPY_SECONDS = 600.0  # for every machine to have the newest copy, before an attempt
LAST_SECONDS = 60.0  # for them to have the last one, once the tasks have ended
FINISH_SECONDS = 3.0  # for members to hear how the run has ended


class HostedRun(Run):
    """A run at a rendezvous, of which this machine is the host."""

    def __init__(
        self, command: list[str], settings: RunSettings, rendezvous: RendezvousSettings,
        listener: socket.socket, code: str, show: Print, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(command, settings, show, say)
        self._rendezvous = rendezvous
        self._own_seats = min(rendezvous.workers_here, settings.workers)
        self.address = rendezvous.own_address or listener.getsockname()[0]
        about = describe_machine(command, settings)
        self._about = about | {"address": self.address}
        self._lobby = Lobby(about["same"], say)
        self._places: dict[str, tuple[Guest, int]] = {}  # of tasks elsewhere: who, which seat
        self._ports: OpenPorts | None = None
        folder = settings.checkpoint_dir
        self._copy = CheckpointCopy(folder, is_origin=True) if folder else None
        if self._copy is not None:
            self._lobby.read_piece = self._copy.read_piece
        self._over = threading.Event()
        self._door = Door(listener, code, self._lobby.welcome)

    def run(self) -> RunReport:
        copier = threading.Thread(target=self._hand_out_copies, daemon=True)
        try:
            copier.start()
            report = super().run()
            self._hand_out_last()
            self._tell_end(report=asdict(report))
            return report
        except BaseException as error:
            self._tell_end(error=first_line(error) or type(error).__name__)
            raise
        finally:
            self._over.set()
            self._door.close()
            self._release_ports()
            for guest in self._lobby.guests:
                guest.channel.close()
            copier.join(5)

    def _tell_end(self, **data: object) -> None:
        """Tell every member how the run has ended, and give it time to hear that."""
        guests = self._lobby.guests
        for guest in guests:
            with contextlib.suppress(ChannelLost):
                guest.send("finish", **data)
        self._lobby.wait_until(lambda: all(guest.lost for guest in guests), FINISH_SECONDS)

    def _plan_tasks(self, signals: Signals) -> list[TaskPlan]:
        """Hold rounds until one is complete; return the plan of every task."""
        self._lobby.is_running = False
        while True:
            least = self.settings.min_workers or self.settings.workers
            crew = self._lobby.gather(
                self._own_seats, least, self.settings.workers,
                self._rendezvous.join_seconds, lambda: signals.number,
            )  # fmt: skip
            if signals.number:
                raise Interrupted
            try:
                plans = self._hold_round(crew)
            except ChannelLost as lost:
                self._say(f"a machine was lost meanwhile, which {lost}: another round")
                continue
            self._lobby.is_running = True
            return plans

    def _hold_round(self, crew: list[tuple[Guest, int]]) -> list[TaskPlan]:
        """Raises ChannelLost where a member is lost meanwhile, RunError where it cannot be done."""
        ps = self.settings.ps
        self._release_ports()
        self._gpus = self.settings.divide_gpus(self._own_seats)
        self._ports = OpenPorts(self.address, self._own_seats + ps + bool(ps))
        for guest, seats in crew:
            guest.send("prepare", seats=seats)
        ready = [guest.wait_prepared(seats) for guest, seats in crew]
        self._check_pairs([guest for guest, _ in crew], ready)
        if self._copy is not None:
            self._bring_copies([guest for guest, _ in crew], ready)
        cluster = self._make_cluster(crew, ready)
        self._release_ports()
        return [self._plan_task(cluster, job, index) for job, index in cluster.tasks]

    def _check_pairs(self, guests: list[Guest], ready: list[Prepared]) -> None:
        """Every machine tries the ports of every other one; raises RunError for those that fail."""
        machines = [self._about, *(guest.about for guest in guests)]
        opened = [(self._ports.ports, self._ports.token)]
        opened += [(each.ports, each.token) for each in ready]
        targets = [
            [(machine["address"], port, token, number) for port in ports]
            for number, (machine, (ports, token)) in enumerate(zip(machines, opened))
        ]
        tried = [  # by caller: host, port, token and number of the machine that is called
            [target for row in targets[:caller] + targets[caller + 1 :] for target in row]
            for caller in range(len(machines))
        ]
        for guest, its in zip(guests, tried[1:]):
            guest.send("probe", targets=[target[:3] for target in its])
        answers = [try_all([target[:3] for target in tried[0]])]
        answers += [guest.wait_reached(len(its)) for guest, its in zip(guests, tried[1:])]
        closed = {
            (caller, target[3]): why
            for caller, told in enumerate(answers)
            for target, why in zip(tried[caller], told)
            if why
        }
        if closed:
            self._refuse_closed(machines, closed)

    def _refuse_closed(
        self, machines: list[dict[str, Any]], closed: dict[tuple[int, int], str]
    ) -> NoReturn:
        words = [
            explain_unreachable(why, machines[a], machines[b]) for (a, b), why in closed.items()
        ]
        for each in words[1:]:
            self._say(each)
        ways = len(machines) * (len(machines) - 1)
        raise RunError(f"{len(words)} of {ways} ways between machines are closed: {words[0]}")

    def _bring_copies(self, guests: list[Guest], ready: list[Prepared]) -> None:
        """Every machine gets the newest copy of the checkpoint, from wherever it is."""
        own = self._copy.find_state()
        states = [each.copy for each in ready]
        for guest, state in sorted(zip(guests, states), key=lambda pair: -pair[1].number):
            if state.number > own.number and self._fetch_from(guest, state):
                own = state
        rivals = [state for state in states if state.number >= own.number and state != own]
        if rivals and own.number:
            own = self._copy.raise_number(max(state.number for state in rivals) + 1)
        lacking = [
            g for g, s in zip(guests, states) if (s.number, s.files) != (own.number, own.files)
        ]
        if not own.number or not lacking:
            return
        self._say(f"the checkpoint ({own.bytes} bytes) goes to {len(lacking)} machines")
        self._offer(own, lacking)
        done = self._lobby.wait_until(lambda: all(_has(g, own) for g in lacking), COPY_SECONDS)
        for guest in lacking:
            if guest.lost:
                raise ChannelLost(guest.lost)
            if guest.copy_error or not done:
                why = guest.copy_error or f"no copy within {COPY_SECONDS:.0f} s"
                raise RunError(f"{guest.host} has no copy of the checkpoint: {why}")

    def _fetch_from(self, guest: Guest, state: Copy) -> bool:
        self._say(
            f"the newest checkpoint is the copy on {guest.host} ({state.bytes} bytes): the run "
            "goes on from it; to start over, empty the folder on every machine"
        )
        return self._copy.fetch(state, guest.pieces.ask)

    def _hand_out_last(self) -> None:
        """Once the tasks have ended: what they saved last goes to every machine that is there."""
        last = self._copy.find_state() if self._copy is not None else Copy()
        guests = self._lobby.guests if last.number else []
        self._offer(last, guests)
        if not self._lobby.wait_until(lambda: all(_has(g, last) for g in guests), LAST_SECONDS):
            self._say("not every machine has a copy of the last checkpoint")

    def _offer(self, copy: Copy, guests: Sequence[Guest]) -> None:
        for guest in guests:
            guest.copy_error = ""
            with contextlib.suppress(ChannelLost):
                guest.send("offer", **copy.to_data())

    def _hand_out_copies(self) -> None:
        """In a thread, while tasks run: each new state of the folder goes to every machine."""
        while self._copy is not None and not self._over.wait(LOOK_SECONDS):
            if self._lobby.is_running and (copy := self._copy.look()) is not None:
                self._offer(copy, self._lobby.guests)

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
            guest.send("start", tf_config=plan.config.to_json(), seat=seat, restart=self.restarts)
        if guest.lost:
            task.finish(LOST_STATUS, [], guest.lost)
        return task

    def _release_ports(self) -> None:
        if self._ports is not None:
            self._ports.release()


def _has(guest: Guest, copy: Copy) -> bool:
    """Whether the guest has the copy, or will not get it."""
    return bool(guest.lost or guest.copy_error) or guest.copied >= copy.number


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
