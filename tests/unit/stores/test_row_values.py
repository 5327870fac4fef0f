"""Values of columns that another program wrote."""

import pytest

from tickwork._stores._sql.rows import compile_function

read_texts = compile_function("value", "return texts(value)")


def test_a_list_of_texts():
    assert read_texts('["a", "ü", "\\ud83d\\ude00"]') == ("a", "ü", "😀")


@pytest.mark.parametrize("value", ["[", "7", "[7]", '["\\ud800"]'])
def test_what_is_no_list_of_texts_is_refused(value):
    # A text with half of a surrogate pair could not be written again, and no page could show it.
    with pytest.raises(ValueError):
        read_texts(value)
