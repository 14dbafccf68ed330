"""Functions compiled on their first call."""

import logging

from lgc_ros.runtime.jit import compiled


def test_a_function_that_cannot_be_cached_is_compiled_with_a_warning(caplog):
    scope = {}
    exec("def doubled(x):\n    return 2 * x", scope)
    with caplog.at_level(logging.WARNING):
        doubled = compiled(scope["doubled"])
    assert doubled(21) == 42
    assert doubled.signatures
    assert "every start compiles again" in caplog.text
