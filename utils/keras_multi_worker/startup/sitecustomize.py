"""Patch Keras in any Python program, right after the program has imported it.

Python imports a module of this name when it starts, if its folder is in PYTHONPATH. That's how
`distlab run --keras patched` reaches programs that don't know of the patch. It imports nothing for
a program that doesn't use Keras, and prints what it patched. A `sitecustomize` that this one hides
still runs.
"""

import sys
from importlib import util
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
PATCHES = HERE.parent / "__init__.py"  # by its place: the program may have its own `utils`


class PatchKeras:
    """A finder (`sys.meta_path`) that patches Keras at the end of its first import."""

    is_looking = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "keras" or self.is_looking:
            return None
        self.is_looking = True
        try:
            spec = util.find_spec(name)
        finally:
            self.is_looking = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_patch(module: ModuleType) -> None:
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    for line in load_module("keras_multi_worker", PATCHES).patch_keras_fit():
                        print(f"patched: {line}", flush=True)

            spec.loader.exec_module = load_and_patch
        return spec


def load_module(name: str, path: Path) -> ModuleType:
    spec = util.spec_from_file_location(name, path)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_hidden() -> None:
    """Run the `sitecustomize` that Python would have found without ours."""
    others = [path for path in sys.path if Path(path).resolve() != HERE]
    hidden = PathFinder.find_spec("sitecustomize", others)
    if hidden is not None and hidden.origin:
        load_module("hidden_sitecustomize", Path(hidden.origin))


sys.meta_path.insert(0, PatchKeras())
run_hidden()
