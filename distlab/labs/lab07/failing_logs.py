# ruff: noqa: E501
"""Logs of eight clusters that failed for real (TensorFlow 2.21), shortened, for lab 07.

`tests/cluster_mistakes.py` makes the failures. `<host K>` stands for the address of
worker K, `<port K>` for its port, `<number>` for any number: `fill_in` puts some there.
`make_logs` has those of all three workers of a cluster; one of them is to blame.
"""

import re

import numpy as np

LOGS = {
    "missing-peer": r"""
I coordination_service.cc:221] Initializing CoordinationService
I grpc_server_lib.cc:467] Started server with target: grpc://<host 0>
I coordination_service.h:529] /job:worker/replica:0/task:0 has connected to coordination service. Incarnation: <number>
I coordination_service.cc:502] Waiting for 1/2 tasks to connect.
I coordination_service.cc:505] Example stragglers:
/job:worker/replica:0/task:1
""",
    "taken-port": r"""
E add_port.cc:83] Failed to add port to server: No address added out of total 1 resolved for '0.0.0.0:<port 0>'
E grpc_server_lib.cc:618] UNKNOWN: Could not start gRPC server
E context_distributed_manager.cc:1061] Could not start gRPC server
  …
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 187, in __init__
    CollectiveAllReduceExtended(
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 381, in __init__
    self._initialize_strategy(self._cluster_resolver, devices=devices)
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 401, in _initialize_strategy
    self._initialize_multi_worker(cluster_resolver)
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 602, in _initialize_multi_worker
    context.context().ensure_initialized()
  File "…/tensorflow/python/eager/context.py", line 745, in ensure_initialized
    pywrap_tfe.TFE_EnableCollectiveOps(context_handle, server_def_str)
tensorflow.python.framework.errors_impl.UnknownError: Could not start gRPC server
""",
    "wrong-index": r"""
Traceback (most recent call last):
  File "…/train.py", line 12, in <module>
    main()
  …
    CollectiveAllReduceExtended(
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 381, in __init__
    self._initialize_strategy(self._cluster_resolver, devices=devices)
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 401, in _initialize_strategy
    self._initialize_multi_worker(cluster_resolver)
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 522, in _initialize_multi_worker
    self._id_in_cluster = multi_worker_util.id_in_cluster(
  File "…/tensorflow/python/distribute/multi_worker_util.py", line 251, in id_in_cluster
    _validate_cluster_spec(cluster_spec, task_type, task_id)
  File "…/tensorflow/python/distribute/multi_worker_util.py", line 104, in _validate_cluster_spec
    raise ValueError(
ValueError: The `task_id` 2 exceeds the maximum id of worker.
""",
    "not-json": r"""
Traceback (most recent call last):
  File "…/train.py", line 12, in <module>
    main()
  …
    if devices or not cluster_resolver.cluster_spec().as_dict():
  File "…/tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py", line 155, in cluster_spec
    tf_config = _load_tf_config()
  File "…/tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py", line 39, in _load_tf_config
    return json.loads(os.environ.get(_TF_CONFIG_ENV, '{}'))
  File "…/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
  File "…/json/decoder.py", line 337, in decode
    obj, end = self.raw_decode(s, idx=_w(s, 0).end())
  File "…/json/decoder.py", line 353, in raw_decode
    obj, end = self.scan_once(s, idx)
json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
""",
    "alone": r"""
INFO:tensorflow:Using MirroredStrategy with devices ('/device:CPU:0',)
INFO:tensorflow:Single-worker MultiWorkerMirroredStrategy with local_devices = ('/device:CPU:0',), communication = CommunicationImplementation.AUTO
step 0 of 1 replicas
""",
    "late-strategy": r"""
Traceback (most recent call last):
  File "…/train.py", line 12, in <module>
    main()
  …
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 187, in __init__
    CollectiveAllReduceExtended(
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 381, in __init__
    self._initialize_strategy(self._cluster_resolver, devices=devices)
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 401, in _initialize_strategy
    self._initialize_multi_worker(cluster_resolver)
  File "…/tensorflow/python/distribute/collective_all_reduce_strategy.py", line 543, in _initialize_multi_worker
    context.context().configure_collective_ops(
  File "…/tensorflow/python/eager/context.py", line 1083, in configure_collective_ops
    raise RuntimeError("Collective ops must be configured at program startup")
RuntimeError: Collective ops must be configured at program startup
""",
    "dead-peer": r"""
I coordination_service.cc:221] Initializing CoordinationService
I grpc_server_lib.cc:467] Started server with target: grpc://<host 0>
I coordination_service.h:529] /job:worker/replica:0/task:0 has connected to coordination service. Incarnation: <number>
  …
    main()
  File "…/train.py", line 9, in main
    step()
  File "…/tensorflow/python/util/traceback_utils.py", line 167, in error_handler
    raise e.with_traceback(filtered_tb) from None
  File "…/tensorflow/python/eager/execute.py", line 59, in quick_execute
    except TypeError as e:
tensorflow.python.framework.errors_impl.UnavailableError: {{function_node __inference_<lambda>_58}} Collective ops is aborted by: Error reported from /job:worker/task:1: The following tasks are unhealthy (stopped sending heartbeats):
/job:worker/replica:0/task:1
The tasks have crashed. Check the task logs for an earlier error, or scheduler events (e.g. preemption, eviction) to debug further.
The error could be from a previous operation. Restart your program to reset.
     [[{{node CollectiveReduceV2}}]] [Op:__inference_<lambda>_58]
""",
    "mismatched-sizes": r"""
I grpc_server_lib.cc:467] Started server with target: grpc://<host 1>
I coordination_service_agent.cc:245] Coordination agent has successfully connected.
INFO:tensorflow:Enabled multi-worker collective ops with available devices: ['/job:worker/replica:0/task:1/device:CPU:0', '/job:worker/replica:0/task:0/device:CPU:0']
  …
    main()
  File "…/train.py", line 9, in main
    step()
  File "…/tensorflow/python/util/traceback_utils.py", line 167, in error_handler
    raise e.with_traceback(filtered_tb) from None
  File "…/tensorflow/python/eager/execute.py", line 59, in quick_execute
    except TypeError as e:
tensorflow.python.framework.errors_impl.InternalError: {{function_node __inference_<lambda>_31}} Collective ops is aborted by: Device /job:worker/replica:0/task:1/device:CPU:0 is joining a group with size3, but that group has size 2 (group_key=1)
Additional GRPC error information from remote target /job:worker/replica:0/task:0 while calling /tensorflow.WorkerService/CompleteGroup:
:UNKNOWN:Error received from peer  {grpc_status:13, grpc_message:"Device /job:worker/replica:0/task:1/device:CPU:0 is joining a group with size3, but that group has size 2 (group_key=1)"}
The error could be from a previous operation. Restart your program to reset.
     [[{{node CollectiveReduceV2}}]] [Op:__inference_<lambda>_31]
""",
}


CLUSTER = 3  # workers of `make_logs`
_TRACE = """  …
    main()
  File "…/train.py", line 9, in main
    step()
  File "…/tensorflow/python/util/traceback_utils.py", line 167, in error_handler
    raise e.with_traceback(filtered_tb) from None
tensorflow.python.framework.errors_impl."""
_RESTART = """The error could be from a previous operation. Restart your program to reset.
     [[{{node CollectiveReduceV2}}]] [Op:__inference_<lambda>_58]
"""
_STARTED = "I grpc_server_lib.cc:467] Started server with target: grpc://<host ME>\n"
_CONNECTED = "I coordination_service_agent.cc:245] Coordination agent has successfully connected.\n"
_LEADS = f"""I coordination_service.cc:221] Initializing CoordinationService
{_STARTED}I coordination_service.h:529] /job:worker/replica:0/task:0 has connected to coordination service. Incarnation: <number>
"""
_WAITS = f"""{_LEADS}I coordination_service.cc:502] Waiting for 2/3 tasks to connect.
I coordination_service.cc:505] Example stragglers:
/job:worker/replica:0/task:1
/job:worker/replica:0/task:2
{_CONNECTED}I coordination_service.h:529] /job:worker/replica:0/task:<other> has connected to coordination service. Incarnation: <number>
I coordination_service.cc:502] Waiting for 1/3 tasks to connect.
I coordination_service.cc:505] Example stragglers:
/job:worker/replica:0/task:<blamed>
"""
_TRAINS = f"""{_STARTED}{_CONNECTED}INFO:tensorflow:Using MirroredStrategy with devices ('/job:worker/task:<me>/device:CPU:0',)
step 0 of 3 replicas
"""
_RESET = """Additional GRPC error information from remote target /job:worker/replica:0/task:<blamed> while calling /tensorflow.WorkerService/RecvBuf:
:UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"recvmsg:Connection reset by peer"}
"""
_DIED_NEXT = f"""{_TRAINS}{_TRACE}UnavailableError: {{{{function_node __inference_<lambda>_58}}}} Collective ops is aborted by: recvmsg:Connection reset by peer
{_RESET}{_RESTART}"""
_DIED_FAR = f"""{_TRAINS}{_TRACE}UnavailableError: {{{{function_node __inference_<lambda>_58}}}} Collective ops is aborted by: Collective ops is aborted by: recvmsg:Connection reset by peer
{_RESET}The error could be from a previous operation. Restart your program to reset.
Additional GRPC error information from remote target /job:worker/replica:0/task:<next> while calling /tensorflow.WorkerService/RecvBuf:
:UNKNOWN:Error received from peer  {{grpc_message:"Collective ops is aborted by: recvmsg:Connection reset by peer", grpc_status:14}}
{_RESTART}"""
_SIZES = f"""{_STARTED}{_CONNECTED}{_TRACE}InternalError: {{{{function_node __inference_<lambda>_31}}}} Collective ops is aborted by: Device /job:worker/replica:0/task:1/device:CPU:0 is joining a group with size<joins>, but that group has size <has> (group_key=1)
{_RESTART}"""
_UNEXPECTED = f"""{_STARTED}{_TRACE}InvalidArgumentError: Unexpected task registered with task_name=/job:worker/replica:0/task:2
Additional GRPC error information from remote target /job:worker/replica:0/task:0 while calling /tensorflow.CoordinationService/RegisterTask:
:UNKNOWN:Error received from peer  {{grpc_message:"Unexpected task registered with task_name=/job:worker/replica:0/task:2", grpc_status:3}}
"""


def make_logs(name: str, blamed: int, seed: int) -> list[str]:
    """Return the logs of a cluster's three workers, where worker `blamed` failed as in LOGS.

    Addresses and numbers are drawn from `seed`, and so are the idle lines that are missing.
    """
    rng = np.random.default_rng(seed)
    logs = [_write_log(name, blamed, worker) for worker in range(CLUSTER)]
    return [fill_in(log, int(rng.integers(2**31)), worker) for worker, log in enumerate(logs)]


def _write_log(name: str, blamed: int, me: int) -> str:
    """Return the log of worker `me`, with places to fill in."""
    others = {"next": (blamed + 1) % CLUSTER, "blamed": blamed, "me": me}
    others["other"] = 3 - blamed  # of workers 1 and 2
    if name == "mismatched-sizes":
        log = _UNEXPECTED if (blamed, me) == (0, 2) else _SIZES
        others |= {"joins": 3, "has": 2} if blamed == 0 else {"joins": 2, "has": 3}
    elif name == "dead-peer":
        died = _DIED_NEXT if me == others["next"] else _DIED_FAR
        log = _TRAINS if me == blamed else died
    elif me == blamed:
        log = "" if name == "missing-peer" else LOGS[name].replace("`task_id` 2", "`task_id` 3")
    elif blamed == 0:
        log = _STARTED
    else:
        log = _WAITS if me == 0 else _STARTED + _CONNECTED
    for word, number in others.items():
        log = log.replace(f"<{word}>", str(number))
    return log


def fill_in(log: str, seed: int, worker: int = 0) -> str:
    """Return `log` with addresses and numbers drawn from `seed`, and without some idle lines."""
    log = re.sub(r"<(host|port) (?:0|ME)>", rf"<\1 {worker}>", log)
    rng = np.random.default_rng(seed)
    network = f"10.{rng.integers(256)}.{rng.integers(256)}."
    hosts = [network + str(n) for n in rng.choice(np.arange(2, 250), size=8, replace=False)]
    ports = [str(n) for n in rng.integers(20_000, 60_000, size=8)]
    text = re.sub(r"<host (\d)>", lambda m: f"{hosts[int(m[1])]}:{ports[int(m[1])]}", log.strip())
    text = re.sub(r"<port (\d)>", lambda m: ports[int(m[1])], text)
    text = re.sub(r"<number>", lambda m: str(rng.integers(10**17, 10**18)), text)
    lines = text.split("\n")
    idle = [
        k for k, line in enumerate(lines) if line.startswith(("I grpc_server", "    self._init"))
    ]
    idle = idle if len(lines) > 1 else []  # a log of one line says that it started
    dropped = {k for k in idle if rng.random() < 0.5}
    return "\n".join(line for k, line in enumerate(lines) if k not in dropped)
