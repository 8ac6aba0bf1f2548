"""The held-out prompts: the same bytes as ever, and apart from every text that anything is trained on."""

from __future__ import annotations

import doctest
import re

import pytest

from kvedu import texts
from kvedu.errors import KveduError
from kvedu.texts import held_out


def test_bytes_are_the_ones_that_the_stored_rows_name():
    assert held_out.sha256() == held_out.SHA256, "a frozen set is never edited: add a new file instead"


def test_fifty_prompts_in_four_groups():
    sizes = {group.name: (len(group.prompts), group.temperature) for group in held_out.groups()}
    assert sizes == {"code": (20, 0.0), "edit": (10, 0.0), "prose": (10, 0.0), "creative": (10, 1.0)}
    prompts = [prompt for group in held_out.groups() for prompt in group.prompts]
    assert len(set(prompts)) == 50 and all(prompt.strip() for prompt in prompts)
    assert held_out.group("code").new_tokens == 128


def test_an_unknown_group_is_answered_with_the_names():
    with pytest.raises(KveduError, match="verse.*code, edit, prose, creative"):
        held_out.group("verse")


def runs(text: str, length: int = 10) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + length]) for i in range(len(words) - length + 1)}


def test_no_ten_words_stand_in_a_frozen_text_too():
    frozen = set().union(*(runs(texts.read(name)) for name in texts.names()))
    asked = set().union(*(runs(prompt) for group in held_out.groups() for prompt in group.prompts))
    assert len(frozen) > 5000 and len(asked) > 1000 and not frozen & asked
    assert runs(texts.read("story")[:500]) & frozen  # the check can fail


def test_an_edit_task_asks_for_what_stands_in_it():
    """Its answer is begun with words of its own context."""
    for prompt in held_out.group("edit").prompts:
        context, _, begun = prompt.rpartition("\n\n")
        assert begun.splitlines()[-1].strip() in context


def test_examples_in_docstrings():
    assert doctest.testmod(held_out).failed == 0
