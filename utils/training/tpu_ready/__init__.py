"""Find what would stop a Keras model's training step on a TPU, with XLA on the CPU.

`examine_model(model)` traces the step, reads its graph and compiles it. The report
names each op, its layer and the line of Python that made it. Imports no TensorFlow.

- `examination`: `examine_model`: the training step traced, read and compiled by XLA; what was
  found
- `report`: what an examination found, as plain records and as text
- `tracing`: a training step traced twice, what Python did meanwhile, and what its graph says
"""

from .examination import examine_function as examine_function
from .examination import examine_model as examine_model
from .report import ReadyReport as ReadyReport
from .report import TpuFinding as TpuFinding
