"""The commands by task, and examples of each: `distlab`, every `--help`, docs/command-line.md."""

from collections.abc import Iterable

TASKS = {
    "Learn": ("lab", "check", "submit", "reset", "update"),
    "Run": ("train", "run", "classroom", "manifest"),
    "Plan and tune": ("plan", "simulate", "tune-input", "tpu-ready"),
    "Look after": (
        *("doctor", "data", "processes", "tf-config", "diagnose", "modernize"),
        *("help", "completion"),
    ),
    "Teach and write": ("release", "grade", "hub-config", "build", "new", "book"),
}
EXAMPLES = r"""
distlab lab --notebook 03
distlab lab --no-browser --port 8890
distlab check lab05
distlab check lab05 --json
distlab submit lab05 --name ada
distlab submit lab05 --output ../to-send
distlab reset lab05
distlab reset work/05-loss-scaling.ipynb
distlab update
distlab train --strategy mirrored --replicas 4 --loop custom --epochs 2 --json
distlab train --strategy multi-worker --workers 2 --max-examples 2000
distlab run --workers 2 examples/multi_worker_custom_loop.py --epochs 1
distlab run --rendezvous 10.0.0.5:2950 --workers 2 train.py
distlab classroom start --workers 8
distlab classroom start --advertise-address 127.0.0.1 --workers 3
distlab classroom join 192.168.1.10 --name Ada
distlab classroom join 127.0.0.1 --advertise-address 127.0.0.2 --name Ada
distlab classroom test 192.168.1.10 --machines 3
distlab classroom test 192.168.1.10
distlab manifest kubernetes --workers 4 train.py
distlab manifest kubernetes --checkpoint-dir pvc:shared --output . train.py
distlab plan --builtin-model cnn --devices 1,8,64 --machine "H100 on 400Gb/s"
distlab plan --parameters 7e9 --layers 32 --hidden 4096 --sequence 4096 \
    --tokens 1e12 --machine "64 H100, 8 a node, 400Gb/s" --price 3 --explain
distlab simulate step --devices 8 --forward-seconds 0.05 \
    --backward-seconds 0.1 --gradient-bytes 100e6 --latency 10us \
    --bandwidth 100Gb/s
distlab simulate step --devices 64 --ranks-per-node 8 --forward-seconds 0.05 \
    --backward-seconds 0.1 --gradient-bytes 100e6 --latency 10us \
    --bandwidth 100Gb/s --node-latency 2us --node-bandwidth 300GB/s
distlab simulate all-reduce --algorithm ring --ranks 8 --bytes 100e6 \
    --latency 10us --bandwidth 100Gb/s
distlab simulate all-reduce --algorithm naive --ranks 8 --bytes 100e6 \
    --latency 10us --bandwidth 100Gb/s --json
distlab simulate pipeline --schedule 1f1b --stages 4 --micro-batches 16 \
    --forward 1 --backward-input 1 --backward-weight 1 --communication 0
distlab simulate pipeline --schedule gpipe --stages 4 --micro-batches 8 \
    --forward 1 --backward-input 1 --backward-weight 1 --json
distlab simulate parameter-server --workers 8 --step-seconds 0.1 \
    --distribution lognormal --updates 1000
distlab simulate parameter-server --workers 8 --step-seconds 0.1 \
    --distribution constant --updates 1000 --slow-worker 3
distlab simulate failures --nodes 64 --node-mtbf-hours 8760 \
    --checkpoint-seconds 60 --restart-seconds 300
distlab simulate failures --nodes 64 --node-mtbf-hours 8760 \
    --checkpoint-seconds 60 --restart-seconds 300 --interval-seconds 3600
distlab simulate memory --parameters 7.5e9 --data-parallel 64 --zero-stage 1
distlab simulate memory --parameters 7e9 --data-parallel 8 --zero-stage 3 \
    --tensor-parallel 8 --json
distlab tune-input my_module:make_dataset --step-ms 5
distlab tune-input my_module:make_dataset --seconds 60 --json
distlab tpu-ready my_module:make_model
distlab tpu-ready my_module:make_model --batch 64 --json
distlab doctor
distlab doctor --json
distlab data show
distlab data show --json
distlab data verify
distlab data verify fashion-mnist
distlab data fetch mnist
distlab data fetch fashion-mnist --timeout 600
distlab processes list
distlab processes list --json
distlab processes stop
distlab processes stop --all
distlab tf-config build --workers 2 --ps 1 --chief
distlab tf-config build --workers 2 --host one --host two --task worker:0 --export
distlab tf-config lint "$TF_CONFIG"
distlab tf-config lint worker-0.json worker-1.json --strategy multi-worker
distlab diagnose runs/20261122-101500-4711
distlab diagnose worker-0.log worker-1.log --json
distlab modernize train.py
distlab modernize --diff project/ > changes.patch
distlab help tf-config lint
distlab help train
eval "$(distlab completion bash)"
eval "$(distlab completion zsh)"
distlab hub-config --output jupyterhub_config.py
distlab hub-config --course /opt/course --output jupyterhub_config.py
distlab release ../release
distlab release ../first-week --labs lab01 lab02
distlab grade lab05 submitted --gradebook gradebook.db --output report
distlab grade lab05 --status
distlab build 03 --check
distlab build lab05
distlab new lab "gradient clipping"
distlab new lab "ring attention" --root ../course
distlab book
distlab book --output build/book --zip build/book.zip
"""


def list_examples(prog: str, below: Iterable[str] = ()) -> list[str]:
    """Return the examples of a command, such as "distlab train"; of one with commands `below` it,
    the first example of each of the first two.
    """
    if names := list(below)[:2]:
        return [list_examples(f"{prog} {name}")[0] for name in names]
    lines = EXAMPLES.replace("\\\n", "\0").strip().split("\n")
    found = [line for line in lines if f"{line} ".removeprefix('eval "$(').startswith(f"{prog} ")]
    return [line.replace("\0", "\\\n") for line in found]
