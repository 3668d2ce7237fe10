"""Lab 17, Layouts on a mesh: its code, and its judge.

- `compiled_step`: a process with Keras on JAX, which compiles a step of a small Transformer under
  given layouts and tells what each device holds and sends
"""
