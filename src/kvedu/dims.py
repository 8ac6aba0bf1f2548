"""The dimension key: one letter per axis, the same in signatures, suffixes, prose and figures.

A tensor's name ends in the letters of its axes: ``q_NHD`` has axes N (tokens of
the step), H (query heads) and D (head size). Papers use other letters; the
notation page of the book maps them.
"""

KEY: dict[str, str] = {
    "B": "sequences in a batch",
    "T": "new tokens of each sequence in a rectangular step",
    "S": "cached tokens of a sequence (the new ones of the step included once appended)",
    "N": "new tokens of a ragged step, all sequences together",
    "H": "query heads",
    "K": "KV heads",
    "G": "queries per KV head, G = H / K",
    "D": "head size",
    "M": "model width",
    "F": "MLP width",
    "V": "vocabulary size",
    "L": "layers",
    "P": "physical pages in a pool",
    "C": "tokens per page",
    "J": "pages per sequence",
    "Z": "latent width (multi-head latent attention)",
}

LAW = "H = K * G"
"""The one relation between letters that every attention in this library relies on."""


def shape(letters: str, sizes: dict[str, int]) -> tuple[int, ...]:
    """Shape of a tensor named by its axes: ``shape("NHD", {"N": 5, "H": 9, "D": 64}) == (5, 9, 64)``.

    Raises ``KeyError`` for a letter that is not in the key or has no size.
    """
    for letter in letters:
        if letter not in KEY:
            raise KeyError(f"{letter!r} is not in the dimension key; it has {' '.join(KEY)}")
    return tuple(sizes[letter] for letter in letters)
