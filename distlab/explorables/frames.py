"""Many frames in little text: what is the same in all is written once."""

from typing import Any

from distlab.figures.picture import round_exactly, shorten_number

Frame = dict[str, Any]


def freeze(frames: list[Frame]) -> dict[str, Any]:
    """Return {"shapes": …, "texts": …, "frames": …}, so that the browser can make `frames` again.

    A frame is one of the `shapes` with its numbers and words put in: `[shape, leaf, …]`, where a
    word is `[place in texts]`. Leaves that are the same in all frames of a shape stay in it.
    Numbers are shortened (`shorten_number`).
    """
    split = [_split(frame) for frame in frames]
    shapes: dict[str, int] = {}
    members: list[list[int]] = []
    for number, (shape, _) in enumerate(split):
        place = shapes.setdefault(repr(shape), len(shapes))
        if place == len(members):
            members.append([])
        members[place].append(number)
    texts: dict[str, int] = {}
    rows: list[list[Any]] = [[] for _ in frames]
    told = []
    for place, numbers in enumerate(members):
        columns = list(zip(*(split[n][1] for n in numbers), strict=True))
        constant = [len(set(map(repr, column))) == 1 for column in columns]
        leaves = [_intern(c[0], texts) if same else None for c, same in zip(columns, constant)]
        told.append({"shape": split[numbers[0]][0], "leaves": leaves})
        for n in numbers:
            own = [leaf for leaf, same in zip(split[n][1], constant) if not same]
            rows[n] = [place, *(_intern(leaf, texts) for leaf in own)]
    return {"shapes": told, "texts": list(texts), "frames": rows}


def round_numbers(value: Any) -> Any:
    """Return `value` with nine significant digits: the same on every processor."""
    if isinstance(value, dict):
        return {key: round_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(each) for each in value]
    return round_exactly(value) if isinstance(value, float) else value


def _intern(leaf: Any, texts: dict[str, int]) -> Any:
    return [texts.setdefault(leaf, len(texts))] if isinstance(leaf, str) else leaf


def _split(value: Any) -> tuple[Any, list[Any]]:
    """Return a frame without its numbers and words (0 stands for each), and those in order."""
    if isinstance(value, dict):
        parts = {key: _split(value[key]) for key in sorted(value)}
        leaves = [leaf for _, own in parts.values() for leaf in own]
        return {key: shape for key, (shape, _) in parts.items()}, leaves
    if isinstance(value, list | tuple):
        items = [_split(each) for each in value]
        return [shape for shape, _ in items], [leaf for _, own in items for leaf in own]
    if isinstance(value, float):
        return 0, [shorten_number(value)]
    return 0, [value.item() if hasattr(value, "item") else value]
