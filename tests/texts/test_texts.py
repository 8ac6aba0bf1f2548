"""The frozen texts: same bytes as ever, and each of them what it says it is."""

from __future__ import annotations

import csv
import dataclasses
import doctest
import hashlib
import json
import math
import re
import subprocess
import sys
from collections import Counter
from importlib.resources import files

import pytest

from kvedu import texts
from kvedu.errors import KveduError

MANIFEST = json.loads((files("kvedu.texts") / "MANIFEST.json").read_text(encoding="utf-8"))
ENTRIES = {entry["name"]: entry for entry in MANIFEST["texts"]}
KILOBYTES = {"prose": (23, 27), "story": (10, 13), "dialogue": (7, 9), "code": (13, 15.5),
             "json_logs": (9.5, 12), "tables": (5.5, 7), "recall": (7, 9.5)}  # fmt: skip
DECLARED_NON_ASCII = {"prose", "dialogue", "json_logs", "tables"}


# --- frozen -----------------------------------------------------------------


def test_the_manifest_and_the_folder_name_the_same_files():
    shipped = {path.name for path in files("kvedu.texts").iterdir() if path.name.endswith((".txt", ".json"))}
    assert shipped - {"MANIFEST.json"} == {entry["file"] for entry in ENTRIES.values()}
    assert texts.names() == tuple(ENTRIES)


@pytest.mark.parametrize("name", texts.names())
def test_bytes_are_the_ones_that_the_stored_rows_name(name):
    raw = (files("kvedu.texts") / ENTRIES[name]["file"]).read_bytes()
    assert (len(raw), hashlib.sha256(raw).hexdigest()) == (ENTRIES[name]["bytes"], ENTRIES[name]["sha256"]), (
        f"{name} has changed; a frozen text is never edited: add a new file instead"
    )
    assert texts.sha256(name) == ENTRIES[name]["sha256"]
    assert texts.read(name).encode("utf-8") == raw
    assert ENTRIES[name]["licence"] == "CC-BY-4.0" and ENTRIES[name]["kind"]


@pytest.mark.parametrize("name", texts.names())
def test_sizes_are_near_the_plan(name):
    low, high = KILOBYTES[name]
    assert low * 1000 <= ENTRIES[name]["bytes"] <= high * 1000


def test_the_whole_set_is_some_eighty_kilobytes():
    assert 75_000 <= sum(entry["bytes"] for entry in ENTRIES.values()) <= 90_000
    assert all(texts.read(name) in texts.all_text() for name in texts.names() if name != "recall")
    assert '"passages"' not in texts.all_text()


def test_an_unknown_name_is_answered_with_the_names():
    for call in (texts.read, texts.sha256):
        with pytest.raises(KveduError, match="poem.*prose, story, dialogue, code, json_logs, tables, recall"):
            call("poem")


# --- characters -------------------------------------------------------------


@pytest.mark.parametrize("name", texts.names())
def test_non_ascii_stands_where_it_is_declared_and_only_there(name):
    text = texts.read(name)
    assert (not text.isascii()) == (name in DECLARED_NON_ASCII) == (ENTRIES[name]["encoding"] == "utf-8")
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert not re.search(r"[\r\t\ufeff\u00a0\ufffd]|[ ]+\n", text)


def test_prose_and_dialogue_hold_names_with_accents():
    assert {"Chézy", "Méchain", "Kraków"} <= set(re.findall(r"\w+", texts.read("prose")))
    assert {"ZOË", "ØYSTEIN", "SZYMAŃSKA"} <= set(re.findall(r"\w+", texts.read("dialogue")))


# --- no padding -------------------------------------------------------------


def runs_said_twice(words: list[str], length: int = 8) -> list[str]:
    """List every run of ``length`` words that stands more than once."""
    counts = Counter(tuple(words[i : i + length]) for i in range(len(words) - length + 1))
    return [" ".join(run) for run, times in counts.items() if times > 1]


def test_prose_story_and_dialogue_never_say_eight_words_twice():
    words = re.findall(r"\w+", "\n".join(map(texts.read, ("prose", "story", "dialogue"))).lower())
    assert len(words) > 7000
    assert runs_said_twice(words) == []


def test_that_check_can_fail():
    assert runs_said_twice("a b c d e f g h and again a b c d e f g h".split()) == ["a b c d e f g h"]


@pytest.mark.parametrize("name", ["code", "json_logs", "tables"])
def test_no_long_line_stands_twice_in_structured_text(name):
    lines = Counter(line.strip() for line in texts.read(name).splitlines())
    assert {line for line, times in lines.items() if times > 1 and len(line) > 45} == set()


# --- code -------------------------------------------------------------------


def test_code_runs_as_a_program(tmp_path):
    script = tmp_path / "code.py"
    script.write_text(texts.read("code"), encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "8 tests passed\n"


def test_code_examples_hold(tmp_path, monkeypatch):
    (tmp_path / "frozen_code.py").write_text(texts.read("code"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import frozen_code

    assert doctest.testmod(frozen_code) == doctest.TestResults(failed=0, attempted=1)
    sys.modules.pop("frozen_code")


# --- JSON and tables --------------------------------------------------------


def test_every_json_document_and_line_parses():
    documents = lines = 0
    for block in texts.read("json_logs").strip().split("\n\n"):
        if block.split("\n")[0] in ("{", "["):
            json.loads(block)
            documents += 1
            continue
        for line in block.split("\n"):
            if line.startswith("{"):
                assert isinstance(json.loads(line), dict)
                lines += 1
    assert documents >= 3 and lines >= 25


def _tables() -> dict[str, list[list[str]]]:
    """Read tables.txt: title → rows of cells, head first; markdown or CSV."""
    blocks = texts.read("tables").strip().split("\n\n")
    found = {}
    for title, block in zip(blocks[::2], blocks[1::2], strict=True):
        lines = block.split("\n")
        if lines[0].startswith("|"):
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]
        else:
            rows = list(csv.reader(lines))
        assert len({len(row) for row in rows}) == 1, title
        found[title] = rows
    return found


def test_computed_tables_compute():
    tables = _tables()
    assert len(tables) == 13
    for _, layers, kv_heads, head, size, per_gib in tables["Bytes of keys and values for one token, two bytes a number"][1:]:
        n_bytes = 2 * int(layers) * int(kv_heads) * int(head) * 2
        assert int(size.replace(",", "")) == n_bytes and int(per_gib.replace(",", "")) == 2**30 // n_bytes
    for _, step, hertz, *_ in tables["Twelve equal steps from 440 Hz to its octave"][1:]:
        assert math.isclose(float(hertz), 440 * 2 ** (int(step) / 12), abs_tol=0.005)
    for year, factors, binary, *_ in tables["Some years, taken apart"][1:]:
        assert int(year) == int(binary, 2)
        assert int(year) == math.prod(int(p) ** int(e or 1) for p, _, e in (f.partition("^") for f in factors.split(" x ")))
    for char, _, _, size, hexed in tables["How many bytes a character takes"][1:]:
        assert char.encode("utf-8") == bytes.fromhex(hexed) and int(size) == len(char.encode("utf-8"))
    hands = [int(row[1].replace(",", "")) for row in tables["Cards: how rare is a hand of five"][1:]]
    assert sum(hands) == math.comb(52, 5)


# --- recall -----------------------------------------------------------------


def test_each_answer_stands_once_in_its_context_right_after_its_cue():
    for item in texts.recall_items():
        assert item.context.count(item.answer) == 1, item.cue
        assert item.context.count(f"{item.cue} {item.answer}") == 1, item.cue
        assert item.context.count(item.cue) == 1, item.cue
        assert item.answer not in item.cue
        assert item.context[round(item.depth * len(item.context)) :].startswith(item.answer)
        assert item.prompt == item.context + "\n\n" + item.cue


def test_there_are_enough_items_at_every_depth():
    items = texts.recall_items()
    assert len(items) >= 24 and len({item.cue for item in items}) == len(items)
    fifths = Counter(int(item.depth * 5) for item in items)
    assert all(fifths[fifth] >= 3 for fifth in range(5)), fifths
    assert len({item.context for item in items}) >= 8
    with pytest.raises(dataclasses.FrozenInstanceError):
        items[0].answer = "none"


def test_docstring_examples_hold():
    result = doctest.testmod(texts)
    assert result.attempted >= 3 and result.failed == 0
