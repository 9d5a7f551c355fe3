import pytest

from feelgood.pairs import read_lists, read_numbers


def test_numbers_and_lists_are_read_by_name():
    assert read_numbers("hyper", ("friction=10", "step_size=1e-2")) == {"friction": 10.0, "step_size": 0.01}
    assert read_lists("grid", ("step_size=1e-2,1e-3", "friction=1")) == {"step_size": (0.01, 0.001), "friction": (1.0,)}
    assert read_numbers("hyper", ()) == {} == read_lists("grid", ())


@pytest.mark.parametrize(
    ("read", "word", "message"),
    [
        (read_numbers, "friction", "x must be of the form name=number, got 'friction'"),
        (read_numbers, "friction=1,2", "x must be of the form name=number, got 'friction=1,2'"),
        (read_numbers, "=1", "x must give each name once, got '=1'"),
        (read_numbers, "step_size=2", "x must give each name once, got 'step_size=2'"),
        (read_lists, "friction=1,,2", "x must be of the form name=number,number, got 'friction=1,,2'"),
        (read_lists, "friction=1,1e0", "x must not repeat a number, got friction=1,1"),
    ],
)
def test_other_words_are_refused_in_one_sentence(read, word, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        read("x", ("step_size=1", word))
