"""What an answer's text may name without a human looking: modules, their parts, names of methods.

Tables only; `answer_reader` reads answers by them.
"""

import sys
from importlib.util import find_spec

KNOWN = frozenset(
    "abc array ast base64 bisect cmath collections contextlib copy csv dataclasses "
    "datetime decimal enum errno fnmatch fractions functools gc glob h5py hashlib heapq io "
    "ipaddress itertools json keras logging math matplotlib numbers numpy operator os pathlib "
    "posixpath pprint queue random re scipy shutil statistics string struct sys tempfile "
    "tensorflow tensorflow_datasets textwrap tf_keras time timeit tqdm traceback types typing "
    "typing_extensions uuid warnings zipfile zlib __future__".split()
)
MODULES = frozenset(name for name in KNOWN if find_spec(name))  # not one that an answer writes
# Modules that others hold, as `shutil.sys` and `logging.threading`: none is an answer's way.
COMMON = set("code platform profile select signal stat test token trace".split())
TUNNELS = (sys.stdlib_module_names - KNOWN - COMMON) | set(
    "gc os sys timeit traceback src modules".split()
)
LOOSE = frozenset("matplotlib tensorflow_datasets h5py tqdm".split())  # hold what they import
ORDINARY = {("tf", "threading"), ("tensorflow", "threading")}  # of tf.config
PARTS = {  # of a module that reaches further, what an answer may use
    "ast": {"literal_eval"},
    "gc": {"collect"},
    "io": {"BytesIO", "StringIO"},
    "os": set(
        "path listdir scandir makedirs mkdir remove unlink rmdir removedirs rename "
        "replace walk sep stat fspath getcwd environ getenv cpu_count PathLike access "
        "curdir pardir linesep name "
        "getpid R_OK W_OK F_OK O_RDONLY truncate DirEntry urandom fsync devnull".split()
    ),
    "sys": set(
        "maxsize float_info version version_info stdout stderr platform byteorder getsizeof "
        "float_repr_style getrecursionlimit setrecursionlimit exit".split()
    ),
    "timeit": {"default_timer"},
    "traceback": {"print_exc", "format_exc"},
    "types": {"SimpleNamespace", "MappingProxyType"},
    "string": set(
        "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits punctuation "
        "printable whitespace capwords Template".split()
    ),
}
EQUAL = ("__eq__", "__ne__")
ENVIRON = frozenset("get items keys values copy".split())  # what only reads os.environ
BUILTINS = frozenset(
    "exec eval compile __import__ globals locals vars setattr delattr breakpoint input memoryview "
    "__builtins__ __loader__ __spec__ __build_class__ get_ipython".split()
)
METHODS = frozenset(  # the double-underscore names that an ordinary class defines or calls
    "__init__ __call__ __len__ __iter__ __next__ __enter__ __exit__ __repr__ __str__ __name__ "
    "__post_init__ __getitem__ __setitem__ __delitem__ __contains__ __reversed__ __doc__ "
    "__version__ __annotations__ __slots__ __main__ __all__ __hash__ __bool__ __int__ __float__ "
    "__index__ __abs__ __neg__ __pos__ __lt__ __le__ __gt__ __ge__ __add__ __sub__ __mul__ "
    "__truediv__ __floordiv__ __mod__ __divmod__ __pow__ __matmul__ __radd__ __rsub__ __rmul__ "
    "__rtruediv__ __rfloordiv__ __rmod__ __rpow__ __rmatmul__ __iadd__ __isub__ __imul__ "
    "__itruediv__ __ifloordiv__ __imod__ __ipow__ __and__ __or__ __xor__ __ior__ __invert__ "
    "__lshift__ __rshift__ __round__ __floor__ __ceil__ __missing__ __format__".split()
)
PRIVATE = frozenset("_replace _asdict _fields _make".split())  # of named tuples
ATTRIBUTES = frozenset(
    "as_strided ctypes ctypeslib f_back f_globals f_locals f_code f_builtins tb_frame "
    "gi_frame gi_code cr_frame ag_frame ast_transformers user_ns load_op_library load_library "
    "run_cell_magic getoutput system set_trace core f2py testing raw_ops attrgetter "
    "methodcaller singledispatch singledispatchmethod get_type_hints ForwardRef "
    "enable_unsafe_deserialization deserialize_keras_object dispatch_for_api "
    "dispatch_for_unary_elementwise_apis dispatch_for_binary_elementwise_apis "
    "StubOutForTesting currentframe get_annotations evaluate_forward_ref mock bltns python exec "
    "globals locals vars setattr delattr breakpoint enable_debug_mode "
    "enable_dump_debug_info".split()
)
# What belongs to the objects that exercises hand out, and is never an answer's to replace.
HANDED = frozenset(
    "run reduce scope gather extended num_replicas_in_sync cluster_resolver take_step schedule "
    "exchange experimental_local_results experimental_distribute_dataset get_weights set_weights "
    "experimental_distribute_values_from_function distribute_datasets_from_function".split()
)
UNWANTED = ATTRIBUTES | TUNNELS | HANDED
OPTIONS = {"allow_pickle": False, "safe_mode": True, "closefd": True}  # of what reads a file
WRAPPERS = {"wraps": 1, "update_wrapper": 2}  # with more arguments they set any attribute
# of ATTRIBUTES, those that are ordinary elsewhere
WORDS = frozenset("core system testing mock python globals locals vars".split())
PRIVATE_PACKAGES = ("tensorflow.python", "tensorflow.core", "keras.src", "numpy.core",
                    "numpy._core", "numpy.testing", "numpy.ctypeslib", "numpy.lib",
                    "logging.config")  # fmt: skip
COMPARISONS = frozenset(  # of numpy.testing, whose other parts run text as code
    f"numpy.testing.assert_{kind}"
    for kind in "allclose equal almost_equal array_equal array_almost_equal array_less".split()
)
SHOWN = frozenset(  # of IPython, what only shows something in a notebook
    f"IPython.display.{name}" for name in "display Markdown HTML Math Latex clear_output".split()
)
SUBMODULES = frozenset("keras data nn random linalg path layers optimizers losses".split())
PROGRAM_MODULES = frozenset({"argparse"})
PROGRAM_PARTS = frozenset({"sys.argv", "os.environ.setdefault", "os.environ.pop"})
