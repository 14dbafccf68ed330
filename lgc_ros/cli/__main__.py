"""`python -m lgc_ros.cli`: the command `lgc` where its script is not on the path."""

from lgc_ros.cli.main import main

main()
