"""What would stop a Keras model's training step on a TPU, found with XLA on the CPU.

`examine_model(model)` traces the step, reads its graph and compiles it; the report
names each op, its layer and the line of Python that made it. Imports no TensorFlow.
"""

from .examination import examine_function as examine_function
from .examination import examine_model as examine_model
from .report import ReadyReport as ReadyReport
from .report import TpuFinding as TpuFinding
