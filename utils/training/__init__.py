"""One training program for every strategy: records in, records out.

    from utils.training import train
    report = train(strategy="mirrored", replicas=4, dataset="fashion_mnist", epochs=2)

Importing this package does not import TensorFlow; `train` does.
"""

from .config import TrainConfig as TrainConfig
from .program import train as train
from .report import TrainingStopped as TrainingStopped
from .report import TrainReport as TrainReport
