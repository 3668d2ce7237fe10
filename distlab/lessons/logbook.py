"""A project's logbook: decisions and expectations before measuring, and the results.

book = Logbook()
book.decide("precision", "float32", "this processor has no fast bfloat16")
book.measure("precision", "bfloat16 takes 2.3 times as long")
print(book)
"""

from dataclasses import dataclass, field

from distlab.errors import CourseError


@dataclass
class Decision:
    """One question, the choice, its reason, and the later measurement."""

    question: str
    choice: str
    because: str
    measured: str = ""


@dataclass
class Logbook:
    """Entries in the order of the decisions."""

    entries: list[Decision] = field(default_factory=list)

    def decide(self, question: str, choice: str, because: str) -> None:
        """Write a decision down and print it. Deciding again replaces it and its measurement."""
        self.entries = [e for e in self.entries if e.question != question]
        self.entries.append(Decision(question, choice, because))
        print(f"decided: {question}: {choice}, because {because}")

    def measure(self, question: str, found: str) -> None:
        """Write next to a decision what was measured, and print both.

        Raises CourseError where nothing was decided first.
        """
        entry = next((e for e in self.entries if e.question == question), None)
        if entry is None:
            raise CourseError(
                f"{question}: nothing was decided. Call decide({question!r}, choice, "
                "because) before you measure."
            )
        entry.measured = found
        print(f"decided: {entry.choice}; measured: {found}")

    def __str__(self) -> str:
        """Return the entries as a table in Markdown."""
        rows = [f"| {e.question} | {e.choice} | {e.because} | {e.measured} |" for e in self.entries]
        head = ["| question | decided | because | measured |", "|---|---|---|---|"]
        return "\n".join(head + rows)
