"""One training program for every strategy: records in, records out.

    from utils.training import train
    report = train(strategy="mirrored", replicas=4, dataset="fashion_mnist", epochs=2)

Importing this package does not import TensorFlow; `train` does.
"""

from utils.training.config import TrainConfig as TrainConfig
from utils.training.program import train as train
from utils.training.report import TrainingStopped as TrainingStopped
from utils.training.report import TrainReport as TrainReport
