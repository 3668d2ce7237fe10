"""The commands by task, and examples of each: `distlab`, every `--help`, docs/command-line.md."""

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
EXAMPLES = {
    "lab": ("distlab lab --notebook 03", "distlab lab --no-browser --port 8890"),
    "check": ("distlab check lab05", "distlab check lab05 --json"),
    "submit": ("distlab submit lab05 --name ada", "distlab submit lab05 --output ../to-send"),
    "reset": ("distlab reset lab05", "distlab reset work/05-loss-scaling.ipynb"),
    "update": ("distlab update", "distlab help update"),
    "train": (
        "distlab train --strategy mirrored --replicas 4 --loop custom --epochs 2 --json",
        "distlab train --strategy multi-worker --workers 2 --max-examples 2000",
    ),
    "run": (
        "distlab run --workers 2 examples/multi_worker_custom_loop.py --epochs 1",
        "distlab run --rendezvous 10.0.0.5:2950 --workers 2 train.py",
    ),
    "classroom": ("distlab classroom start --workers 8", "distlab classroom join 192.168.1.10"),
    "classroom start": (
        "distlab classroom start --workers 8",
        "distlab classroom start --advertise-address 127.0.0.1 --workers 3",
    ),
    "classroom join": (
        "distlab classroom join 192.168.1.10 --name Ada",
        "distlab classroom join 127.0.0.1 --advertise-address 127.0.0.2 --name Ada",
    ),
    "classroom test": (
        "distlab classroom test 192.168.1.10 --machines 3",
        "distlab classroom test 192.168.1.10",
    ),
    "manifest": (
        "distlab manifest kubernetes --workers 4 train.py",
        "distlab manifest kubernetes --checkpoint-dir pvc:shared --output . train.py",
    ),
    "plan": (
        'distlab plan --builtin-model cnn --devices 1,8,64 --machine "H100 on 400Gb/s"',
        "distlab plan --parameters 7e9 --layers 32 --hidden 4096 --sequence 4096 \\\n"
        '    --tokens 1e12 --machine "64 H100, 8 a node, 400Gb/s" --price 3 --explain',
    ),
    "simulate": (
        "distlab simulate all-reduce --algorithm ring --ranks 8 --bytes 100e6 \\\n"
        "    --latency 10us --bandwidth 100Gb/s",
        "distlab help simulate pipeline",
    ),
    "simulate step": (
        "distlab simulate step --devices 8 --forward-seconds 0.05 \\\n"
        "    --backward-seconds 0.1 --gradient-bytes 100e6 --latency 10us \\\n"
        "    --bandwidth 100Gb/s",
        "distlab simulate step --devices 64 --ranks-per-node 8 --forward-seconds 0.05 \\\n"
        "    --backward-seconds 0.1 --gradient-bytes 100e6 --latency 10us \\\n"
        "    --bandwidth 100Gb/s --node-latency 2us --node-bandwidth 300GB/s",
    ),
    "simulate all-reduce": (
        "distlab simulate all-reduce --algorithm ring --ranks 8 --bytes 100e6 \\\n"
        "    --latency 10us --bandwidth 100Gb/s",
        "distlab simulate all-reduce --algorithm naive --ranks 8 --bytes 100e6 \\\n"
        "    --latency 10us --bandwidth 100Gb/s --json",
    ),
    "simulate pipeline": (
        "distlab simulate pipeline --schedule 1f1b --stages 4 --micro-batches 16 \\\n"
        "    --forward 1 --backward-input 1 --backward-weight 1 --communication 0",
        "distlab simulate pipeline --schedule gpipe --stages 4 --micro-batches 8 \\\n"
        "    --forward 1 --backward-input 1 --backward-weight 1 --json",
    ),
    "simulate parameter-server": (
        "distlab simulate parameter-server --workers 8 --step-seconds 0.1 \\\n"
        "    --distribution lognormal --updates 1000",
        "distlab simulate parameter-server --workers 8 --step-seconds 0.1 \\\n"
        "    --distribution constant --updates 1000 --slow-worker 3",
    ),
    "simulate failures": (
        "distlab simulate failures --nodes 64 --node-mtbf-hours 8760 \\\n"
        "    --checkpoint-seconds 60 --restart-seconds 300",
        "distlab simulate failures --nodes 64 --node-mtbf-hours 8760 \\\n"
        "    --checkpoint-seconds 60 --restart-seconds 300 --interval-seconds 3600",
    ),
    "simulate memory": (
        "distlab simulate memory --parameters 7.5e9 --data-parallel 64 --zero-stage 1",
        "distlab simulate memory --parameters 7e9 --data-parallel 8 --zero-stage 3 \\\n"
        "    --tensor-parallel 8 --json",
    ),
    "tune-input": (
        "distlab tune-input my_module:make_dataset --step-ms 5",
        "distlab tune-input my_module:make_dataset --seconds 60 --json",
    ),
    "tpu-ready": (
        "distlab tpu-ready my_module:make_model",
        "distlab tpu-ready my_module:make_model --batch 64 --json",
    ),
    "doctor": ("distlab doctor", "distlab doctor --json"),
    "data": ("distlab data", "distlab data verify fashion-mnist"),
    "data show": ("distlab data show", "distlab data show --json"),
    "data verify": ("distlab data verify", "distlab data verify fashion-mnist"),
    "data fetch": (
        "distlab data fetch mnist",
        "distlab data fetch fashion-mnist --timeout 600",
    ),
    "processes": ("distlab processes list", "distlab processes stop"),
    "processes list": ("distlab processes list", "distlab processes list --json"),
    "processes stop": ("distlab processes stop", "distlab processes stop --all"),
    "tf-config": (
        "distlab tf-config build --workers 2 --ps 1 --chief",
        'distlab tf-config lint "$TF_CONFIG"',
    ),
    "tf-config build": (
        "distlab tf-config build --workers 2 --ps 1 --chief",
        "distlab tf-config build --workers 2 --host one --host two --task worker:0 --export",
    ),
    "tf-config lint": (
        'distlab tf-config lint "$TF_CONFIG"',
        "distlab tf-config lint worker-0.json worker-1.json --strategy multi-worker",
    ),
    "diagnose": (
        "distlab diagnose runs/20261122-101500-4711",
        "distlab diagnose worker-0.log worker-1.log --json",
    ),
    "modernize": (
        "distlab modernize train.py",
        "distlab modernize --diff project/ > changes.patch",
    ),
    "help": ("distlab help tf-config lint", "distlab help train"),
    "completion": ('eval "$(distlab completion bash)"', 'eval "$(distlab completion zsh)"'),
    "hub-config": (
        "distlab hub-config --output jupyterhub_config.py",
        "distlab hub-config --course /opt/course --output jupyterhub_config.py",
    ),
    "release": (
        "distlab release ../release",
        "distlab release ../first-week --labs lab01 lab02",
    ),
    "grade": (
        "distlab grade lab05 submitted --gradebook gradebook.db --output report",
        "distlab grade lab05 --set ana weighted 2 --reason 'explained in the room'",
    ),
    "build": ("distlab build 03 --check", "distlab build lab05"),
    "new": (
        'distlab new lab "gradient clipping"',
        'distlab new lab "ring attention" --root ../course',
    ),
    "book": ("distlab book", "distlab book --output build/book --zip build/book.zip"),
}
