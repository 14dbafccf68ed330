"""Exit codes and messages instead of tracebacks."""

import pytest

from lgc_ros.cli.errors import explained_errors


def test_ctrl_c_during_imports_exits_without_a_traceback(capsys):
    with pytest.raises(SystemExit, match="130"), explained_errors():
        raise KeyboardInterrupt
    assert capsys.readouterr() == ("", "")
