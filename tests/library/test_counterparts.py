"""docs/counterparts.md: its Python is Python, and its JAX lines run."""

import ast
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "counterparts.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
DEVICES = 'import jax\njax.config.update("jax_num_cpu_devices", 8)\n'


def test_every_block_is_python_of_a_named_framework():
    assert len(BLOCKS) >= 15
    for block in BLOCKS:
        ast.parse(block)
        assert re.match(r"# (PyTorch|JAX)\b", block), block
        assert max(map(len, block.splitlines())) <= 100


def test_the_jax_lines_run():
    program = DEVICES + "\n".join(block for block in BLOCKS if block.startswith("# JAX"))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
