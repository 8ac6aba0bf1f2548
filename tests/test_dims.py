"""The dimension key: every letter once, shapes by letters."""

import pytest

from kvedu.dims import KEY, shape


def test_shapes_by_letters():
    sizes = {"N": 5, "H": 9, "D": 64}
    assert shape("NHD", sizes) == (5, 9, 64)
    assert shape("", sizes) == ()


def test_unknown_letters_and_missing_sizes_are_errors():
    with pytest.raises(KeyError, match="'X' is not in the dimension key"):
        shape("NX", {"N": 1, "X": 2})
    with pytest.raises(KeyError):
        shape("NH", {"N": 1})


def test_the_key_has_the_letters_that_the_book_uses():
    assert set(KEY) == set("BTSNHKGDMFVLPCJZ")
    assert all(len(letter) == 1 and meaning for letter, meaning in KEY.items())
