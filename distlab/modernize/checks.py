"""The entries that need more than a name: each check yields the places, some with their edit.

A check says nothing if it isn't sure. The functions passed to `strategy.run` show what a strategy's
replicas run.
"""

import ast
import re
from collections.abc import Iterator
from functools import partial

from distlab.modernize.names import MULTI_WORKER, PARAMETER_SERVER, Names, get_dotted

Places = Iterator[tuple[ast.AST, ...]]
OF_REPLICA = re.compile(r"per_?(replica|worker|gpu|device|core)|local_batch|replica_batch", re.I)
OF_CHIEF = re.compile(r"chief|task_(id|type|index)|rank\b|is_main|is_master|worker_index", re.I)
MIRRORED = re.compile(r"\.MirroredStrategy$")
SLOTTED = re.compile(r"keras\.optimizers\.(?:legacy\.)?(?:Ada\w+|Nadam|RMSprop|Lion)")
MEANS = ("tf.reduce_mean", "tf.math.reduce_mean", "keras.backend.mean", "keras.ops.mean")
VIEWS_ADDED = re.compile(r"[^+]+\.(?:keys|values|items)\(\) \+ [^+]+\.(?:keys|values|items)\(\)")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


# ---- values


def read_texts(names: Names, value: ast.expr, depth: int = 3) -> list[str]:
    """Return the texts that an expression may be, as far as it's written in the program.

    Of a path that is put together (os.path.join, f-strings, +) the end, after "*".
    """
    if isinstance(value, ast.Constant):
        return [value.value] if isinstance(value.value, str) else []
    if depth == 0:
        return []
    read = partial(read_texts, names, depth=depth - 1)
    if isinstance(value, ast.JoinedStr) and value.values:
        last = value.values[-1]
        return ["*" + text for text in read(last)] if isinstance(last, ast.Constant) else []
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Div):
        return ["*" + text for text in read(value.right)]
    if isinstance(value, ast.Call):
        name = (get_dotted(value.func) or "").rpartition(".")[2]
        if name in ("join", "Path", "str", "fspath") and value.args:
            return read(value.args[-1])
        return read(value.func.value) if name == "format" else []
    if isinstance(value, ast.IfExp):
        return [*read(value.body), *read(value.orelse)]
    if isinstance(value, ast.List | ast.Tuple):
        return [text for each in value.elts for text in read(each)]
    dotted = get_dotted(value)
    return read(names.constants[dotted]) if dotted in names.constants else []


def get_argument(call: ast.Call, place: int, *keywords: str) -> ast.expr | None:
    """Return the argument at `place`, or by one of its keywords."""
    named = [word.value for word in call.keywords if word.arg in keywords]
    return [*named, *call.args[place : place + 1], None][0]


def find_methods(names: Names, kind: str, *attributes: str) -> Iterator[ast.Call]:
    """Yield the calls of a method on an object of this kind."""
    for node in names.of_type(ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in attributes:
            if names.find_kind(node.func.value) == kind:
                yield node


def find_named(names: Names, *paths: str) -> Iterator[ast.Call]:
    """Yield the calls of what has one of these names."""
    return (node for node in names.of_type(ast.Call) if set(names.forms(node.func)) & set(paths))


def lacks_suffix(names: Names, value: ast.expr | None, *suffixes: str) -> bool:
    """Return whether a path is known, and ends in none of these."""
    texts = read_texts(names, value) if value is not None else []
    return bool(texts) and not any(text.endswith(suffixes) for text in texts)


# ---- TensorFlow


def shape_value(names: Names) -> Places:
    for node in names.of_type(ast.Attribute):
        if node.attr == "value" and isinstance(node.value, ast.Subscript):
            shape = node.value.value
            name = getattr(shape.func if isinstance(shape, ast.Call) else shape, "attr", "")
            if name in ("shape", "get_shape") and not isinstance(node.value.slice, ast.Slice):
                yield (node,)


def reduce_without_axis(names: Names) -> Places:
    for call in find_methods(names, "strategy", "reduce"):
        if len(call.args) + len(call.keywords) == 2 and get_argument(call, 2, "axis") is None:
            yield (call,)


def _find_fits(names: Names, strategy: re.Pattern[str]) -> Places:
    if names.trains_under(strategy) and "patch_keras_fit" not in names.paths:
        yield from ((call,) for call in find_methods(names, "model", "fit"))


fit_across_workers = partial(_find_fits, strategy=MULTI_WORKER)
fit_on_parameter_servers = partial(_find_fits, strategy=PARAMETER_SERVER)


# ---- Keras


def add_weight_name(names: Names) -> Places:
    for call in names.of_type(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in (
            "add_weight",
            "add_variable",
        ):
            if call.args and isinstance(call.args[0], ast.Constant):
                if isinstance(call.args[0].value, str) and len(call.args) <= 2:
                    yield (call, "name-first")


def _find_saves(names: Names, method: str, *functions: str) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls that save or load a model, with the path."""
    for call in find_methods(names, "model", method):
        if (path := get_argument(call, 0, "filepath")) is not None:
            yield call, path
    for call in find_named(names, *functions):
        place = 0 if "load" in functions[0] else 1
        if (path := get_argument(call, place, "filepath")) is not None:
            yield call, path


def save_without_extension(names: Names) -> Places:
    for call, path in _find_saves(names, "save", "keras.models.save_model"):
        given = any(word.arg == "save_format" for word in call.keywords)
        if not given and lacks_suffix(names, path, ".keras", ".h5", ".hdf5"):
            yield (call,)


def save_weights_name(names: Names) -> Places:
    for call, path in _find_saves(names, "save_weights"):
        if lacks_suffix(names, path, ".weights.h5"):
            yield (call,)


def load_folder(names: Names) -> Places:
    known = (".keras", ".h5", ".hdf5")
    for call, path in _find_saves(names, "load_weights", "keras.models.load_model"):
        newest = isinstance(path, ast.Call) and "tf.train.latest_checkpoint" in names.forms(
            path.func
        )
        if newest or lacks_suffix(names, path, *known):
            yield (call,)


def model_checkpoint_name(names: Names) -> Places:
    return _find_checkpoints(names, False, ".keras", ".h5")


def weights_checkpoint_name(names: Names) -> Places:
    return _find_checkpoints(names, True, ".weights.h5")


def _find_checkpoints(names: Names, weights_only: bool, *suffixes: str) -> Places:
    for call in find_named(names, "keras.callbacks.ModelCheckpoint"):
        flag = get_argument(call, 4, "save_weights_only")
        if flag is not None and not isinstance(flag, ast.Constant):
            continue
        path = get_argument(call, 0, "filepath")
        if bool(flag is not None and flag.value) == weights_only:
            if path is not None and lacks_suffix(names, path, *suffixes):
                literal = isinstance(path, ast.Constant)
                yield (call, f"suffix {suffixes[0]}" if literal else "none")


def integer_input_shape(names: Names) -> Places:
    for call in find_named(names, "keras.Input", "keras.layers.Input"):
        shape = get_argument(call, 0, "shape")
        if isinstance(shape, ast.Constant) and isinstance(shape.value, int):
            yield (shape, "tuple")


def tf_function_on_keras_tensor(names: Names) -> Places:
    parameters = {argument.arg for argument in names.of_type(ast.arg)}
    for call in names.of_type(ast.Call):
        form = (names.forms(call.func) or ("",))[0]
        if re.match(r"tf\.(?!keras|function|data|distribute|print)[\w.]*[a-z]\w*$", form):
            given = [*call.args, *(word.value for word in call.keywords)]
            if any(
                names.find_kind(each) == "symbolic" and get_dotted(each) not in parameters
                for each in given
            ):
                yield (call,)


def compile_reduction(names: Names) -> Places:
    own_step = any(node.name == "train_step" for node in names.of_type(ast.FunctionDef))
    for call in find_methods(names, "model", "compile"):
        loss = get_argument(call, 1, "loss")
        if loss is not None and not own_step:
            made = names.constants.get(get_dotted(loss) or "", loss)
            if isinstance(made, ast.Call) and _has_no_mean(names, made):
                yield (call,)


def _has_no_mean(names: Names, made: ast.Call) -> bool:
    if not any(form.startswith("keras.losses.") for form in names.forms(made.func)):
        return False
    reduction = next((w.value for w in made.keywords if w.arg == "reduction"), None)
    if isinstance(reduction, ast.Constant):
        return reduction.value in ("none", "sum", None)
    return (get_dotted(reduction) or "").endswith((".NONE", ".SUM")) if reduction else False


def steps_per_execution(names: Names) -> Places:
    for call in find_methods(names, "model", "compile"):
        steps = get_argument(call, 8, "steps_per_execution")
        if isinstance(steps, ast.Constant) and steps.value != 1 and names.trains_under(MIRRORED):
            yield (call,)


# ---- losses in what replicas run


def _find_replica_functions(names: Names) -> Iterator[ast.FunctionDef]:
    """Yield the functions that are passed to strategy.run and take gradients."""
    handed = set()
    for call in names.of_type(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in (
            "run",
            "experimental_run_v2",
        ):
            if call.args and names.find_kind(call.func.value) == "strategy":
                handed.add((get_dotted(call.args[0]) or "").rpartition(".")[2])
    for function in names.of_type(ast.FunctionDef):
        if function.name in handed:
            yield function


def _find_losses(names: Names, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield the expression that a function differentiates, one call followed."""
    assigned = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned[node.targets[0].id] = node.value  # the last one counts
    for call in ast.walk(function):
        if (
            isinstance(call, ast.Call)
            and getattr(call.func, "attr", "") == "gradient"
            and call.args
        ):
            loss = assigned.get(getattr(call.args[0], "id", ""), call.args[0])
            yield _follow(names, loss)


def _follow(names: Names, loss: ast.expr) -> ast.expr:
    """Return what a call of one of the program's own functions returns, if that is simple."""
    if not isinstance(loss, ast.Call):
        return loss
    name = (get_dotted(loss.func) or "").rpartition(".")[2]
    bodies = [node for node in names.of_type(ast.FunctionDef) if node.name == name]
    returns = [
        node.value
        for body in bodies
        for node in ast.walk(body)
        if isinstance(node, ast.Return) and node.value
    ]
    return returns[0] if len(returns) == 1 else loss


def _find_replica_losses(names: Names) -> Iterator[ast.expr]:
    for function in _find_replica_functions(names):
        yield from _find_losses(names, function)


def unbuilt_optimizer(names: Names) -> Places:
    methods = [call for call in names.of_type(ast.Call) if isinstance(call.func, ast.Attribute)]
    built = {get_dotted(call.func.value) for call in methods if call.func.attr == "build"}
    for function in _find_replica_functions(names) if names.trains_under(MIRRORED) else ():
        for call in ast.walk(function):
            if call in methods and call.func.attr == "apply_gradients":
                name = get_dotted(call.func.value)
                made = None if name in built else names.constants.get(name or "")
                forms = names.forms(made.func) if isinstance(made, ast.Call) else ()
                momentum = any(word.arg == "momentum" for word in made.keywords) if forms else False
                if momentum or any(SLOTTED.fullmatch(form) for form in forms):
                    yield (made,)


def replica_mean(names: Names) -> Places:
    for loss in _find_replica_losses(names):
        if isinstance(loss, ast.Call) and set(names.forms(loss.func)) & set(MEANS):
            if get_argument(loss, 1, "axis") is None:
                yield (loss,)


def replica_batch(names: Names) -> Places:
    for loss in _find_replica_losses(names):
        divisor = _find_divisor(loss)
        if isinstance(loss, ast.Call) and "tf.nn.compute_average_loss" in names.forms(loss.func):
            divisor = get_argument(loss, 2, "global_batch_size")
        dotted = get_dotted(divisor) if divisor is not None else None
        if dotted and OF_REPLICA.search(dotted):
            yield (loss,)


def keras_loss_divided(names: Names) -> Places:
    for loss in () if names.keras_2 else _find_replica_losses(names):
        divisor = _find_divisor(loss)
        if divisor is not None and (get_dotted(divisor) or "").endswith("num_replicas_in_sync"):
            if isinstance(loss.left, ast.Call) and names.find_kind(loss.left.func) == "loss":
                yield (loss,)


def _find_divisor(loss: ast.expr) -> ast.expr | None:
    """Return d of `x / d` and of `x * (1 / d)`."""
    if not isinstance(loss, ast.BinOp):
        return None
    if isinstance(loss.op, ast.Div):
        return loss.right
    return _find_divisor(loss.right) if isinstance(loss.op, ast.Mult) else None


# ---- several workers


def unseeded_shuffle(names: Names) -> Places:
    calls = {
        getattr(call.func, "attr", getattr(call.func, "id", "")): call
        for call in names.of_type(ast.Call)
    }
    seeded = {"set_seed", "set_random_seed", "shard", "list_files"} & calls.keys()
    in_memory = {"from_tensor_slices", "from_tensors", "from_generator"} & calls.keys()
    other = {"FILE", "OFF"} & {node.attr for node in names.of_type(ast.Attribute)}
    if not names.trains_under(MULTI_WORKER) or seeded or other or not in_memory:
        return
    for call in find_methods(names, "dataset", "shuffle"):
        if get_argument(call, 1, "seed") is None:
            yield (call,)


def compile_outside_scope(names: Names) -> Places:
    for call in find_methods(names, "model", "compile"):
        name = get_dotted(call.func.value)
        if any(_is_scope(node) for node in names.above(call)) or not name:
            continue
        body = next(
            node for node in names.above(call) if isinstance(node, (*FUNCTIONS, ast.Module))
        )
        scopes = [node for node in ast.walk(body) if _is_scope(node)]
        made = [
            target
            for scope in scopes
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign)
            for target in node.targets
        ]
        if any(get_dotted(target) == name for target in made):
            yield (call,)


def _is_scope(node: ast.AST) -> bool:
    """Return whether this is `with strategy.scope():`."""
    return isinstance(node, ast.With) and any(
        isinstance(item.context_expr, ast.Call)
        and getattr(item.context_expr.func, "attr", "") == "scope"
        for item in node.items
    )


def every_worker_saves(names: Names) -> Places:
    words = {node.id for node in names.of_type(ast.Name)}
    words |= {node.attr for node in names.of_type(ast.Attribute)}
    words |= {node.name for node in names.of_type(ast.FunctionDef)}
    if not names.trains_under(MULTI_WORKER) or any(OF_CHIEF.search(word) for word in words):
        return
    yield from ((call,) for call in find_methods(names, "model", "save", "save_weights", "export"))
    yield from (
        (call,) for call in find_named(names, "keras.models.save_model", "tf.saved_model.save")
    )


def late_tf_config(names: Names) -> Places:
    made = {
        call: next((n for n in names.above(call) if isinstance(n, FUNCTIONS)), None)
        for call in names.strategies
        if MULTI_WORKER.search(names.resolve(call.func) or "")
    }
    for node in names.of_type(ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Constant):
            continue
        if target.slice.value == "TF_CONFIG" and names.resolve(target.value) == "os.environ":
            where = next((n for n in names.above(node) if isinstance(n, FUNCTIONS)), None)
            before = [call for call, place in made.items() if call.lineno < node.lineno]
            if any(made[call] is where for call in before) and len(before) == len(made):
                yield (node,)


def adds_dictionary_views(names: Names) -> Places:
    yield from ((n,) for n in names.of_type(ast.BinOp) if VIEWS_ADDED.fullmatch(ast.unparse(n)))
