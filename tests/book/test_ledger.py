"""A verdict needs a measurement, travels in its cell's output, and is counted from there."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvedu.book.claims import all_claims
from kvedu.book.ledger import METADATA_KEY, judge, verdict
from kvedu.book.provenance import common_parts
from kvedu.book.records import Recorded, count_verdicts, read_records
from kvedu.book.rows import Row
from kvedu.book.wording import typeset
from kvedu.errors import KveduError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "_ext"))
import kvedu_verdicts  # noqa: E402

ROW = Row(
    "speed", "python bench/x.py", {"x": 1}, {"cpu": "a chip", "cores": 4}, "2026-01-02", {"python": "3.11"}, "abc123"
)


@pytest.mark.parametrize(
    ("holds", "condition", "words"),
    [
        (True, "", "holds"),
        (np.bool_(False), "at batch 1", "does not hold"),
        ("when", "S > 8", "holds when S > 8"),
        (None, "S > 8", "holds when S > 8"),
    ],
)
def test_words(holds: Any, condition: str, words: str) -> None:
    result = judge("A1.1a", holds, measured="ratio 7", condition=condition, value=7, unit="x")
    assert result.words == words
    assert result.claim.id == "A1.1a" and result.value == 7.0
    assert json.loads(json.dumps(result.record()))["claim"] == "A1.1a"


@pytest.mark.parametrize(
    ("arguments", "sign"),
    [
        (("A1.1", True, {"measured": "7"}), "A1.1a, A1.1b"),
        (("A1.1a", True, {"measured": " "}), "without a measurement"),
        (("A1.1a", "when", {"measured": "7"}), "needs the condition"),
        (("A1.1a", "holds", {"measured": "7"}), "'holds'"),
        (("A1.1a", True, {"measured": "7", "value": 7}), "no unit"),
    ],
)
def test_refusals(arguments: tuple[str, Any, dict[str, Any]], sign: str) -> None:
    claim_id, holds, rest = arguments
    with pytest.raises(KveduError, match=sign):
        judge(claim_id, holds, **rest)


def test_source_is_this_run_or_the_row() -> None:
    here = judge("A1.1a", True, measured="7").source
    assert {"machine", "date", "versions", "commit"} <= set(here) and here["machine"]["cores"] >= 1
    stored = judge("A1.1a", True, measured="7", row=ROW)
    assert stored.source["commit"] == "abc123" and stored.source["command"] == "python bench/x.py"
    assert "a chip (4 cores), 2026-01-02, commit abc123" in str(stored)


def test_html_is_escaped_and_anchored() -> None:
    html = judge("A1.1a", False, measured="<b> & 3", condition="x < 4", row=ROW).to_html()
    assert (
        "&lt;b&gt; &amp; 3" in html and "x &lt; 4" in html and 'id="verdict-A1.1a"' in html and "Does not hold" in html
    )


def test_html_is_set_as_prose_is() -> None:
    html = judge("A1.1a", False, measured="-3.8% against MHA's", condition="at batch 1", row=ROW).to_html()
    assert "−3.8% against MHA’s" in html and "2026\u201101\u201102" in html and "</strong> (at batch 1): −3.8%" in html


@pytest.mark.parametrize(
    ("text", "set_"),
    [
        ("-3.8% and (-2)", "−3.8% and (−2)"), ("3-4, x-1, 1e-05, --8, a[-1]", "3-4, x-1, 1e-05, --8, a[−1]"),
        ("a model's, the models' own", "a model’s, the models’ own"), ("on 2026-11-30.", "on 2026\u201111\u201130."), ("'quoted'", "'quoted'"),
    ],
)  # fmt: skip
def test_signs(text: str, set_: str) -> None:
    assert typeset(text) == set_


def test_the_ledger_says_what_waits_and_what_is_not_the_common_origin() -> None:
    here = judge("A1.1a", True, measured="ratio 7.", row=ROW).record()
    common = common_parts([here["source"]], "place", "date", "commit")
    assert kvedu_verdicts.measured(here, common) == "ratio 7."
    later = here | {"source": here["source"] | {"commit": "def"}}
    assert kvedu_verdicts.measured(later, common) == "ratio 7. Commit def."
    found = {claim.id: Recorded("book/01", here) for claim in all_claims() if claim.chapter != 9}
    n = len(all_claims()) - len(found)
    assert kvedu_verdicts.waiting(found, {"book/08-x", "book/10-x"}) == "They are to be examined in chapter 9, which is not written yet."
    del found["A11"]
    assert kvedu_verdicts.waiting(found, {"book/08-x", "book/10-x"}).startswith(f"{n} of them are to be examined in chapter 9")
    assert kvedu_verdicts.waiting(found, {"book/08-x", "book/10-x"}).endswith("In chapter 10, which is written, 1 still waits for a cell.")


def test_a_short_verdict_leaves_the_condition_to_the_box() -> None:
    when = judge("A1.1a", "when", measured="7", condition="x < 4", row=ROW).record()
    assert kvedu_verdicts.short(Recorded("book/01", when)) == "holds under a condition"
    assert kvedu_verdicts.short(Recorded("book/01", when | {"holds": False})) == "does not hold"


def test_without_a_notebook_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    verdict("A1.1a", True, measured="ratio 7", row=ROW)
    assert capsys.readouterr().out.startswith("A1.1a holds: ratio 7.")


def executed(folder: Path, page: str, *records: dict[str, Any]) -> None:
    outputs = [{"output_type": "display_data", "data": {}, "metadata": {METADATA_KEY: record}} for record in records]
    cells = [{"cell_type": "markdown", "source": ""}, {"cell_type": "code", "source": "", "outputs": outputs}]
    path = folder / f"{page}.ipynb"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


def test_records_are_read_and_counted(tmp_path: Path) -> None:
    one = judge("A1.1a", True, measured="7").record()
    two = judge("B10d", "when", measured="7", condition="never").record()
    three = judge("A1.3d", False, measured="7").record()
    executed(tmp_path, "book/01", one, two)
    executed(tmp_path, "book/02", three)
    executed(tmp_path, "book/left-over", judge("A2.4", True, measured="7").record())
    found, problems = read_records(tmp_path, ["book/01", "book/02", "book/plain"])
    assert not problems and set(found) == {"A1.1a", "B10d", "A1.3d"}
    assert found["B10d"].words == "holds when never" and found["A1.3d"].page == "book/02"
    assert count_verdicts(found) == {
        "holds": 1,
        "holds when": 1,
        "does not hold": 1,
        "not examined yet": len(all_claims()) - 3,
    }


def test_a_claim_judged_twice_or_unknown_is_a_problem(tmp_path: Path) -> None:
    record = judge("A1.1a", True, measured="7").record()
    executed(tmp_path, "book/01", record)
    executed(tmp_path, "book/02", record, record | {"claim": "Z9"})
    _, problems = read_records(tmp_path, ["book/01", "book/02"])
    assert len(problems) == 2 and "already has a verdict in book/01" in problems[0] and "Z9" in problems[1]
