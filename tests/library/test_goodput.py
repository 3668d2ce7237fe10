"""Where a run's wall time went, from events: useful, waiting, restarting, trained twice."""

from utils.goodput import measure_goodput


def tell(task, kind, time, attempt=1, **fields):
    return {"event": kind, "task": task, "time": time, "attempt": attempt, **fields}


def tell_steps(task, *moments, attempt=1):
    """Return the events of steps, each (number, batch, ready, step); None isn't reported."""
    return [
        tell(task, kind, time, attempt, **({"step": number} if kind == "step" else {}))
        for number, *times in moments
        for kind, time in zip(("batch", "ready", "step"), times)
        if time is not None
    ]


def shares(found):
    return [round(found.seconds * getattr(found, name), 6) for name in NAMES]


NAMES = ("useful", "waiting", "restarting", "repeated", "rest")


def test_a_worker_waits_for_the_slower_one_at_the_all_reduce_and_for_its_next_batch():
    quick = tell_steps("worker 0", (1, 1.0, 2.0, 4.0), (2, 5.0, 6.0, 7.0))
    slow = tell_steps("worker 1", (1, 1.0, 3.5, 4.0), (2, 4.5, 6.0, 7.0))
    found = measure_goodput(quick + slow, begun=0.0, ended=7.0)
    # of worker 0: 1 s + 0.5 s and 2 s; of worker 1: 3 s and 2.5 s
    assert shares(found) == [4.5, (1.5 + 1.0 + 0.5) / 2, 0.0, 0.0, 1.0]
    assert found.steps_repeated == 0
    assert str(found) == (
        "useful 64%, waiting 21%, restarting 0%, repeated 0%, rest 14%; 0 steps trained twice"
    )


def test_steps_after_the_checkpoint_are_trained_twice_and_a_restart_costs_its_time():
    events = [
        *tell_steps("worker 0", *((n, None, None, float(n)) for n in range(1, 8))),
        tell("worker 0", "restart", 7.5, attempt=2, cause="SIGKILL"),
        tell("worker 0", "restore", 9.5, attempt=2, step=5),
        *tell_steps("worker 0", (6, 10.0, None, 11.0), (7, 11.0, None, 12.0), attempt=2),
    ]
    found = measure_goodput(events, begun=0.0)
    # 5 steps and 2 steps; 6 and 7 of attempt 1, and half a step that the restart cut short
    assert shares(found) == [6.0, 0.0, 2.0, 2.5, 1.5] and found.steps_repeated == 2
    killed = [{"event": "SIGKILL", "task": "worker 0", "time": 7.1, "attempt": 1}]
    assert shares(measure_goodput(events, killed, begun=0.0)) == [6.0, 0.0, 2.4, 2.1, 1.5]


def test_a_file_of_one_process_tells_the_attempts_by_what_it_resumes_from():
    events = [{"event": "step", "step": n, "time": t} for n, t in ((1, 1.0), (2, 2.0), (3, 3.0))]
    events += [{"event": "restore", "step": 2, "time": 5.0}]
    events += [{"event": "step", "step": n, "time": 3.0 + n} for n in (3, 4)]
    found = measure_goodput(events, begun=0.0)
    assert shares(found) == [3.0, 0.0, 2.0, 1.0, 1.0] and found.steps_repeated == 1
    for event in events:
        event["event"] = event["event"].replace("restore", "restart")
    assert measure_goodput(events, begun=0.0).steps_repeated == 1


def test_a_paused_worker_waits_and_saving_is_neither():
    events = tell_steps("worker 0", (1, 0.0, 1.0, 6.0), (2, 8.0, 9.0, 10.0))
    events += [tell("worker 0", "saving", 6.0, step=1), tell("worker 0", "checkpoint", 7.5, step=1)]
    pauses = [
        {"event": kind, "task": "worker 0", "time": time, "attempt": 1}
        for kind, time in (("pause", 0.5), ("resume", 0.75), ("pause", 2.0), ("resume", 5.0))
    ]
    # until 5.0 it waits in the all-reduce; 0.25 s of its computing it stood still
    found = measure_goodput(events, pauses)
    assert shares(found) == [0.75 + 1.0 + 2.0, 4.0 + 0.25 + 0.5, 0.0, 0.0, 1.5]


def test_what_was_computed_when_the_run_was_stopped_in_the_all_reduce_is_not_trained_twice():
    events = tell_steps("worker 0", (1, 0.0, 1.0, 2.0), (2, 3.0, 4.0, None))
    events += tell_steps("worker 1", (1, 0.0, 1.0, 2.0), (2, 2.0, None, None))
    found = measure_goodput(events, begun=0.0, ended=8.0)
    # of worker 0: 2 s, 1 s of waiting for its batch, 1 s and 4 s; of worker 1: 2 s and 6 s
    assert shares(found) == [(3.0 + 8.0) / 2, (1.0 + 4.0) / 2, 0.0, 0.0, 0.0]
    killed = [{"event": "SIGKILL", "task": "worker 0", "time": 5.0, "attempt": 1}]
    assert shares(measure_goodput(events, killed, begun=0.0, ended=8.0))[3] == 1.0 / 2


def test_a_worker_that_left_while_it_waited_is_not_known_to_compute():
    events = tell_steps("worker 0", (1, 0.0, 1.0, 2.0), (2, 2.0, 3.0, None))
    found = measure_goodput([*events, tell("worker 0", "end", 4.0)], ended=10.0)
    assert shares(found) == [2.0, 0.0, 0.0, 0.0, 8.0]


def test_no_steps_yet():
    found = measure_goodput([tell("worker 0", "restore", 1.0, step=0)], begun=0.0, ended=2.0)
    assert shares(found) == [0.0, 0.0, 0.0, 0.0, 2.0]
