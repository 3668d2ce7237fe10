"""A program for the tests of launchers: calls a function of `test_launchers` that a file names."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "library")]

if __name__ == "__main__":
    import test_launchers

    name, arguments = json.loads(Path(sys.argv[1]).read_text())
    getattr(test_launchers, name)(*arguments)
