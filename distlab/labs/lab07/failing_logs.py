# ruff: noqa: E501
"""Logs of eight clusters that failed for real (TensorFlow 2.21), shortened, for lab 07.

`tests/cluster_mistakes.py` makes the failures. `<host K>` stands for the address of
worker K, `<port K>` for its port, `<number>` for any number: `fill_in` puts some there.
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


def fill_in(log: str, seed: int) -> str:
    """Return `log` with addresses and numbers drawn from `seed`, and without some idle lines."""
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
    dropped = {k for k in idle if rng.random() < 0.5}
    return "\n".join(line for k, line in enumerate(lines) if k not in dropped)
