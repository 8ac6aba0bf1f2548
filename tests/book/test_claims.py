"""The list of claims is whole, ordered and unambiguous."""

import re

import pytest

from kvedu.book.claims import all_claims, find_claim
from kvedu.errors import KveduError

A_ROWS = {1: 3, 2: 4, 3: 3, 4: 3, 5: 2, 6: 3, 7: 3, 8: 3, 9: 14}
CHAPTERS = {f"A{number}": number for number in range(1, 10)}
ELSEWHERE = {"A9.3": 17, "A9.2": 12, "A9.9": 7}
"""Rows of the technique table that the chapter on the technique examines."""


def row_of(claim_id: str) -> str:
    return re.sub("[a-z]$", "", claim_id)


def test_every_row_of_both_documents_is_there_in_order() -> None:
    wanted = [f"A{section}.{row}" for section, rows in A_ROWS.items() for row in range(1, rows + 1)] + ["A10", "A11"]
    wanted += [f"B{row}" for row in range(1, 14)]
    rows = list(dict.fromkeys(row_of(claim.id) for claim in all_claims()))
    assert rows == wanted


def test_sub_ids_run_from_a_without_gaps() -> None:
    rows: dict[str, list[str]] = {}
    for claim in all_claims():
        rows.setdefault(row_of(claim.id), []).append(claim.id.removeprefix(row_of(claim.id)))
    for row, letters in rows.items():
        assert letters == ([""] if len(letters) == 1 else [chr(97 + i) for i in range(len(letters))]), row
    assert len(rows["A3.3"]) == 7 and len(rows["B8"]) == 12 and len(rows["A10"]) == 8


def test_each_claim_is_a_sentence_with_a_chapter() -> None:
    for claim in all_claims():
        assert claim.claim.endswith(".") and claim.section, claim
        assert 1 <= claim.chapter <= 20
        row = row_of(claim.id)
        assert claim.chapter == ELSEWHERE.get(row, CHAPTERS.get(row.split(".")[0], claim.chapter))
    assert len({claim.claim + claim.section for claim in all_claims()}) == len(all_claims())


def test_unknown_id_names_its_neighbors() -> None:
    assert find_claim("A3.3c").claim == "Falcon uses MQA."
    with pytest.raises(KveduError, match="A3.3a, A3.3b"):
        find_claim("A3.3")
    with pytest.raises(KveduError, match="claims.json"):
        find_claim("C1")
