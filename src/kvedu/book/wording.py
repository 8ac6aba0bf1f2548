"""How a computed sentence is set on a page: signs, apostrophes and dates that the language asks for, not those of a keyboard."""

import re


def typeset(text: str) -> str:
    """A minus before a negative number, a curly apostrophe, and a date that stays on its line.

    >>> typeset("-3.8% against MHA's, 2026-01-02")
    '−3.8% against MHA’s, 2026‑01‑02'
    """
    text = re.sub(r"(?<![\w.,)\]%-])-(?=\d)", "−", text)
    text = re.sub(r"\b(\d{4})-(\d\d)-(\d\d)\b", "\\1\u2011\\2\u2011\\3", text)
    return re.sub(r"(?<=\w)'(?=\w)|(?<=s)'(?=\s)", "’", text)
