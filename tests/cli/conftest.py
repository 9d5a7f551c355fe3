"""The folders that tests of results use, for the commands that read them."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("folders", Path(__file__).parents[1] / "results" / "conftest.py")
_FOLDERS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_FOLDERS)
studies = _FOLDERS.studies
