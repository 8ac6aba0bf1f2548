"""From what a submission reported to its score: every exercise judged here, on the grader's side."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kvedu.grading.find import exercises, find_exercise
from kvedu.grading.judge import Known, judge
from kvedu.grading.verdict import Verdict

NEVER = "never defined: the cell was not run, was deleted, or an error came before it"


@dataclass(frozen=True)
class Part:
    """One exercise of a submission."""

    name: str
    title: str
    points: float
    optional: bool
    verdict: Verdict

    @property
    def score(self) -> float:
        """All its points or none."""
        return self.points if self.verdict.passed else 0.0


@dataclass(frozen=True)
class Score:
    """A graded submission, or one that could not be graded (then ``note`` says why and there are no parts)."""

    status: str
    """graded, cut off, crashed, unreadable."""
    note: str
    lab: str = ""
    parts: tuple[Part, ...] = ()
    errors: tuple[str, ...] = ()
    isolation: str = ""
    seconds: float = 0.0

    @property
    def score(self) -> float:
        """Points, a challenge's on top."""
        return sum(part.score for part in self.parts)

    @property
    def most(self) -> float:
        """Points that can be had without challenges."""
        return sum(part.points for part in self.parts if not part.optional)

    def gradescope(self) -> dict[str, Any]:
        """What Gradescope reads from ``results.json``; ``kvedu`` under ``extra_data`` is for this program."""
        tests = [
            {
                "name": f"{part.name}: {part.title}" + (" (challenge)" if part.optional else ""),
                "number": str(number), "score": part.score, "max_score": part.points,
                "status": "passed" if part.verdict.passed else "failed", "output": str(part.verdict), "visibility": "visible",
            }
            for number, part in enumerate(self.parts, 1)
        ]  # fmt: skip
        data = {"status": self.status, "note": self.note, "lab": self.lab, "max": self.most, "isolation": self.isolation,
                "passed": {part.name: part.verdict.passed for part in self.parts},
                "mistakes": {part.name: part.verdict.sentence for part in self.parts if part.verdict.mistake}}  # fmt: skip
        return {"score": self.score, "execution_time": round(self.seconds, 1), "output": self.report(), "visibility": "visible",
                "tests": tests, "extra_data": {"kvedu": data}}  # fmt: skip

    def report(self) -> str:
        """The same as text, to read."""
        head = f"{self.lab or 'no lab'}: {self.score:g} of {self.most:g} points, {self.status}"
        failed = [part.name for part in self.parts if not part.verdict.passed]
        lines = [head, *([self.note] if self.note else [])]
        lines += [f"not passed: {', '.join(failed)}"] if failed else []
        lines += ["", *(str(part.verdict) for part in self.parts)] if self.parts else []
        lines += ["", "Errors in cells:", *(f"  {error}" for error in self.errors)] if self.errors else []
        return "\n".join([*lines, *(["", self.isolation] if self.isolation else [])])

    def json(self) -> str:
        """``gradescope()`` as text."""
        return json.dumps(self.gradescope(), indent=1, ensure_ascii=False)


def score_events(lab: str, events: list[dict[str, Any]], known: list[Known], *, cut_off: bool, seconds: float) -> Score:
    """Judge what was reported: an exercise passes if one of its reports is right on every seed."""
    parts = []
    for name in exercises(lab):
        seen = [event.get("seen") for event in events if event["event"] == "seen" and event.get("name") == name]
        exercise = find_exercise(name)
        verdicts = [_verdict(name, x, known) for x in seen]
        best = next((v for v in verdicts if v.passed), next((v for v in reversed(verdicts) if v.written), None))
        verdict = best or (verdicts[-1] if verdicts else Verdict(name, False, NEVER, written=False))
        parts.append(Part(name, exercise.title, exercise.points, exercise.optional, verdict))
    errors = tuple(f"cell {event.get('number')}: {event.get('text')}"[:400] for event in events if event["event"] == "error")
    ended = any(event["event"] == "end" for event in events)
    isolation = next((str(event.get("text")) for event in events if event["event"] == "isolation"), "")
    last = max((event["number"] for event in events if event["event"] == "cell" and type(event.get("number")) is int), default=0)
    if cut_off:
        status, note = "cut off", f"the time was over in cell {last}; what was done until then counts"
    elif not ended:
        status, note = "crashed", f"the process ended in cell {last}: out of memory, or ended by its own code; what was done until then counts"
    else:
        status, note = "graded", ""
    return Score(status, note, lab, tuple(parts), errors, isolation, seconds)


def _verdict(name: str, seen: Any, known: list[Known]) -> Verdict:
    """The verdict on one report: the first that fails among its seeds, or a pass on all."""
    if not isinstance(seen, list) or not seen:
        return Verdict(name, False, "nothing was reported")
    for x, mine in zip(seen, known):
        try:
            verdict = judge(name, find_exercise(name), x if isinstance(x, list) else [], mine)
        except Exception as error:  # what was reported was made by a stranger
            return Verdict(name, False, f"the result cannot be read ({type(error).__name__})")
        if not verdict.passed:
            return verdict
    if len(seen) < len(known):
        return Verdict(name, False, "the check did not come to its end")
    return verdict
