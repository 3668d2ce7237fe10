"""Run on several machines: the one that owns the address hosts, the others join.

    report = run_at_rendezvous(["python", "train.py"], RunSettings(workers=4),
                               RendezvousSettings("192.168.1.10:2950", trust_network=True))

The same call, or the same line of `distlab run`, on each machine. Configuration is all that
travels (and copies of the checkpoint): every machine runs the program that it has.

TensorFlow's own ports are open while the run lasts. A worker in its own network namespace,
behind relays that prove a key to each other, was tried on one machine: it trains, small
all-reduces cost nothing that could be seen, one of 25.6 MB took 285 ms in place of 136. It isn't
done, as a program in there loses every other network: its data, name lookup, NCCL's own sockets.

| module | what it holds |
|---|---|
| `settings` | where to meet; the warning beyond loopback |
| `code`, `channel` | the code; who is let in, and the frames between machines |
| `compare`, `reach`, `trial` | what must be the same; who reaches whom, and why not |
| `names` | names that people gave their machines, fit to be shown |
| `calling`, `member`, `lines`, `fetching` | a machine that joins |
| `host`, `lobby`, `guest` | the machine that hosts: its launcher, and members as it sees them |
| `trial_host` | the same for a test of connections alone |
| `copies`, `spread` | copies of the checkpoint folder, and how they get everywhere |
"""

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...cluster.signals import Signals
from ...errors import InputError, RunError
from ...files import make_folder
from ...measure import count
from ...processes.connection import split_address
from ..programs import Print, Say, say_word, show_line
from ..settings import RunReport, RunSettings, check_command, make_logs_folder
from .calling import NoHost, check_host, connect_to_host
from .code import ask_for_code, make_code, read_code
from .host import HostedRun
from .member import HostLost, Member, RefusedByHost
from .settings import Gathering as Gathering
from .settings import RendezvousSettings as RendezvousSettings
from .settings import check_meeting, check_rank, confirm_trust, is_own_host, open_address

NOT_NEEDED_STATUS = 75  # as temporary failures have it


def run_at_rendezvous(
    command: Sequence[str],
    settings: RunSettings,
    rendezvous: RendezvousSettings,
    show: Print = show_line,
    say: Say = say_word,
) -> RunReport:
    """Run `command` as tasks of a cluster whose machines meet at an address; report its end.

    The machine that owns the address hosts: it shows a code, which the others are asked
    for (or read from the variable DISTLAB_CODE), and runs worker 0. All return the
    same report. Otherwise as `run_program`. Raises InputError for what can't be, RunError
    where machines differ or don't reach each other, or the host is lost.
    """
    command = check_command(command)
    check_meeting(settings, rendezvous)
    if settings.checkpoint_dir is not None:
        make_folder("checkpoint-dir", Path(settings.checkpoint_dir))
    listener = open_address(rendezvous.address)
    try:
        check_rank(rendezvous.node_rank, listener is not None)
        confirm_trust(rendezvous.address, rendezvous.trust_network, say)
        if listener is None:
            with naming_a_taken_port(rendezvous.address):
                code = ask_for_code(lambda: check_host(rendezvous.address))
                return join_rendezvous(command, settings, rendezvous, code, show, say)
        given = read_code()
        code = given or make_code()
        run = HostedRun(command, settings, rendezvous, listener, code, show, say)
    except BaseException:
        if listener is not None:
            listener.close()
        raise
    say(f"hosting at {rendezvous.address}; type the same line on every other machine")
    if given is None:
        say(f"the code is {code}")
    return run.run()


@contextlib.contextmanager
def naming_a_taken_port(address: str) -> Iterator[None]:
    """Say what else a refusal may mean where `address` is this machine's own, and taken."""
    try:
        yield
    except (InputError, RefusedByHost) as error:
        if isinstance(error, NoHost) or not is_own_host(split_address(address)[0]):
            raise
        raise type(error)(
            f"{error} Another program of this machine already listens at {address}. To host a run "
            "yourself, name another port."
        ) from None


def join_rendezvous(
    command: Sequence[str],
    settings: RunSettings,
    rendezvous: RendezvousSettings,
    code: str,
    show: Print,
    say: Say,
) -> RunReport:
    """Take part in a run that another machine hosts; return its report, as `Member.run` does.

    If the host is lost, it is called again, unless people meet, who decide for themselves. The
    status of a machine that was never needed is 75.
    """
    if settings.checkpoint_dir is not None:  # here too, as a class joins without a command
        make_folder("checkpoint-dir", Path(settings.checkpoint_dir))
    logs, lost, was_needed, identity = None, None, False, secrets.token_hex(8)
    with Signals() as signals:
        while True:
            try:
                channel = connect_to_host(rendezvous, code, say, signals, lost is not None)
            except RunError as error:
                raise lost or error from None
            if channel is None:
                say(f"{signals.name}: stopped while waiting for the host")
                return RunReport(settings.workers, 0, 0.0, [], None, 128 + signals.number)
            try:
                logs = logs or make_logs_folder(settings.logs, settings.run_id)
                what = list(command), settings, rendezvous, logs
                member = Member(channel, *what, show, say, identity)
            except BaseException:
                channel.close()
                raise
            try:
                report = member.run(signals)
            except HostLost as error:
                lost, was_needed = error, was_needed or member.was_needed
                if rendezvous.gathering is not None:
                    raise
                say(str(error))
                say(f"calling the host again for {rendezvous.join_seconds:g} s")
                continue
            if was_needed or member.was_needed or report.status or rendezvous.gathering:
                return report
            say(f"this machine wasn't needed: the run had its {count(report.workers, 'worker')}")
            return replace(report, status=NOT_NEEDED_STATUS)
