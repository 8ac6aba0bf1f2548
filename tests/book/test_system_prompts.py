"""The lengths of system prompts that chapter 5 quotes: how they are read from sources, and that the stored row is theirs."""

import pytest
from measure_system_prompts import SOURCES, constant, key

from kvedu.book.rows import load_row


def test_a_constant_is_read_without_running_the_source() -> None:
    source = 'import nowhere\nclass A:\n    one = "first"\n    two = f"""a{nowhere.x}b"""\n    made = T.of("in a call")\none = "later"\n'
    assert constant("one")(source) == "first"
    assert constant("two")(source) == "ab"
    assert constant("made", "one")(source) == "in a call\nfirst"
    with pytest.raises(KeyError):
        constant("three")(source)


def test_a_key_is_read_from_yaml() -> None:
    assert key("agent", "system")("agent:\n  system: |\n    be kind\n    be short\n") == "be kind\nbe short\n"


def test_the_stored_row_has_every_source() -> None:
    tokens = load_row("system_prompts")["tokens"]
    assert {requirement for requirement, _, _ in SOURCES} < set(tokens)
    assert all(n > 0 for n in tokens.values())
