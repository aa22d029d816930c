import warnings

import pytest

from seq2seq.figures import style


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Make every warning an error, and forget the warning about fonts of earlier tests."""
    monkeypatch.setattr(style, "_missing_font_reported", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
