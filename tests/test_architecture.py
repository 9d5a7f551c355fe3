from importlinter.cli import lint_imports


def test_rooms_import_only_rooms_below_them():
    assert lint_imports(no_cache=True) == 0
