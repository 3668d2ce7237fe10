"""Guess first, then look: what a lesson's predict cells call."""

from typing import Any


def show_guess(guess: Any, measured: Any, unit: str = "", how: str = "measured") -> None:
    """Print the reader's guess next to what was measured, in one line.

    `guess` is a number, a word, a guess of `distlab.explorables` (the answer then slides into it),
    or None when nothing was written down; then only what was measured is printed. `unit` follows
    the values (" images/s", "%"), a factor ("x", "×") is printed as "4.0 times", and a currency's
    sign comes before its amount. `how` says where the answer comes from, if not from our
    measurement: "simulated", "computed", "published".
    """
    seen = _format(measured, unit)
    if hasattr(guess, "show_answer"):
        guess.show_answer(seen if guess.asks_for_word else _plain(measured), how)
        guess = guess.value
    if guess is None or (isinstance(guess, str) and not guess.strip()):
        print(f"{how}: {seen}")
    else:
        print(f"you said {_format(guess, '')}, {how}: {seen}")


def _plain(value: Any) -> Any:
    if hasattr(value, "numpy"):  # a tensor or a variable
        value = value.numpy()
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value


def _format(value: Any, unit: str) -> str:
    value = _plain(value)
    text = _format_number(value) if isinstance(value, int | float) else str(value).strip()
    if unit in ("€", "$"):
        return unit + text
    unit = "times" if unit in ("x", "×") else unit
    separator = "" if unit in ("", "%") or unit.startswith(" ") else " "
    return text + separator + unit


def _format_number(value: float) -> str:
    if isinstance(value, int):
        return str(value) if abs(value) < 10_000 else f"{value:,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.4g}"
    return f"{value:.1f}" if text.lstrip("-").isdigit() else text
