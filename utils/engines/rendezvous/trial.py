"""Ask each machine of a run if it reaches all others, and say so in words."""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from statistics import median
from typing import Any

from ...errors import RunError
from .guest import Guest, Opened
from .reach import OpenPorts, explain_unreachable, measure_rate, try_all

Ways = dict[tuple[int, int], str]  # caller and called, by number (0 is the host) -> why not


def check_pairs(
    own: Mapping[str, Any],
    ports: OpenPorts,
    guests: Sequence[Guest],
    ready: Sequence[Opened],
    say: Callable[[str], None],
) -> None:
    """Have every machine try the ports of every other one; `own` is what this one says of itself.

    Raises RunError that names a blocked route; `say` gets a line for each other route.
    """
    words = describe_ways(
        [own, *(guest.about for guest in guests)], find_closed(own, ports, guests, ready)
    )
    for each in words[1:]:
        say(each)
    if words:
        ways = len(guests) * (len(guests) + 1)
        raise RunError(f"{len(words)} of {ways} connections between machines fail: {words[0]}")


def measure_pairs(
    own: Mapping[str, Any], ports: OpenPorts, guests: Sequence[Guest], ready: Sequence[Opened]
) -> dict[tuple[int, int], float]:
    """Return how fast each machine sends to each other one, in bytes/s; one after the other.

    Machines have the numbers of `Ways`. Raises ChannelLost where one is lost meanwhile.
    """
    machines = [own, *(guest.about for guest in guests)]
    opened = [(ports.ports, ports.token), *((each.ports, each.token) for each in ready)]
    rates = {}
    for caller, called in permutations(range(len(machines)), 2):
        target = machines[called]["address"], opened[called][0][0], opened[called][1]
        if caller:
            guests[caller - 1].ask("measure", target=target)
            rates[caller, called] = guests[caller - 1].wait_measured()
        else:
            rates[caller, called] = measure_rate(*target)
    return rates


def describe_rates(names: Sequence[str], rates: Mapping[tuple[int, int], float]) -> list[str]:
    """Return the table of GB/s as lines, then a line for each way that is slower than the others.

    That is less than half the median.
    """
    width = max(8, *map(len, names))
    lines = ["GB/s, from the row's machine to the column's machine"]
    lines.append(" ".join(word.rjust(width) for word in ("", *names)))
    for row, name in enumerate(names):
        cells = [rates.get((row, column)) for column in range(len(names))]
        words = [name, *("" if rate is None else f"{rate / 1e9:.3g}" for rate in cells)]
        lines.append(" ".join(word.rjust(width) for word in words).rstrip())
    usual = median(rates.values())
    for (caller, called), rate in rates.items():
        if rate < usual / 2:
            words = f"{names[caller]} sends {rate / 1e9:.3g} GB/s to {names[called]}"
            lines.append(f"slow link: {words}, but the median is {usual / 1e9:.3g} GB/s")
    return lines


def try_pairs(own: Mapping[str, Any], guests: Sequence[Guest]) -> list[str]:
    """Have every machine open one port and try all others'. Return a line on each closed way.

    Raises ChannelLost where one is lost meanwhile, RunError where it can open none.
    """
    ports = OpenPorts(own["address"], 1)
    try:
        for guest in guests:
            guest.ask("prepare", seats=1)
        ready = [guest.wait_prepared(1) for guest in guests]
        closed = find_closed(own, ports, guests, ready)
    finally:
        ports.release()
    return describe_ways([own, *(guest.about for guest in guests)], closed)


def find_closed(
    own: Mapping[str, Any],
    ports: OpenPorts,
    guests: Sequence[Guest],
    ready: Sequence[Opened],
) -> Ways:
    """Return the blocked routes between machines, and why."""
    machines = [own, *(guest.about for guest in guests)]
    opened = [(ports.ports, ports.token), *((each.ports, each.token) for each in ready)]
    targets = [
        [(machine["address"], port, token, number) for port in ports]
        for number, (machine, (ports, token)) in enumerate(zip(machines, opened))
    ]
    tried = [  # by caller: host, port, token and number of the called machine
        [target for row in targets[:caller] + targets[caller + 1 :] for target in row]
        for caller in range(len(machines))
    ]
    for guest, its in zip(guests, tried[1:]):
        guest.ask("probe", targets=[target[:3] for target in its])
    answers = [try_all([target[:3] for target in tried[0]])]
    answers += [guest.wait_reached(len(its)) for guest, its in zip(guests, tried[1:])]
    return {
        (caller, target[3]): why
        for caller, told in enumerate(answers)
        for target, why in zip(tried[caller], told)
        if why
    }


def describe_ways(machines: Sequence[Mapping[str, Any]], closed: Ways) -> list[str]:
    return [explain_unreachable(why, machines[a], machines[b]) for (a, b), why in closed.items()]
