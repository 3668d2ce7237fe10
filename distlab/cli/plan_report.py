"""The printed output of `distlab plan`."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from utils.calibrate import LocalCheck, Prediction, Profile, Scenario
from utils.simulate.comparisons import find_bucket_error
from utils.simulate.planner import RunPlan
from utils.simulate.units import format_seconds

WAITS_FOR_INPUT = (
    "(100 % efficiency is a device that never waits. Here it waits for its input, on one device "
    "already.)"
)
TWO_NUMBERS = (
    "The network is two numbers, a latency and a rate. On nccl-tests' 2 x 8 A100 such a pair is up "
    "to {:.0%} too quick for buckets of 1 to 64 MiB. --network takes a measured table."
)
NO_PRICE = "No cost without --price (per device-hour)."
KEYS = ("devices", "step_seconds", "low", "high", "efficiency", "bottleneck", "hours", "cost")
CHECKED = ("workers", "predicted", "measured", "low", "high")


def summarize(profile: Profile, rows: list[Prediction], checks: list[LocalCheck]) -> dict[str, Any]:
    """Return what `--json` prints for a profile."""
    return {
        "profile": profile.to_dict(),
        "predictions": [{key: getattr(row, key) for key in (*KEYS, "advice")} for row in rows],
        "checks": [{key: getattr(check, key) for key in CHECKED} for check in checks],
    }


def tabulate(
    profile: Profile, rows: list[Prediction], checks: list[LocalCheck], scenario: Scenario
) -> str:
    """Return profile, checks and predictions as text."""
    machine = scenario.machine
    lines = [
        f"{profile.model}: {format_seconds(profile.compute_seconds)} a step of {profile.batch} on "
        f"one device, {profile.gradient_bytes / 1e6:,.4g} MB of gradients"
    ]
    if machine:
        lines.append(f"on {machine.name} at {scenario.mfu:.0%} of its peak ({machine.source})")
    for check in checks:
        seconds = map(format_seconds, (check.predicted, check.low, check.high, check.measured))
        words = "{} workers here: predicted {} ({} to {}), measured {}: {:+.0%}"
        lines.append(words.format(check.workers, *seconds, check.error))
    names = (name.removesuffix("_seconds") for name in KEYS)
    lines += ["", "".join(f"{name:>13}" for name in names)]
    lines += ["".join(f"{cell:>13}" for cell in list_cells(row)) for row in rows]
    lines += [f"{row.devices:,} devices: {row.advice}" for row in rows if row.advice]
    if any(row.bottleneck == "input" for row in rows):
        lines += ["", WAITS_FOR_INPUT]
    network = scenario.network or (machine and machine.network)
    return "\n".join([*lines, *note(scenario.price, network and network.measured)])


def list_cells(row: Prediction) -> list[str]:
    """Return a row of the table; dashes for a run that doesn't fit."""
    seconds = [form(value, format_seconds) for value in (row.step_seconds, row.low, row.high)]
    bill = [form(row.hours), form(row.cost)]
    return [
        f"{row.devices:,}",
        *seconds,
        form(row.efficiency, "{:.1%}".format),
        row.bottleneck,
        *bill,
    ]


def form(value: float | None, shape: Callable[[float], str] = "{:,.4g}".format) -> str:
    return "-" if value is None else shape(value)


def note(price: float | None, measured: object) -> list[str]:
    """Return notes for the reader: a missing price, and what two numbers leave out."""
    notes = [NO_PRICE] * (price is None)
    return ["", *notes, *([] if measured else [TWO_NUMBERS.format(-find_bucket_error())])]


def summarize_plans(plans: list[RunPlan], explain: bool) -> dict[str, Any]:
    """Return what `--json` prints for a shape."""
    model, told = plans[0].model, []
    for plan in plans:
        counts = {
            key: getattr(plan, key) for key in ("devices", "global_batch", "tried", "fitting")
        }
        told.append(counts | {"best": plan.tabulate()})
        if explain:
            told[-1]["explanation"] = [list(row) for row in plan.explain()]
    flops = ("flops_per_token", "attention_flops_per_token")
    return {"model": asdict(model) | {key: getattr(model, key) for key in flops}, "plans": told}


def tabulate_plans(plans: list[RunPlan], explain: bool) -> str:
    """Return the model, and for each size its quickest layouts."""
    model = plans[0].model
    guessed = f" (not stated: {', '.join(model.guessed)})" * bool(model.guessed)
    lines = [
        f"{model.parameters:.4g} parameters: {model.layers} layers of {model.hidden:,}, sequences "
        f"of {model.sequence:,}, vocabulary {model.vocabulary:,}{guessed}",
        f"FLOPs per token: {model.flops_per_token:.4g} (6 N) + "
        f"{model.attention_flops_per_token:.4g} (attention)",
    ]
    for plan in plans:
        lines += ["", *list_plan(plan)]
        if explain:
            lines += ["", *(f"{name:<21}{value:<24}{why}" for name, value, why in plan.explain())]
    machine = plans[0].machine
    inside = all(plan.devices <= machine.ranks_per_node for plan in plans)
    measured = machine.network and machine.network.measured
    return "\n".join([*lines, *note(plans[0].run.price, inside or measured)])


def list_plan(plan: RunPlan) -> Iterator[str]:
    """Yield the lines of one size: how it was chosen, and its layouts."""
    machine, joined = plan.machine, ""
    if plan.devices > machine.ranks_per_node and machine.network:
        gigabits = machine.network.link.bandwidth_bytes_per_second * 8e-9
        joined = f", {machine.ranks_per_node} a node, {gigabits:,.4g} Gb/s for each node"
    yield (
        f"{plan.devices:,} {machine.name}{joined}; {plan.global_batch:,} sequences a step; "
        f"{plan.fitting:,} of {plan.tried:,} layouts fit"
    )
    yield f"{'step':>10}{'MFU':>8}{'hours':>10}{'cost':>12}{'GB':>7}  {'bottleneck':<15} layout"
    for cost in plan.best:
        hours, bill = (
            form(v, "{:,.1f}".format) for v in (plan.find_hours(cost), plan.find_cost(cost))
        )
        yield (
            f"{format_seconds(cost.step_seconds):>10}{plan.find_mfu(cost):>8.1%}{hours:>10}"
            f"{bill:>12}{cost.memory.total / 1e9:>7.1f}  {cost.bottleneck:<15} {cost.layout}"
        )
