"""The messages that identify a failed start: pattern, cause, fix.

Most were taken from logs of TensorFlow 2.21 and Keras 3.15 (`tests/cluster_mistakes.py` makes the
cluster's); a few are from other versions. The order counts: a task's own cause comes before the
messages of a task that has lost another one.
"""

import re
from dataclasses import dataclass

TASK = r"/job:(?P<job>\w+)(?:/replica:\d+)?/task:(?P<index>\d+)"


@dataclass(frozen=True)
class Symptom:
    """One saying. `cause` may name the pattern's groups; `needs` must be in the text too."""

    name: str
    pattern: re.Pattern[str]
    cause: str
    cure: str
    needs: str = ""


def make_symptom(name: str, pattern: str, cause: str, cure: str, needs: str = "") -> Symptom:
    return Symptom(name, re.compile(pattern, re.MULTILINE), cause, cure, needs)


ON_PEER = r"(?:(?!Additional GRPC)[^\n])*(?:\n[^\n]*remote target " + TASK + r")?"
LINT = "`distlab tf-config lint` shows every mistake in it"
SMALLER = (
    "lower the batch size per replica; or accumulate gradients, recompute activations, or use "
    "mixed precision"
)
LOST = (
    "look in its own log for the first error, then start the whole group again from its "
    "checkpoint; if there is none, give every task as many steps, and a barrier at the end"
)
FIRST = "make the strategy the first thing of the program, before any op, variable or dataset"

CONFIGURATION = (
    make_symptom(
        "not-json",
        r"JSONDecodeError: (?P<words>.*)",
        "TF_CONFIG is not JSON ({words})",
        f"write it with json.dumps, not str(); {LINT}",
        needs="_load_tf_config",
    ),
    make_symptom(
        "wrong-index",
        r"`task_id` (?P<given>-?\d+) exceeds the maximum id of (?P<kind>\w+)",
        "task index {given} is out of range for job {kind}",
        "indexes count from 0 (two addresses are 0 and 1): lower the index, or add an address",
    ),
    make_symptom(
        "wrong-index",
        r"invalid literal for int\(\) with base 10: (?P<given>.*)",
        "the task index {given} is not a number",
        "write 0, 1, … without quotes",
        needs="tfconfig_cluster_resolver",
    ),
    make_symptom(
        "type-not-in-cluster",
        r"`task_type` '(?P<kind>\w+)' not found in cluster_spec",
        "the cluster lists no task of type {kind}",
        "list its address, or give this task a type that is listed",
    ),
    make_symptom(
        "misspelled-job",
        r"Disallowed task type found in cluster spec.*ClusterSpec\((?P<spec>.*)\)",
        "the cluster has a job that TensorFlow does not know: {spec}",
        "jobs are called chief, worker, ps and evaluator, nothing else",
    ),
    make_symptom(
        "misspelled-job",
        r"Unrecognized task_type: (?P<kind>[^,]*)",
        "{kind} is no task type",
        "types are chief, worker, ps and evaluator, nothing else",
    ),
    make_symptom(
        "no-task",
        r"When `cluster_spec` is given, you must also specify",
        "TF_CONFIG has a cluster but not which task this is",
        'add "task": {"type": "worker", "index": 0}',
    ),
    make_symptom(
        "two-chiefs",
        r"There must be at most one '(?P<kind>chief|evaluator)' job",
        "the cluster lists more than one {kind}",
        "keep one; the others are workers",
    ),
    make_symptom(
        "wrong-strategy",
        r"There must be at least one (?P<kind>ps|worker)\.",
        "ParameterServerStrategy was given a cluster without {kind} tasks",
        "add {kind} addresses to the cluster, or use MultiWorkerMirroredStrategy",
    ),
    make_symptom(
        "wrong-strategy",
        r"Cluster spec must be non-empty",
        "ParameterServerStrategy was given no cluster",
        "set TF_CONFIG (chief, worker and ps) before the resolver is made",
    ),
    make_symptom(
        "wrong-strategy",
        r"There is no id for task_type '(?P<kind>\w+)'",
        "MultiWorkerMirroredStrategy was made in a {kind} task, which it does not know",
        "a {kind} task runs tf.distribute.Server(…).join(); or take {kind} out of the cluster",
    ),
    make_symptom(
        "wrong-strategy",
        r"KeyError: 'evaluator'",
        "MultiWorkerMirroredStrategy was made in an evaluator task",
        "an evaluator stands outside the cluster: give it a strategy of one machine",
        needs="worker_count",
    ),
    make_symptom(
        "wrong-index",
        r"process_id < num_processes\. Got process_id=(?P<given>-?\d+), "
        r"num_processes=(?P<count>-?\d+)",
        "process {given} is out of range for {count} processes",
        "processes count from 0 (two are 0 and 1): lower process_id, or raise num_processes",
    ),
    make_symptom(
        "no-task",
        r"ValueError: (?:coordinator_address should be|Number of processes must be|"
        r"The process id of the current process must be) defined",
        "JAX does not know its coordinator, the number of processes or which one this is",
        "start the program with `distlab run`, or set KERAS_DISTRIBUTION_JOB_ADDRESSES, "
        "KERAS_DISTRIBUTION_NUM_PROCESSES and KERAS_DISTRIBUTION_PROCESS_ID for "
        "keras.distribution.initialize(); jax.distributed.initialize() takes the numbers as "
        "arguments",
    ),
)

PROGRAM = (
    make_symptom(
        "late-strategy",
        r"Collective ops must be configured at program startup",
        "the strategy was made after TensorFlow had run its first operation",
        f"{FIRST}; in a notebook, restart the kernel",
    ),
    make_symptom(
        "late-strategy",
        r"initialize\(\) must be called before any JAX calls",
        "JAX had used a device before its processes were joined",
        "call keras.distribution.initialize() first, before any array, model or list of devices",
    ),
    make_symptom(
        "second-strategy",
        r"Collective ops are already configured",
        "this process has made another multi-worker strategy before",
        "use one strategy per process: keep the first, or start a fresh process",
    ),
    make_symptom(
        "taken-port",
        r"Failed to add port to server:[^\n]*'[^\n]*:(?P<port>\d+)'",
        "port {port} is taken: another program, or another task with the same index, listens there",
        "end that program (distlab processes list), or give each task its own free port",
    ),
    make_symptom(
        "taken-port",
        r"Could not start gRPC server",
        "the task's port is taken: another program, or another task with the same index, listens "
        "there",
        "end that program (distlab processes list), or give each task its own free port",
    ),
    make_symptom(
        "duplicate-index",
        TASK + r" unexpectedly tried to connect with a different incarnation",
        "two processes say that they are {job}:{index}, or that task restarted while others ran",
        "give each process an index of its own; after a restart, start the whole group again",
    ),
    make_symptom(
        "duplicate-index",
        r"ABORTED: (?P<given>\d+) unexpectedly tried to connect with a different incarnation",
        "two processes say that they are process {given}, or it restarted while others ran",
        "give each process its own number; after a restart, start the whole group again",
    ),
    make_symptom(
        "second-strategy",
        r"Device /job:localhost\S* is joining a group with size ?(?P<mine>\d+)"
        r", but that group has size (?P<other>\d+)",
        "a second strategy in this process has {mine} replicas, the first had {other}",
        "use one process per number of replicas, or "
        "cross_device_ops=tf.distribute.ReductionToOneDevice()",
    ),
    make_symptom(
        "mismatched-sizes",
        r"Device " + TASK + r"\S* is joining a group with size ?(?P<mine>\d+)"
        r", but that group has size (?P<other>\d+)",
        "the tasks disagree about the cluster: {job}:{index} counts {mine} replicas, others "
        "{other}",
        "give every task the same cluster and the same number of devices; lint all their "
        "configurations together",
    ),
    make_symptom(
        "mismatched-shapes",
        r"Shape mismatch in the collective instance[^\n]*device "
        + TASK
        + r"\S* expected shape (?P<mine>\[.*?\])[^\n]*?expected shape (?P<other>\[.*?\])",
        "{job}:{index} reduces a tensor of shape {mine} where another task has {other}",
        "run the same model and the same reductions on every task; reduce sums, not batches",
    ),
    make_symptom(
        "keras-fit-multi-worker",
        r"Attempt to convert a value \(PerReplica",
        "Keras 3's fit cannot train under MultiWorkerMirroredStrategy",
        "run the same command with --keras legacy or --keras patched, or write a custom loop",
    ),
    make_symptom(
        "keras-fit-parameter-server",
        r"pass this dataset to ClusterCoordinator\.create_per_worker_dataset",
        "a dataset was used directly under ParameterServerStrategy, as Keras 3's fit does",
        "run the same command with --keras legacy; or make the dataset with "
        "ClusterCoordinator.create_per_worker_dataset and schedule the steps yourself",
    ),
    make_symptom(
        "out-of-memory",
        r"OOM when allocating tensor with shape ?(?P<shape>\[[\d, ]*\])"
        r"(?:[^\n]*? by allocator (?P<where>\w+))?",
        "memory ran out when a tensor of shape {shape} was made ({where})",
        SMALLER,
    ),
    make_symptom(
        "out-of-memory",
        r"Out of memory while trying to allocate (?P<size>[\d.]+ ?\w+)",
        "memory ran out when a program that XLA has compiled asked for {size}",
        SMALLER,
    ),
    make_symptom(
        "out-of-memory",
        r"CUDA_ERROR_OUT_OF_MEMORY|failed to allocate [^\n]* from device",
        "the GPU's memory is in use: most often another process holds it",
        "end that process (nvidia-smi lists them); one process a GPU, or "
        "tf.config.experimental.set_memory_growth(gpu, True)",
    ),
    make_symptom(
        "out-of-memory",
        r"std::bad_alloc|Cannot allocate memory|Out of memory: Killed process \d+|"
        r"(?:^|[\].] ?)(?:_Array)?MemoryError|oom[-_]kill|OOM ?Killed|[\d,-]+: Out Of Memory",
        "the machine's memory ran out",
        "start fewer workers here, load less data at once, or lower the batch size",
    ),
    make_symptom(
        "killed",
        r"^(?:\S+:(?: line \d+:)? +\d+ Killed\b[^\n]*|Killed)$",
        "the process was killed with SIGKILL; if nobody did that, memory ran out",
        "start fewer workers here, load less data at once, or lower the batch size; the kernel's "
        "log (dmesg) names what it killed",
    ),
    make_symptom(
        "too-many-threads",
        r"can't start new thread|pthread_create\(\) failed",
        "this user, or this container, may have no more processes and threads",
        "start fewer workers here, or raise the limit (ulimit -u, or the container's pids limit)",
    ),
    make_symptom(
        "nccl-network",
        r"NCCL WARN[^\n]*(?:[Nn]o (?:usable )?(?:socket )?interface found|"
        r"No interface found)",
        "NCCL finds no network interface to reach the other machines through",
        "name the interface on every machine: NCCL_SOCKET_IFNAME=eth0; NCCL_DEBUG=INFO shows them",
    ),
    make_symptom(
        "nccl-network",
        r"(?:NCCL WARN|NET/Socket)[^\n]*[Cc]onnect to (?P<where>[\w.:\[\]-]+)"
        r"(?:<\d+>)?[^\n]* failed ?:? ?(?P<words>[^\n]*)",
        "NCCL cannot connect to {where} ({words}): a firewall, or the wrong network interface",
        "let the machines reach each other on all ports, and name the interface that they share: "
        "NCCL_SOCKET_IFNAME=eth0; NCCL_DEBUG=INFO shows what it chose",
    ),
    make_symptom(
        "nccl-gpu",
        r"Duplicate GPU detected : rank (?P<mine>\d+) and rank (?P<other>\d+)",
        "ranks {mine} and {other} use the same GPU, which NCCL cannot do",
        "give each worker GPUs of its own: CUDA_VISIBLE_DEVICES, which `distlab run` divides",
    ),
    make_symptom(
        "nccl-network",
        r"NCCL[^\n]*(?:ncclSystemError|unhandled system error|ncclRemoteError|"
        r"remote process exited)",
        "NCCL's network failed under the all-reduce, or another worker ended in it",
        "look in the other tasks' logs first; if all only say this, run with NCCL_DEBUG=INFO, and "
        "try NCCL_SOCKET_IFNAME=eth0 or NCCL_IB_DISABLE=1",
    ),
    make_symptom(
        "crash",
        r"Fatal Python error: (?P<words>Segmentation fault|Aborted|Bus error|Illegal "
        r"instruction|Floating-point exception)",
        "the process crashed in compiled code ({words})",
        "look below that line for the Python line that called it; most often a library was built "
        "for another version or another processor: install it again in a fresh environment",
    ),
    make_symptom(
        "wrong-options",
        r"^(?:\[[^\]\n]*\] )?\S+: error: (?P<words>the following arguments are "
        r"required[^\n]*|unrecognized arguments[^\n]*|argument [^\n]*)",
        "the program doesn't take its options: {words}",
        "correct what follows the program's name on the command line",
    ),
    make_symptom(
        "unknown-host",
        r"(?:DNS resolution failed|Name or service not known)"
        r"(?:[^\n]*? for (?P<host>[\w.:-]+))?",
        "a host name of the cluster cannot be resolved",
        "write names that every machine can look up, or addresses",
    ),
)

MISSING_FILE = (
    "{path} isn't on this machine",
    "have the data in the same folder on every machine, or give its full path; a relative "
    "path begins in the folder where the program was started",
)
FORBIDDEN = (
    "this user may not open {path} on this machine",
    "change its permissions (ls -l shows them), or write to a folder of your own",
)
# what a program itself raised: looked for in its last traceback only
EXCEPTIONS = (
    make_symptom(
        "disk-full",
        r"No space left on device|\[Errno 28\]|\d+ requested and \d+ written",
        "the disk is full: a file could not be written",
        "free some space (df -h shows the disks), keep fewer checkpoints, or write elsewhere",
    ),
    make_symptom(
        "disk-full",
        r"Disk quota exceeded|\[Errno 122\]",
        "this user's share of the disk is used up: a file could not be written",
        "delete old checkpoints (quota -s shows what is left), or write to another disk",
    ),
    make_symptom(
        "missing-file",
        r"FileNotFoundError: \[Errno 2\] No such file or directory: "
        r"'(?P<path>[^'\n]*)'",
        *MISSING_FILE,
    ),
    make_symptom(
        "missing-file",
        r"NotFoundError: (?:[^\n]*\}\} )?(?P<path>[^;\n]*); "
        r"No such file or directory",
        *MISSING_FILE,
    ),
    make_symptom(
        "corrupt-file",
        r"DataLossError: [^\n]*(?:corrupted|truncated) record at (?P<place>\d+)",
        "a record file is damaged at byte {place}, cut short, or no TFRecord file at all",
        "write it again, to another name that is renamed once it is complete; a compressed file "
        'needs TFRecordDataset(..., compression_type="GZIP")',
    ),
    make_symptom(
        "open-files",
        r"Too many open files",
        "the program has as many files and connections open as it may",
        "raise the limit before the start (ulimit -n 65536), and close files after use",
    ),
    make_symptom(
        "missing-library",
        r"(?P<module>[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "the library {module} isn't installed on this machine, or isn't found",
        "install it, or put its folder into LD_LIBRARY_PATH; `pip install tensorflow[and-cuda]` "
        "brings CUDA's",
    ),
    make_symptom(
        "not-json",
        r"JSONDecodeError: (?P<words>[^\n]*)",
        "TF_CONFIG is not JSON ({words})",
        f"write it with json.dumps, not str(); {LINT}",
        needs="TF_CONFIG",
    ),
    make_symptom(
        "not-json",
        r"JSONDecodeError: Expecting property name enclosed in double quotes",
        "a text isn't JSON: it has Python's single quotes",
        f"write it with json.dumps, not str(). If it's TF_CONFIG, {LINT}",
    ),
    make_symptom(
        "not-finite",
        r"Tensor had (?:NaN|Inf)[^\n]*|CheckNumericsV2|[Ll]oss\b[^\n]{0,40}\b(?:nan|NaN|NAN|inf)\b|"
        r"\b[Nn]on-?finite\b|Invalid loss",
        "the loss, or a tensor, is no longer a finite number",
        "lower the learning rate or clip gradients, and look for log(0), 0/0 and bad input; "
        "tf.debugging.enable_check_numerics() names the first operation",
    ),
    make_symptom(
        "permission",
        r"PermissionError: \[Errno \d+\] [^\n]*?: '(?P<path>[^'\n]*)'",
        *FORBIDDEN,
    ),
    make_symptom(
        "permission",
        r"PermissionDeniedError: (?:[^\n]*\}\} )?(?P<path>[^;\n]*);",
        *FORBIDDEN,
    ),
    make_symptom(
        "no-gpu",
        r"Could not satisfy device specification '[^'\n]*GPU:\d+'|\b[Nn]o GPUs?\b|"
        r"GPU:\d+ unknown device",
        "the program expects a GPU, and TensorFlow sees none",
        "run nvidia-smi, then `distlab doctor`; `pip install tensorflow[and-cuda]` brings CUDA; an "
        "empty CUDA_VISIBLE_DEVICES hides every GPU",
    ),
    make_symptom(
        "message-size",
        r"(?:Received|Sent|Trying to send) message larger than max "
        r"\((?P<given>\d+) vs\. (?P<limit>\d+)\)",
        "a message of {given} bytes is larger than gRPC takes ({limit})",
        "send less at once: keep data out of the graph (use tf.data, not constants), or raise the "
        "limit if it's your own gRPC server",
    ),
    make_symptom(
        "no-model",
        r"SavedModel file does not exist at: (?P<path>[^{\n]*[^{/\n])|"
        r"File not found: filepath=(?P<file>\S+)\. Please",
        "no complete model is at {path}{file}: it isn't there, or was cut short as it was written",
        "give its full path, the same on every machine, and write it to another name that is "
        "renamed once it is complete",
    ),
    make_symptom(
        "other-checkpoint",
        r"Received incompatible tensor with shape [^\n]*|Python objects that were not bound to "
        r"checkpointed values|Unresolved object in checkpoint|Layer count mismatch when loading|"
        r"objects could not be loaded\. Example",
        "the checkpoint was saved by another model, optimizer or version of the program",
        "restore it into what saved it, or name another folder for checkpoints",
    ),
    make_symptom(
        "corrupt-checkpoint",
        r"Read less bytes than requested|Unable to open table file|not an sstable|"
        r"(?:BadZipFile|Unable to (?:synchronously )?open file)",
        "the checkpoint is damaged, or was cut short as it was written",
        "delete it and restore the one before it; tf.train.CheckpointManager keeps several",
    ),
    make_symptom(
        "other-class",
        r"could not be deserialized properly|Could not locate class|Unknown (?:layer|object)\b",
        "the saved model has a class that this program doesn't know",
        "decorate it with @keras.saving.register_keras_serializable() and import it before the "
        "model is loaded",
    ),
    make_symptom(
        "wrong-type",
        r"has type (?P<mine>\w+) that does not match type (?P<other>\w+) of argument|"
        r"The expected type was (?P<wanted>\w+), but|Tensor conversion requested dtype|"
        r"was expected to be an? \w+ tensor but is an? \w+ tensor",
        "two tensors that meet have different types",
        "tf.cast one of them, best where the data is read; NumPy makes float64, Keras float32",
    ),
    make_symptom(
        "wrong-shape",
        r"incompatible with the layer:? [^\n]*|must have the same shape\. Received[^\n]*|"
        r"Incompatible shapes: [^\n]*|Dimensions must be equal, but are [^\n]*|"
        r"Matrix size-incompatible[^\n]*|logits and labels must [^\n]*|"
        r"Expected shape \([^\n]* but got|[Cc]annot reshape [^\n]*",
        "the model and its data, or two tensors that meet, have shapes that don't fit",
        "compare dataset.element_spec with model.input and model.output; integer labels take "
        "SparseCategoricalCrossentropy",
    ),
    make_symptom(
        "label-range",
        r"label value of (?P<given>-?\d+) which is outside the valid range of "
        r"\[0, (?P<count>\d+)\)",
        "a label is {given}, and the model has {count} classes",
        "give the last layer one output for each class, and count labels from 0",
    ),
    make_symptom(
        "uneven-examples",
        r"Cannot batch tensors with different shapes",
        "the examples of one batch have different shapes",
        "resize them or cut them to one shape before batch(), or use padded_batch()",
    ),
    make_symptom(
        "other-records",
        r"Feature: (?P<name>[^(\n]*) \(data type: \w+\) is required but could not be found|"
        r"Key: (?P<key>[^.\n]*)\. +(?:Data types don't match|Can't parse)",
        "the records have no feature {name}{key} of that type and shape",
        "compare the parsing with what wrote the records: "
        "tf.train.Example.FromString(record) shows one of them",
    ),
    make_symptom(
        "bad-picture",
        r"Unknown image file format|Invalid (?:PNG|JPEG|GIF) data|Trying to decode (?:PNG|JPEG)",
        "a picture is damaged, or has another format than this decoder reads",
        "find it with a loop over the files, or skip such pictures: dataset.ignore_errors()",
    ),
    make_symptom(
        "other-versions",
        r"incompatible Protobuf Gencode/Runtime versions|Descriptors cannot be created directly|"
        r"numpy\.core\.multiarray failed to import|numpy\.dtype size changed|"
        r"compiled using NumPy 1\.x|version `GLIBC\w*_[\d.]+' not found|undefined symbol: \w+",
        "two packages don't fit each other, or one was built for another system",
        "install both again, together, in a fresh environment, so that pip chooses versions that "
        "fit: `pip check` names what doesn't",
    ),
    make_symptom(
        "other-versions",
        r"ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'",
        "{module} has no {name}: it has another version, or a file of yours hides it",
        "python -c 'import {module}; print({module}.__file__)' shows the file: rename yours, or "
        "install the version that the program asks for",
    ),
    make_symptom(
        "no-variable",
        r"\bos(?:\.py|>)\", line \d+, in __getitem__\n(?: [^\n]*\n)*KeyError: '(?P<name>\w+)'",
        "the environment variable {name} isn't set in this task",
        "set it on every machine before the start; `distlab run` sets TF_CONFIG",
    ),
    make_symptom(
        "taken-port",
        r"\[Errno 98\]|Address already in use",
        "a port that the program opens is taken: another program listens there",
        "end that program (ss -ltnp lists them), or take port 0, which lets the system choose",
    ),
    make_symptom(
        "no-server",
        r"ConnectionRefusedError",
        "nobody listens at the address that the program calls",
        "start that server first, and check its host and port; 127.0.0.1 is each machine itself",
    ),
    make_symptom(
        "broken-pipe",
        r"BrokenPipeError",
        "whoever read what the program writes has gone: a closed SSH session, or a pipe's end",
        "start it in tmux, or with `distlab run`, which keeps its output in logs",
    ),
    make_symptom(
        "mixed-strategies",
        r"Mixing different tf\.distribute\.Strategy objects",
        "a model, an optimizer and metrics that belong together were made under two strategies",
        "make them all in one `with strategy.scope():`, and call optimizer.build there",
    ),
    make_symptom(
        "variable-in-function",
        r"tf\.function only supports singleton tf\.Variables",
        "a tf.function makes a variable each time it is traced",
        "make variables, layers and optimizers before the first call, outside the function",
    ),
    make_symptom(
        "bad-json",
        r"JSONDecodeError: (?P<words>[^\n]*)",
        "a file, or an answer, is empty or no JSON ({words})",
        "look at what the program reads there; write such files to another name, and rename them "
        "once they are complete",
    ),
)

COLLATERAL = (
    make_symptom(
        "dead-parameter-server",
        r"remote target /job:(?P<job>ps)/replica:\d+/task:(?P<index>\d+)",
        "parameter server {job}:{index} has gone, and its variables with it",
        "start the whole cluster again from the last checkpoint; its own log has the reason",
        needs="UnavailableError",
    ),
    make_symptom(
        "dead-peer",
        r"unhealthy \(stopped sending heartbeats\):\s+" + TASK,
        "{job}:{index} died or froze: it has stopped answering",
        LOST,
    ),
    make_symptom(
        "dead-peer",
        r"unhealthy \(stopped sending heartbeats\):\s+(?P<given>\d+)$",
        "process {given} died or froze: it has stopped answering",
        LOST,
    ),
    make_symptom(
        "missing-peer",
        r"Gloo context initialization failed: [^\n]*remote=\[(?P<address>127\.[\d.]+)\]",
        "another process said that it is at {address}, and this machine has nobody there",
        "on several machines, let each one's own name lead to an address that the others reach "
        "(/etc/hosts often has 127.0.1.1), as JAX on CPUs goes by that; on one machine, look in "
        "the other tasks' logs for the first error",
    ),
    make_symptom(
        "dead-peer",
        r"Gloo context initialization failed: DEADLINE_EXCEEDED",
        "another process did not come to the first collective: it died, or is far behind",
        "look in the other tasks' logs for the first error; run the same program on each",
    ),
    make_symptom(
        "missing-peer",
        r"DEADLINE_EXCEEDED: Deadline Exceeded\s+RPC: "
        r"/xla\.coordination\.CoordinationService/RegisterTask",
        "it waited in vain for another process, which has not started or cannot be reached",
        "start every process, and check the coordinator's address, the number of processes and "
        "the network between the machines",
    ),
    make_symptom(
        "dead-peer",
        r"(?:Collective ops is aborted by: |UnavailableError)"
        r"[^\n]*(?:Socket closed|Connection re(?:set|fused)|failed to connect)" + ON_PEER,
        "{job}:{index} has gone: it died, was stopped, or ended before the others",
        LOST,
    ),
    make_symptom(
        "renewed-server",
        r"Delete called on non-empty BufRendezvous|[Gg]roup \d+ not found",
        "another task's server started again, or ended, in the middle of a collective: that task "
        "made a second strategy, restarted alone, or ended before the others",
        "make one strategy per process and use it again, as utils.strategies.make_strategy does; "
        "give every task the same number of steps; start the group together",
    ),
    make_symptom(
        "dead-peer",
        r"Collective ops is aborted by: (?P<words>[^\n]*)",
        "another task ended the collective: {words}",
        "look in the other tasks' logs for the first error, then start the whole group again",
    ),
    make_symptom(
        "no-server",
        r"dispatcher at (?P<address>\S+): UNAVAILABLE",
        "it waits for the tf.data service at {address}, which has not started or can't be reached",
        "start the DispatchServer and its WorkerServer first, and check their address and port",
    ),
    make_symptom(
        "dead-peer",
        r"UnavailableError|Socket closed|Connection reset by peer",
        "another task cannot be reached any more",
        "look in the other tasks' logs for the first error, then start the whole group again",
    ),
)
