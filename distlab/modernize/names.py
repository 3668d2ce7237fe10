"""Resolve the names in a program: its imports followed, and the kind of each object.

A kind is known where a variable is assigned from a constructor ("metric", "optimizer", "model",
"strategy", "dataset", "loss", …). Usual names of such an object (`optimizer`, `train_accuracy`)
count if nothing else is assigned to them. What is ambiguous has no kind.
"""

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from distlab.modernize.installed import KERAS_IN_TF

CANONICAL = {"tensorflow": "tf", "numpy": "np"}
MULTI_WORKER = re.compile(r"(MultiWorkerMirrored|CollectiveAllReduce)\w*Strategy")
PARAMETER_SERVER = re.compile(r"ParameterServerStrategy")
CONSTRUCTORS = (  # kind, what the constructor's path looks like
    ("metric", r"keras\.metrics\.[A-Z]\w+"),
    ("optimizer", r"keras\.optimizers\.(?:legacy\.|experimental\.)?(?:[A-Z]\w+|get)"),
    ("optimizer", r"keras\.mixed_precision\.[\w.]*LossScaleOptimizer"),
    ("graph optimizer", r"tf\.(?:compat\.v1\.)?train\.\w+Optimizer"),
    ("model", r"keras\.(?:models\.)?(?:Sequential|Model|load_model|clone_model)"),
    ("model", r"keras\.applications\.(?:\w+\.)?[A-Z]\w+"),
    ("symbolic", r"keras\.(?:layers\.)?Input"),
    ("layer", r"keras\.layers\.[A-Z]\w+"),
    ("loss", r"keras\.losses\.[A-Z]\w+"),
    ("strategy", r"tf\.distribute\.[\w.]*Strategy\w*"),
    ("dataset", r"tf\.data\.\w*Dataset(?:\.\w+)?"),
)
CONVENTIONS = (  # kind, what everyone calls it
    ("optimizer", r"(?:.*_)?(?:optimizer|opt)"),
    ("model", r"(?:.*_)?model"),
    ("strategy", r"(?:.*_)?strategy"),
    ("dataset", r"(?:.*_)?(?:dataset|ds)"),
    ("metric", r"(?:.*_)?(?:loss|accuracy|acc|metric|auc|precision|recall)(?:_metric|_mean)?"),
)
AMBIGUOUS = "ambiguous"
KERAS_KINDS = ("metric", "optimizer", "model", "layer", "loss", "symbolic")


def get_dotted(node: ast.AST) -> str | None:
    """Return "a.b.c" for such an expression, None for any other."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def find_forms(path: str, legacy: bool = False) -> Iterator[str]:
    """Yield the names under which the table may list `path`: tf.keras.X and keras.X are one."""
    yield path
    path = path.replace("horovod.tensorflow.keras", "horovod.keras")
    yield path
    if not legacy and path.startswith(("tf.keras.", *(f"tf.{name}." for name in KERAS_IN_TF))):
        yield "keras." + path.removeprefix("tf.").removeprefix("keras.")


class Names:
    """The names of one program."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.tree, self.nodes = tree, list(ast.walk(tree))
        self.legacy = bool(re.search(r"TF_USE_LEGACY_KERAS\W+[\"']?(?:1|[Tt]rue)", text))
        self.paths: dict[str, str] = {}
        self._bind_imports()
        self.roots = {path.split(".")[0] for path in self.paths.values()}
        self.keras_2 = self.legacy or "tf_keras" in self.roots
        self.constants: dict[str, ast.expr] = {}
        self.kinds: dict[str, str | None] = {}
        self._find_kinds()

    def of_type(self, kind: type) -> Iterator:
        return (node for node in self.nodes if isinstance(node, kind))

    # ---- paths

    def _bind_imports(self) -> None:
        found: list[tuple[str, str]] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [
                    (a.asname or a.name.split(".")[0], a.name if a.asname else a.name.split(".")[0])
                    for a in node.names
                ]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found += [(a.asname or a.name, f"{node.module}.{a.name}") for a in node.names]
        for name, path in found:
            path = make_canonical(path)
            if self.paths.setdefault(name, path) != path:
                self.paths[name] = ""  # two meanings: none
        for name in [argument.arg for argument in self.of_type(ast.arg)]:
            self.paths.pop(name, None)
        for node in self.of_type(ast.Assign):  # layers = tf.keras.layers
            target = node.targets[0]
            path = self.resolve(node.value) if isinstance(node.value, ast.Attribute) else None
            if path and isinstance(target, ast.Name) and target.id not in self.paths:
                self.paths[target.id] = path

    def resolve(self, node: ast.AST) -> str | None:
        """Return what an expression such as `layers.Dense` names, None if it's unknown."""
        dotted = get_dotted(node)
        if dotted is None:
            return None
        root, _, rest = dotted.partition(".")
        path = self.paths.get(root)
        return f"{path}.{rest}" if path and rest else path or None

    def forms(self, node: ast.AST) -> tuple[str, ...]:
        """Return the names under which the table may list what `node` names."""
        path = self.resolve(node)
        return tuple(dict.fromkeys(find_forms(path, self.legacy))) if path else ()

    # ---- kinds

    def _find_kinds(self) -> None:
        assigned = [
            (target, node.value)
            for node in self.nodes
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        ]
        pairs = [pair for target, value in assigned for pair in _pair_up(target, value)]
        pairs += [
            (item.optional_vars, item.context_expr)
            for node in self.of_type(ast.With)
            for item in node.items
            if item.optional_vars
        ]
        for _ in range(2):  # the second time with what functions return
            self.kinds, self.constants = {}, {}
            for target, value in pairs:
                name = get_dotted(target)
                if name is not None:
                    self._note(name, value)
            self.returned = {
                function.name: self.find_kind(statement.value)
                for function in self.of_type(ast.FunctionDef)
                for statement in ast.walk(function)
                if isinstance(statement, ast.Return) and statement.value
            }

    def _note(self, name: str, value: ast.expr) -> None:
        kind = self._find_call_kind(value)
        if self.kinds.setdefault(name, kind) != kind:
            self.kinds[name] = AMBIGUOUS
        if name in self.constants:
            self.constants[name] = ast.Constant(None)
        else:
            self.constants[name] = value

    returned: dict[str, str | None] = {}

    @cached_property
    def classes(self) -> dict[str, str]:
        """The program's own classes that extend a Keras class: name and kind."""
        found = {}
        for node in self.of_type(ast.ClassDef):
            for base in node.bases:
                kind = match_constructor(self.forms(base))
                if kind in ("model", "layer"):
                    found[node.name] = kind
        return found

    def _find_call_kind(self, node: ast.AST) -> str | None:
        if not isinstance(node, ast.Call):
            return None
        kind = match_constructor(self.forms(node.func))
        if kind == "loss" and any(word.arg == "reduction" for word in node.keywords):
            return "loss with reduction"
        if kind or not isinstance(node.func, ast.Name | ast.Attribute | ast.Call):
            return kind
        if isinstance(node.func, ast.Name):
            return self.classes.get(node.func.id) or self.returned.get(node.func.id)
        if isinstance(node.func, ast.Call):  # Dense(3)(inputs)
            symbolic = any(self.find_kind(argument) == "symbolic" for argument in node.args)
            return "symbolic" if symbolic else None
        return "dataset" if self.find_kind(node.func.value) == "dataset" else None

    def find_kind(self, node: ast.AST) -> str | None:
        """Return the kind of object that an expression is, None if it's unknown."""
        if isinstance(node, ast.Call):
            return self._find_call_kind(node)
        name = get_dotted(node)
        if name is None:
            return None
        kind = self.kinds.get(name)
        if kind == AMBIGUOUS:
            return None
        if kind is None and not self.paths.get(name) and self.knows_conventions:
            last = name.rpartition(".")[2].lower()
            kind = next((k for k, words in CONVENTIONS if re.fullmatch(words, last)), None)
            if name in self.kinds and kind not in ("model", "strategy", "optimizer"):
                return None  # something else is assigned to it
        return None if self.keras_2 and kind in KERAS_KINDS else kind

    @property
    def knows_conventions(self) -> bool:
        """Return whether this is a program for TensorFlow or Keras, not for a similar library."""
        theirs = {path for path in self.paths.values() if path.startswith("horovod.")}
        return bool(self.roots & {"tf", "keras"} or theirs) and not any(
            root in self.roots or f"horovod.{root}" in theirs for root in ("torch", "mxnet")
        )

    # ---- the program as a whole

    @cached_property
    def strategies(self) -> list[ast.Call]:
        """The calls that make a strategy."""
        return [
            node
            for node in self.of_type(ast.Call)
            if match_constructor(self.forms(node.func)) == "strategy"
        ]

    def trains_under(self, strategy: re.Pattern[str]) -> bool:
        """Return whether the program makes a strategy of this kind, and no other."""
        made = [self.resolve(call.func) or "" for call in self.strategies]
        return bool(made) and all(strategy.search(path) for path in made)

    @cached_property
    def guards(self) -> bool:
        """Return whether the program handles differences itself anywhere: worth a closer look."""
        return any(isinstance(node, ast.Try | ast.If) for node in self.nodes)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what holds `node`, from the inside to the module."""
        while (node := self.parents.get(node)) is not None:
            yield node


def make_canonical(path: str) -> str:
    """Return `path` with the names that everyone uses: tf and np; compat.v2 is tf itself."""
    root, _, rest = path.partition(".")
    path = f"{CANONICAL.get(root, root)}.{rest}" if rest else CANONICAL.get(root, root)
    return re.sub(r"^tf\.compat\.v2\b", "tf", path)


def match_constructor(forms: tuple[str, ...]) -> str | None:
    """Return the kind of object that a call of this name makes."""
    for form in forms:
        for kind, words in CONSTRUCTORS:
            if re.fullmatch(words, form):
                return kind
    return None


def _pair_up(target: ast.AST, value: ast.expr) -> Iterator[tuple[ast.AST, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        if len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts)
    elif isinstance(target, ast.Tuple):
        yield from ((each, ast.Constant(None)) for each in target.elts)
    else:
        yield target, value
