"""Lesson 24: the second kernel's layout, what an all-reduce carries, what to cut, stray keys."""

from distlab.turns.turn import Turn

LOGITS = Turn(
    lesson="24",
    name="logits_layout",
    answer='("model", None)',
    right="Rows meet the columns of the layer before, so each device multiplies what it has.",
    mistakes={
        '(None, "model")': "That's columns again. A device has half of the hidden values, so it "
        "needs the half of the rows that belongs to them.",
        '("batch", None)': "The batch axis splits the images. The hidden values are split over the "
        "other axis.",
        "(None, None)": "Then each device holds the kernel in full, and uses half of it.",
    },
    otherwise='Write two entries, one for rows and one for columns: None or "model".',
)

REDUCED = Turn(
    lesson="24",
    name="logits_bytes",
    answer="""
    def logits_bytes(images, batch, model):
        return images // batch * 10 * 4
    """,
    right="Each device has all ten logits of its row of the mesh, as partial sums.",
    mistakes={
        "lambda images, batch, model: images * 10 * 4": "Those are the logits of the global "
        "batch. A device works on one share of it.",
        "lambda images, batch, model: images // batch * 10 // model * 4": "The columns of the "
        "logits aren't split: each device has a partial sum for all ten.",
        "lambda images, batch, model: images // batch * 10": "You counted numbers. Each float32 "
        "takes four bytes.",
    },
    otherwise="How many images does a device work on, how many logits has each, and how large?",
    cases=((64, 2, 2), (128, 2, 4), (96, 4, 2)),
)

CUT = Turn(
    lesson="24",
    name="cut",
    answer="""
    def cut(shape, devices):
        axis = next((k for k, n in enumerate(shape) if n % devices == 0), None)
        return tuple("batch" if k == axis else None for k in range(len(shape)))
    """,
    right="One axis is enough, and an axis that doesn't divide stays whole.",
    mistakes={
        'lambda shape, devices: tuple("batch" if k == 0 else None for k in range(len(shape)))': "You "
        "always cut the first axis. A bias of 10 numbers doesn't divide by 4, and JAX refuses it.",
        'lambda shape, devices: tuple("batch" if n % devices == 0 else None for n in shape)': "You "
        "cut every axis that divides. One axis of a mesh can cut one axis of a variable.",
        'lambda shape, devices: tuple("batch" if n == max(shape) else None for n in shape)': "You "
        "cut the largest axis. It has to divide by the number of devices too.",
    },
    otherwise='Return one entry per axis: "batch" for the first axis that divides, None otherwise.',
    cases=(((784, 256), 4), ((10,), 4), ((10, 256), 4), ((30, 8), 4)),
    read=lambda layout: [str(axis) for axis in layout],
)

UNMATCHED = Turn(
    lesson="24",
    name="unmatched",
    answer="""
    def unmatched(keys, paths):
        import re
        return [key for key in keys if not any(re.fullmatch(key, path) for path in paths)]
    """,
    right="A key counts only if it matches a whole path, from the first letter to the last.",
    mistakes={
        "lambda keys, paths: [key for key in keys if not any(__import__('re').search(key, path) "
        "for path in paths)]": "search() finds a key anywhere in a path. Keras matches whole paths.",
        "lambda keys, paths: [key for key in keys if not any(__import__('re').match(key, path) "
        "for path in paths)]": "match() is content with the beginning of a path. Keras matches "
        "whole paths.",
        "lambda keys, paths: [path for path in paths if not any(__import__('re').fullmatch(key, "
        "path) for key in keys)]": "Those are the paths without a key. Return the keys without a "
        "path.",
        "lambda keys, paths: [key for key in keys if key not in paths]": "Keys are patterns: "
        "compare with re.fullmatch(), or a key such as .*hidden/kernel never matches.",
    },
    otherwise="Keep a key if re.fullmatch(key, path) is None for every path.",
    cases=(
        (["hidden/kernel", ".*logits/kernel"], ["net/hidden/kernel", "net/logits/kernel"]),
        ([".*logit/kernel", ".*bias"], ["net/hidden/kernel", "net/hidden/bias"]),
        (["net/hidden", ".*kernel"], ["net/hidden/kernel"]),
    ),
    read=lambda keys: str(list(keys)),
)
