"""Functions that are compiled when first called."""

import logging

from lgc_ros.runtime.jit import compiled


def test_without_a_place_to_keep_it_a_function_is_compiled_all_the_same(caplog):
    scope = {}
    exec("def doubled(x):\n    return 2 * x", scope)
    with caplog.at_level(logging.WARNING):
        doubled = compiled(scope["doubled"])
    assert doubled(21) == 42
    assert doubled.signatures
    assert "at every start" in caplog.text
