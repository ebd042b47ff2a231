"""Training, audit and every notebook, end to end on the synthetic set."""

import pytest

from fedentropy_core.cli import main


@pytest.mark.slow
def test_everything_end_to_end(capsys):
    main(["smoke"])
    assert "11 notebooks" in capsys.readouterr().out
