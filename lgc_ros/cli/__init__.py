"""The command `lgc`: each command parses its arguments, calls the library and prints.

`main` assembles the commands; there is one module per command group: `run`, `match`, `evaluate`,
`calibrate`, `convert`, `view`, `bench`, `tools` (synth, export, doctor) and `ros` (play, record,
demo). They share `options`, `tables`, `output` (where results go) and `errors` (how failures are
shown); `installation` has the checks of `lgc doctor`. Heavy modules are imported by the command
that needs them, so that `lgc --help` is fast.
"""
