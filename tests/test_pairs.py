import pytest

from feelgood.pairs import read_lists, read_numbers, read_seeds, read_values, seed_text


def test_numbers_and_lists_are_read_by_name():
    assert read_numbers("hyper", ("friction=10", "step_size=1e-2")) == {"friction": 10.0, "step_size": 0.01}
    assert read_lists("grid", ("step_size=1e-2,1e-3", "friction=1")) == {"step_size": (0.01, 0.001), "friction": (1.0,)}
    assert read_numbers("hyper", ()) == {} == read_lists("grid", ())


def test_values_are_numbers_truth_values_whole_numbers_or_text():
    words = ("a=1", "b=-.01", "c=True", "d=false", "e=8x8", "f=[1]", "g=null", "h=x=y", "i=50,50")
    expected = {
        "a": 1,
        "b": -0.01,
        "c": True,
        "d": False,
        "e": "8x8",
        "f": "[1]",
        "g": "null",
        "h": "x=y",
        "i": (50, 50),
    }
    found = read_values("env_settings", words)
    assert found == expected
    assert [type(found[name]) for name in "abcd"] == [int, float, bool, bool]


@pytest.mark.parametrize(
    ("read", "word", "message"),
    [
        (read_numbers, "friction", "x must be of the form name=number, got 'friction'"),
        (read_numbers, "friction=1,2", "x must be of the form name=number, got 'friction=1,2'"),
        (read_numbers, "=1", "x must give each name once, got '=1'"),
        (read_numbers, "step_size=2", "x must give each name once, got 'step_size=2'"),
        (read_values, "friction=", "x must be of the form name=value, got 'friction='"),
        (read_values, "step_size=a", "x must give each name once, got 'step_size=a'"),
        (read_lists, "friction=1,,2", "x must be of the form name=number,number, got 'friction=1,,2'"),
        (read_lists, "friction=1,1e0", "x must not repeat a number, got friction=1,1"),
    ],
)
def test_other_words_are_refused_in_one_sentence(read, word, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        read("x", ("step_size=1", word))


@pytest.mark.parametrize(
    ("words", "seeds"), [(["3", "7", "11"], [3, 7, 11]), (["0-3"], [0, 1, 2, 3]), (["9", "2-2", "4-5"], [9, 2, 4, 5])]
)
def test_seeds_are_numbers_and_ranges_with_both_ends(words, seeds):
    assert read_seeds(words) == seeds
    assert read_seeds(seed_text(seeds).split()) == seeds


@pytest.mark.parametrize(
    "words", [["-1"], ["1-"], ["4-3"], ["a"], ["1.5"], ["4294967296"], [], ["1", "0-2"], ["0-1000000"]]
)
def test_other_seeds_are_refused_in_one_sentence(words):
    with pytest.raises(ValueError, match=r"^seeds must be .*, got [^\n]*$"):
        read_seeds(words)
