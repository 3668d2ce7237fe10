"""`python -m distlab` is `distlab`, also in a folder with its own `utils`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `-m` puts that folder first

from distlab.cli import main  # noqa: E402

sys.exit(main())
