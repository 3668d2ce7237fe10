"""Kernels that are ready: `distlab lab` forks them from a process that has imported TensorFlow.

Importing TensorFlow takes a fresh kernel seconds of one core. On Linux the server of
`distlab lab` has one warm process, `warm_process.py`, which has done so when the first
notebook is opened; `provisioner.py` asks it for a fork for each kernel, and starts the plain
kernel whenever that isn't possible: another system, another kind of kernel, variables that
are read when TensorFlow starts, packages installed since, a warm process that doesn't answer.
`DISTLAB_COLD_START=1` turns it off.

A kernel that was forked reads `utils` and `distlab` from their files, so restarting it shows an
edit, and a copy of the course that has its own imports its own. It has TensorFlow, Keras and
Matplotlib imported: variables such as TF_XLA_FLAGS or KERAS_BACKEND that a cell sets before `import
tensorflow` come too late in it. Set them before `distlab lab`, which gives plain kernels if you set
other values. A notebook whose metadata name another Keras backend (`distlab.keras_backend`) gets a
plain kernel with that.

With `DISTLAB_NETWORK=private` (`utils.processes.private_network`), as on a hub, each kernel has a
network that no other user sees, and the server talks to it by Unix sockets.

The warm process itself holds about 280 MB, which its kernels share with it. It ends with the
server, in whatever way that ends, and every kernel with it.

- `pytest_start`: a pytest plugin that makes tests shorter: `addopts` in pyproject.toml names it
- `warm_kernels`: the server's side of the warm process: it asks for kernels, and hears of their
  ends
"""
