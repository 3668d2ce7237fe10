"""The cockpit on real jobs: lanes that follow, buttons that act, marks, bytes, the still."""

import json
import math
import os
import re
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from process_watch import wait_for

from distlab.explorables import cockpit, cockpit_chaos
from distlab.explorables.cockpit_book import JobBook
from distlab.explorables.cockpit_lanes import name_states
from distlab.explorables.cockpit_story import list_flags, list_lost, list_spans
from distlab.figures import draw_stage
from distlab.figures.lanes import (
    MAX_POINTS,
    Flag,
    LaneRecord,
    Mark,
    StageRecord,
    find_runs,
)
from utils.cluster import ClusterError, LocalCluster
from utils.cluster.group import Task
from utils.cluster.launcher import TaskOrder
from utils.cluster.supervisor import Supervisor
from utils.cluster.traffic import TrafficMeter
from utils.goodput import StepGroup, TaskSpan, TaskStory
from utils.training.recovery import RecoverySettings, train_with_recovery

FLOATS = 50_000


def count_down(folder, steps, own_count=False, hold=0):
    """Steps that all-reduce FLOATS numbers; a saved step to go on from; a loss of 1 / step.

    Before step `hold`, what hasn't resumed waits for a file "go", or for its end.
    """
    import tensorflow as tf

    from utils.events import report

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    place = os.path.join(folder, "step")
    done = int(open(place).read()) if os.path.exists(place) else 0

    def give():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([FLOATS]))

    step = tf.function(lambda: strategy.run(give))
    for number in range(done + 1, steps + 1):
        while number == hold and not done and not os.path.exists(os.path.join(folder, "go")):
            time.sleep(0.05)
        report("ready")
        step()
        counted = {"sent_bytes": 4 * FLOATS * number} if own_count else {}
        report("step", step=number, loss=1 / number, images_per_second=1234.0, **counted)
        print(f"<b>step {number}</b>")
        print(f"E0000 00:00:1763{number}.1 12 cuda_platform.cc:52] failed call to cuInit")
        if index == 0 and number % 10 == 0:
            with open(place + ".part", "w") as file:
                file.write(str(number))
            os.replace(place + ".part", place)
            report("checkpoint", step=number)
        time.sleep(0.03)
    return done


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(workers=2) as cluster:
        yield cluster


def lanes_of(view):
    return {lane["name"]: lane for lane in view.data["lanes"]}


def step_of(view, name="worker 1"):
    found = re.match(r"step (\d+)", lanes_of(view)[name]["facts"])
    return int(found[1]) if found else 0


def press(view, action, task=""):
    """What the browser sends when a button is pressed."""
    count = view.options["press"]["count"] + 1
    move(view, press={"count": count, "action": action, "task": task})


def move(view, **options):
    view.options = {**view.options, **options}


def seconds_of(view, name, kind):
    return sum(end - start for start, end, what in lanes_of(view)[name]["spans"] if what == kind)


def test_a_worker_dies_and_comes_back_in_front_of_the_reader(cluster, tmp_path, monkeypatch):
    seen, let_peers_end = threading.Event(), Supervisor._let_peers_end

    def hold_peers(supervisor, group):
        let_peers_end(supervisor, group)
        assert seen.wait(120)

    monkeypatch.setattr(Supervisor, "_let_peers_end", hold_peers)
    job = cluster.start(count_down, str(tmp_path), 80, restarts=1, hold=30)
    view = cockpit(job)
    sent = []
    view.observe(lambda change: sent.append(time.monotonic()), names="data")
    wait_for(lambda: step_of(view) >= 23)
    can = {"kill": True, "pause": True, "restart": True, "slow": True}
    assert lanes_of(view)["worker 1"]["can"] == can
    press(view, "kill", "worker 1")
    wait_for(lambda: "worker 1 was killed" in view.data["message"])
    states = wait_for(lambda: "killed" in (s := [x["state"] for x in view.data["lanes"]]) and s)
    assert states == ["waiting", "killed"], "the other one stops, and only the killed row is red"
    seen.set()
    wait_for(lambda: "The whole group resumed" in view.data["message"])
    [done, same] = job.wait(240)
    wait_for(lambda: not view._thread.is_alive())

    killed = lanes_of(view)["worker 1"]
    at, back = re.fullmatch(
        r"✕ killed by you at step (\d+) · ↻ back at step (\d+)", killed["notes"]
    ).groups()
    assert 23 <= int(at) < 30 and int(back) == done + 1 == same + 1 == 21
    [used] = [step for _, step, used in lanes_of(view)["worker 0"]["flags"] if used]
    assert used == done, "the flag that the restart began at is lit"
    begun, lost_until = killed["lost"][0]
    steps = [e for e in job.history() if (e["event"], e["task"]) == ("step", "worker 1")]
    last = max(event["time"] for event in steps if event["attempt"] == 1)
    assert begun < lost_until == pytest.approx(last - view._book.begun, abs=1e-3)
    assert seconds_of(view, "worker 1", "down") > 0 and len(view.data["losses"]) == 2
    for lane in view.data["lanes"]:
        assert lane["words"] == "✔ done" and lane["state"] == "done"
        assert lane["facts"] == "step 80 · loss 0.0125 · 1,234\u00a0images/s"
        assert not any(lane["can"].values())
    assert "worker 1: <b>step 80</b>" in view.data["lines"] and "cuInit" not in view.data["lines"]
    assert "cuInit" in view.data["log"] and "lines)" in view.data["logWords"]
    assert view.data["status"] == "Job: done (attempt 2)" and view.data["finished"]
    assert all(b - a > 0.2 for a, b in zip(sent[::3], sent[3::3])), "four a second, and actions"
    press(view, "kill", "worker 0")
    wait_for(lambda: view.data["message"] == "The job has ended.")


def test_slow_down_pause_resume_restart_and_stop(cluster, tmp_path):
    job = cluster.start(count_down, str(tmp_path), 10_000)
    view = cockpit(job)
    wait_for(lambda: step_of(view) > 3)
    move(view, **{"slow worker 1": 400})
    before, waited = step_of(view), seconds_of(view, "worker 0", "wait")
    wait_for(lambda: step_of(view) >= before + 4)
    wait_for(lambda: seconds_of(view, "worker 0", "wait") > waited + 0.6)
    move(view, **{"slow worker 1": 0})
    wait_for(lambda: not job._supervisor.is_slow("worker 1"))
    view._obey({"slow worker 1": 400})  # a thread of the former move that is late
    assert not job._supervisor.is_slow("worker 1"), "the last move holds"
    press(view, "pause", "worker 0")
    wait_for(lambda: lanes_of(view)["worker 0"]["words"] == "❚❚ paused")
    wait_for(lambda: lanes_of(view)["worker 1"]["words"] == "◌ waiting for worker 0")
    assert lanes_of(view)["worker 0"]["pause"] == "resume"
    held = step_of(view)
    press(view, "resume", "worker 0")
    wait_for(lambda: step_of(view) > held + 2)
    assert lanes_of(view)["worker 0"]["pause"] == "pause"
    notes = lanes_of(view)["worker 0"]["notes"]
    assert re.fullmatch(r"❚❚ paused by you at step \d+ · ↻ resumed by you at step \d+", notes)
    assert seconds_of(view, "worker 0", "paused") > 0
    press(view, "restart", "worker 1")
    wait_for(lambda: "can't restart alone" in view.data["message"])
    assert "restarts=1" in view.data["message"] and not job.finished
    press(view, "stop")
    wait_for(lambda: view.data["finished"])
    assert view.data["status"] == "Job: stopped"
    assert {lane["words"] for lane in view.data["lanes"]} == {"■ stopped"}
    assert not any("killed" in lane["notes"] for lane in view.data["lanes"]), "that was the stop"
    press(view, "explode", "worker 1"), press(view, "kill", "worker x")
    with pytest.raises(ClusterError, match="was stopped"):
        job.wait(90)


def kind_at(view, name, moment):
    """What the lane shows at a moment, in seconds since the epoch."""
    spans = lanes_of(view)[name]["spans"]
    at = moment - view._book.begun
    return next((kind for start, end, kind in reversed(spans) if start <= at <= end), "nothing")


def last_seconds_of(view, name, kind):
    """How long the task has been doing what its lane shows last; 0 if that is another kind."""
    start, end, what = lanes_of(view)[name]["spans"][-1]
    return end - start if what == kind else 0.0


def list_gaps(job, name, least_seconds):
    """The ends of the stretches in which a task has reported nothing."""
    times = [event["time"] for event in job.history() if event["task"] == name]
    return [b for a, b in zip(times, times[1:]) if b - a >= least_seconds]


def test_who_waits_for_a_paused_or_a_slow_worker_is_gray_also_in_a_distributed_iterator(
    cluster, tmp_path
):
    settings = RecoverySettings(str(tmp_path), epochs=2000, pause_seconds=0.03, watched=True)
    job = cluster.start(train_with_recovery, settings)
    view = cockpit(job)
    wait_for(lambda: step_of(view) > 3)
    press(view, "pause", "worker 1")
    # for long: it also waits for a moment in every step
    wait_for(lambda: last_seconds_of(view, "worker 1", "paused") > 1.5)
    wait_for(lambda: last_seconds_of(view, "worker 0", "wait") > 1.5)
    held = view.data["clock"] + view._book.begun - 1
    assert kind_at(view, "worker 0", held) == "wait", "while it waits"
    assert kind_at(view, "worker 1", held) == "paused"
    step = step_of(view)
    press(view, "resume", "worker 1")
    wait_for(lambda: step_of(view) > step + 1)
    assert kind_at(view, "worker 0", held) == "wait", "and afterwards"
    begun = len(list_gaps(job, "worker 1", 0.35))
    move(view, **{"slow worker 1": 400})
    # a busy machine makes gaps, too, in which worker 0 may do something else: it goes on to slow

    def list_kinds():
        gaps = list_gaps(job, "worker 1", 0.35)[begun:]
        return [kind_at(view, "worker 0", end - 0.01) for end in gaps]

    wait_for(lambda: list_kinds().count("wait") >= 3)
    job.stop()
    wait_for(lambda: view.data["finished"])
    shares = dict(view.data["score"]["parts"])
    assert shares["waiting"] > 0 and shares["repeated"] == shares["restarting"] == 0
    assert abs(sum(shares.values()) - 100) < 0.5
    assert "trained twice 0% (0 steps)" in view.data["score"]["words"]


def test_chaos_makes_workers_fail_until_it_is_switched_off(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(cockpit_chaos, "MIN_SECONDS", 0.1)
    monkeypatch.setattr(cockpit_chaos, "MAX_SECONDS", 0.2)
    monkeypatch.setattr(cockpit_chaos, "PAUSE_SECONDS", 0.2)
    job = cluster.start(count_down, str(tmp_path), 10_000, restarts=3)
    view = cockpit(job)
    wait_for(lambda: step_of(view) > 3)
    move(view, chaos=True)
    wait_for(lambda: len(job.actions()) >= 3)
    move(view, chaos=False)
    wait_for(lambda: not view._chaos._thread.is_alive())
    assert {action["event"] for action in job.actions()} <= {"SIGKILL", "pause", "resume"}
    number, held = len(job.actions()), step_of(view)
    wait_for(lambda: step_of(view) > held + 5)
    assert len(job.actions()) == number and not job.finished
    job.stop()


def test_chaos_kills_no_task_again_before_the_job_has_noticed(monkeypatch):
    """Or it would hit the next attempt, which may be the last that is allowed."""
    tasks = [SimpleNamespace(name=f"worker {n}", job="worker", state="running") for n in (0, 1)]
    job = SimpleNamespace(attempt=1, restarts_left=1, tasks=tasks)
    lanes = {task.name: SimpleNamespace(last={"attempt": 1}) for task in tasks}
    acted = []
    book = SimpleNamespace(lanes=lanes, is_synchronous=True)
    chaos = cockpit_chaos.Chaos(job, book, lambda *action: acted.append(action))
    monkeypatch.setattr(cockpit_chaos.random, "random", lambda: 0.0)
    assert chaos._is_calm()
    chaos._strike(threading.Event())
    assert acted[0][0] == "kill" and not chaos._is_calm()
    job.attempt = 2
    for lane in lanes.values():
        lane.last["attempt"] = 2
    assert chaos._is_calm()


def test_of_two_looks_at_once_the_later_is_shown(monkeypatch):
    names = {"attempt": 1, "finished": True, "is_stopping": False, "error": None}
    nothing = {name: lambda start=0: [] for name in ("history", "output", "actions")}
    task = SimpleNamespace(name="worker 0", state="done", attempt=1, process=None, calls=True)
    view = cockpit(SimpleNamespace(tasks=[task], **names, **nothing))
    wait_for(lambda: not view._thread.is_alive())
    looked, other, seen = threading.Event(), threading.Event(), iter(range(1, 3))

    def look():
        number = next(seen)
        if number == 1:
            looked.set()
            other.wait(1)  # so long the other one had time to overtake it
        return {"clock": number}

    monkeypatch.setattr(view, "_look", look)
    first = threading.Thread(target=view._update)
    first.start()
    assert looked.wait(120)
    view._update()
    other.set()
    first.join(120)
    assert view.data == {"clock": 2}


def test_restart_of_a_synchronous_task_restarts_its_group_where_that_is_allowed(cluster, tmp_path):
    job = cluster.start(count_down, str(tmp_path), 100, restarts=1, hold=30)
    view = cockpit(job)
    wait_for(lambda: step_of(view) > 12)
    view.act("restart", "worker 1")
    assert job.wait(240)[0] in (10, 20) and job.attempt == 2
    wait_for(lambda: not view._thread.is_alive())
    assert "✕ restarted by you at step" in lanes_of(view)["worker 1"]["notes"]


def test_bytes_are_the_kernels_or_the_tasks_own_count(cluster, tmp_path):
    job = cluster.start(count_down, str(tmp_path), 60, hold=41)
    view = cockpit(job)
    wait_for(lambda: step_of(view) == 40)
    process = job.tasks[1].process
    counted = TrafficMeter().read([process])[process]
    reduced = 4 * FLOATS  # each of two workers sends half of its numbers twice
    assert all(0.7 * 40 * reduced < each < 2 * 40 * reduced for each in counted)
    told = r"TCP: [\d.]+ MiB out, [\d.]+ MiB in"
    wait_for(lambda: re.fullmatch(told, lanes_of(view)["worker 1"]["bytes"]))
    (tmp_path / "go").touch()
    job.wait(240)
    own = tmp_path / "own"
    own.mkdir()
    job = cluster.start(count_down, str(own), 30, own_count=True)
    job.wait(240)
    view = cockpit(job)
    assert lanes_of(view)["worker 0"]["bytes"] == "5.7 MiB out (its own count)"
    wait_for(lambda: not view._thread.is_alive())


def test_the_meter_counts_every_byte_of_a_connection_also_once_it_has_closed():
    meter, own = TrafficMeter(), os.getpid()
    meter.read([own])
    before = meter.read([own]).get(own, (0, 0))
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as out, server.accept()[0] as into:
            out.sendall(bytes(123_456))
            got = 0
            while got < 123_456:
                got += len(into.recv(1 << 16))
            after = meter.read([own])[own]
    assert (after[0] - before[0], after[1] - before[1]) == (123_456, 123_456)
    assert meter.read([own])[own] == after
    assert 2**30 not in meter.read([2**30]), "no such process"


def test_a_still_picture_stands_in_where_widgets_cannot_run(cluster, tmp_path):
    job = cluster.start(count_down, str(tmp_path), 12)
    job.wait(240)
    view = cockpit(job)
    bundle = view._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert 'role="img"' in bundle["image/svg+xml"] and "text/html" not in bundle
    words = "Cockpit: The job: done. Loss from 1 to 0.0833. worker 0: done, "
    assert bundle["text/plain"].startswith(words) and "worker 1: done, " in bundle["text/plain"]
    assert not any("distlab" in kind for kind in bundle), "nothing to run without a kernel"
    assert "worker 0: done" in view.picture().html
    view.close()
    assert not view._thread.is_alive() or wait_for(lambda: not view._thread.is_alive())


def make_task(name, state, role="call"):
    job, index = name.split()
    return Task(TaskOrder(name, role, 1), job, int(index), state=state)


def test_states_say_who_waits_and_who_serves():
    group = [make_task("worker 0", "running"), make_task("worker 1", "killed")]
    assert name_states(group, False)["worker 0"] == ("waiting", "for worker 1")
    servers = [make_task("chief 0", "running"), make_task("worker 0", "killed", "serve")]
    servers.append(make_task("ps 0", "running", "serve"))
    assert name_states(servers, False) == {
        "chief 0": ("running", ""),
        "worker 0": ("killed", ""),
        "ps 0": ("serving", ""),
    }
    assert name_states(servers, True)["ps 0"] == ("stopped", "")


def tell(story, event, time, attempt=1, **fields):
    story.take({"event": event, "time": time, "attempt": attempt, **fields})


def test_a_step_is_computing_waiting_for_the_last_and_the_all_reduce():
    quick, slow = TaskStory(since=0.0), TaskStory(since=0.0)
    for story, ready in ((quick, 2.0), (slow, 3.5)):
        tell(story, "restore", 1.0, step=0)
        tell(story, "ready", ready)
        tell(story, "step", 4.0, step=1)
    group = StepGroup([quick, slow], 0.0)
    start, compute = TaskSpan(0.0, 1.0, "start"), TaskSpan(1.0, 2.0, "compute")
    waits = [TaskSpan(2.0, 3.5, "wait"), TaskSpan(3.5, 4.0, "send"), TaskSpan(4.0, 5.0, "compute")]
    assert list_spans(quick, group, 0.0, 5.0) == [start, compute, *waits]
    assert list_spans(slow, group, 0.0, 4.0)[1:] == [TaskSpan(1.0, 3.5, "compute"), waits[1]]
    slow.act("pause", 3.6), slow.act("resume", 3.8)
    held = StepGroup([quick, slow], 0.0)
    assert TaskSpan(2.0, 3.8, "wait") in list_spans(quick, held, 0.0, 5.0), (
        "it waits for a paused one"
    )


def test_what_is_lost_lies_between_the_checkpoint_and_the_death():
    story = TaskStory(since=0.0)
    tell(story, "restore", 0.0, step=0)
    for step in range(1, 8):
        tell(story, "step", float(step), step=step)
    story.act("SIGKILL", 7.2)
    story.restart(8.0)
    tell(story, "restore", 9.0, 2, step=6)
    tell(story, "step", 10.0, 2, step=7)
    assert list_lost(story, {2: 6}) == [(6.0, 7.0)]
    flags = list_flags([(3.1, 3), (6.1, 6)], {2: 6}, {2: 8.0})
    assert flags == [Flag(3.1, 3), Flag(6.1, 6, used=True)]
    spans = list_spans(story, StepGroup([story], 0.0), 0.0, 10.0)
    assert {
        TaskSpan(7.0, 7.2, "compute"),
        TaskSpan(7.2, 8.0, "down"),
        TaskSpan(8.0, 9.0, "start"),
    } <= set(spans)


def test_on_parameter_servers_a_dead_worker_is_down_until_its_next_update():
    story = TaskStory(since=0.0)
    tell(story, "step", 2.0, step=1, began=1.0)
    story.dead_at = 2.5
    assert list_spans(story, StepGroup([story], 0.0), 0.0, 4.0)[-1] == TaskSpan(2.5, 4.0, "down")
    tell(story, "step", 6.0, step=9, began=5.0)
    spans = list_spans(story, StepGroup([story], 0.0), 0.0, 7.0)
    kinds = [TaskSpan(0.0, 1.0, "start"), TaskSpan(2.5, 5.0, "down"), TaskSpan(1.0, 2.0, "compute")]
    assert spans == [*kinds, TaskSpan(5.0, 6.0, "compute")], "idle between updates: not known"


def test_a_worker_started_again_is_not_marked_with_the_step_it_died_at():
    task = SimpleNamespace(name="worker 0", state="working", attempt=1, process=None, calls=True)
    server = SimpleNamespace(name="ps 0", state="serving", attempt=1, process=None, calls=False)
    step = {
        "event": "step",
        "task": "worker 0",
        "attempt": 1,
        "step": 29,
        "time": 1.0,
        "began": 0.5,
    }
    actions = [
        {"event": what, "task": "worker 0", "time": moment}
        for what, moment in (("SIGKILL", 2.0), ("restart", 3.0))
    ]
    job = SimpleNamespace(
        tasks=[task, server],
        attempt=1,
        finished=True,
        is_stopping=False,
        history=lambda start=0: [step][start:],
        output=lambda start=0: [],
        actions=lambda: actions,
    )
    book = JobBook(job)
    book.read()
    marks = [(mark.kind, mark.words) for mark in book.lanes["worker 0"].marks]
    assert marks == [("end", "killed by you at step 29"), ("back", "restarted by you")]
    job.finished, server.state, server.ended_at = False, "killed", time.monotonic()
    for job.is_stopping, seen in ((True, []), (False, ["killed"])):
        book.read()
        assert [mark.words for mark in book.lanes["ps 0"].marks] == seen


def test_curves_are_thinned_break_in_gaps_and_skip_losses_that_are_not_finite():
    losses = [
        (float(t), math.nan if t % 7 == 0 else 1000.0 - t, 1 + (t >= 600)) for t in range(900)
    ]
    runs = find_runs(losses + [(950.0, 1.0, 2), (951.0, 0.5, 2)])
    assert len(runs) == 3 and sum(map(len, runs)) <= MAX_POINTS and runs[-1][-1] == (951.0, 0.5)
    assert all(math.isfinite(value) for run in runs for _, value in run)
    lane = LaneRecord(
        "<w>",
        "done",
        "done",
        "✔",
        spans=[TaskSpan(0.0, 2.0, "compute")],
        marks=[Mark("end", "gone", 1.0)],
    )
    picture = draw_stage(StageRecord([lane], [(0.0, 2.0, 1), (1.0, 0.5, 1)], 2.0), title="The job")
    assert picture.alt == "The job. Loss from 2 to 0.5. <w>: done, computes 2.0 s, gone."
    assert "<w>" not in picture.svg
