"""The commands that talk to ROS: `lgc play`, `lgc record`, `lgc demo`, `odometry_node`.

ROS is imported when they run, so that all other commands work without it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from lgc_ros.cli import tables
from lgc_ros.cli.errors import INTERRUPTED, explained_errors, stderr
from lgc_ros.cli.options import BagArgument, NewBagArgument
from lgc_ros.cli.output import echo_written, stdout
from lgc_ros.errors import ConfigError

CLOCK_HZ = 40.0

ClockRateOption = Annotated[
    float | None,
    typer.Option(
        min=0.1, metavar="HZ", help=f"Rate of /clock; implies --clock. Default: {CLOCK_HZ:g}."
    ),
]
PlayedTopicsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TOPIC", help="Play only this topic. Repeat for several."),
]
RemapOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A:=B", help="Publish topic A of the bag as B. Repeat for several topics."
    ),
]
WaitOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TOPIC",
        help="Start once this topic, of the bag or of another node, has a subscriber. Repeat "
        "for several.",
    ),
]
InStepOption = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC",
        help="Publish an image only after this topic (such as /lgc_odometry/odometry) has "
        "answered the previous one, so that a slow node misses none. If the bag has several "
        "image topics, wait for subscribers of the one that is answered.",
    ),
]
WaitTimeoutOption = Annotated[
    float,
    typer.Option(
        min=0.1,
        metavar="S",
        help="Seconds to wait for what --wait-for-subscribers and --in-step-with name; then "
        "fail and list similar topics.",
    ),
]
AnswerTimeoutOption = Annotated[
    float,
    typer.Option(
        min=0.1,
        metavar="S",
        help="Seconds to wait for an answer with --in-step-with. Three consecutive images "
        "without an answer end playback with an error.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("play")(play)
    app.command("record")(record)
    app.command("demo")(demo)


def odometry_node() -> int:
    """Entry point of `odometry_node`, with a clear error if ROS is not installed.

    Loading takes seconds. A signal in that time ends the process: as a KeyboardInterrupt it may
    get lost in the imports of libraries, and the node would go on.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with explained_errors():
        from lgc_ros.ros.odometry_node import main
    return main()


def play(
    bag: BagArgument,
    rate: Annotated[
        float, typer.Option(min=1e-3, metavar="X", help="Playback rate; 1 is real time.")
    ] = 1.0,
    loop: Annotated[bool, typer.Option("--loop", help="Start over at the end.")] = False,
    clock: Annotated[
        bool, typer.Option("--clock", help="Publish /clock, for nodes with use_sim_time.")
    ] = False,
    clock_hz: ClockRateOption = None,
    topics: PlayedTopicsOption = None,
    remap: RemapOption = None,
    start_offset: Annotated[
        float, typer.Option(min=0, metavar="S", help="Skip the first S seconds of the bag.")
    ] = 0.0,
    duration: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="Play only S seconds of the bag.")
    ] = None,
    reliable: Annotated[
        bool,
        typer.Option("--reliable", help="Publish with reliable QoS, whatever was recorded."),
    ] = False,
    wait_for_subscribers: WaitOption = None,
    in_step_with: InStepOption = None,
    wait_timeout: WaitTimeoutOption = 120.0,
    answer_timeout: AnswerTimeoutOption = 20.0,
) -> None:
    """Publish a rosbag2 at its recorded pace, with the recorded bytes and QoS."""
    from lgc_ros.ros.bags.player import PlayOptions
    from lgc_ros.ros.bags.player import play as play_bag
    from lgc_ros.ros.session import session

    options = PlayOptions(
        rate=rate,
        loop=loop,
        clock_hz=clock_hz or (CLOCK_HZ if clock else None),
        topics=tuple(topics or ()),
        remap=dict(_remapping(rule) for rule in remap or ()),
        start_offset_s=start_offset,
        duration_s=duration,
        reliable=reliable,
        wait_for=tuple(wait_for_subscribers or ()),
        in_step_with=in_step_with,
        wait_s=wait_timeout,
        answer_s=answer_timeout,
    )
    with session("lgc_play") as ros, _progress() as bar:
        task = bar.add_task(bag.name, total=None)
        counts = play_bag(
            ros, bag, options, lambda p: bar.update(task, completed=p.done_s, total=p.total_s)
        )
        interrupted = ros.stopping.is_set()
    stdout.print(tables.message_counts("published", counts))
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _remapping(rule: str) -> tuple[str, str]:
    source, arrow, target = rule.partition(":=")
    if not (source and arrow and target):
        raise ConfigError(f"--remap {rule} is not of the form FROM:=TO")
    return source, target


def record(
    out: NewBagArgument,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Topics to record.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Record all topics, also those published later.")
    ] = False,
    duration: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="Stop after S seconds.")
    ] = None,
    stop_after_idle: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="S",
            help="Stop after S seconds without a message, once the first one arrived.",
        ),
    ] = None,
) -> None:
    """Record topics to a bag until Ctrl-C.

    Prints `ready` once all named topics have connected publishers. Ctrl-C
    finishes the bag (exit code 0). kill -9 loses at most the last second. A full
    disk ends the recording, which stays readable.
    """
    from lgc_ros.ros.bags.recorder import RecordOptions
    from lgc_ros.ros.bags.recorder import record as record_topics
    from lgc_ros.ros.session import session

    if bool(topics) == everything:
        raise ConfigError("name the topics to record, or give --all")
    options = RecordOptions(tuple(topics or ()), duration, stop_after_idle)
    with session("lgc_record") as ros, _progress() as bar:
        task = bar.add_task("recording", total=None)
        counts = record_topics(
            ros,
            out,
            options,
            lambda counts: bar.update(task, description=f"{counts.total()} messages"),
            lambda: stderr.print(f"ready: recording {', '.join(topics or ['all topics'])}"),
        )
    stdout.print(tables.message_counts("recorded", counts))
    for topic in (topic for topic, count in counts.items() if not count):
        typer.echo(f"no messages on {topic}: check that it is published in this domain", err=True)
    echo_written(out)


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.")] = Path(
        "results/demo"
    ),
    frames: Annotated[
        int,
        typer.Option(min=10, max=360, metavar="N", help="Number of images; 360 are one loop."),
    ] = 360,
    width: Annotated[
        int, typer.Option(min=160, metavar="PX", help="Image width in pixels.")
    ] = 640,
) -> None:
    """Play a synthetic sequence to the node over DDS, evaluate it and write a report."""
    from lgc_ros.ros.demo import STEPS, DemoOptions, run_demo

    with Progress(*demo_columns(), console=stderr) as bar:
        tasks = {step: bar.add_task(step, start=False, remark="", total=None) for step in STEPS}

        def show(step: str, done: int, total: int, remark: str) -> None:
            bar.start_task(tasks[step])
            bar.update(tasks[step], completed=done, total=total, remark=remark)

        m = run_demo(out, DemoOptions(frames, width), show).metrics()
    typer.echo(
        f"{m['answered']} of {m['frames']} images answered ({m['held']} with a held pose), "
        f"{m['dropped']} dropped, "
        f"median latency {m['latency_ms']['median']:.0f} ms"
    )
    typer.echo(f"trajectory error (ATE) {100 * m['ate_rmse_m']:.1f} cm over {m['path_m']:.1f} m")
    for method, error_deg in m["pair_error_deg"].items():
        typer.echo(f"wide-baseline pair: {method} pose error {error_deg:.1f} deg")
    typer.echo(f"report: {out / 'report.html'}")


def demo_columns() -> tuple[ProgressColumn, ...]:
    """The columns of the demo's progress, whose tasks have a `remark`; for 80 columns of text."""
    return (
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[remark]}", style="dim"),
    )


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr, transient=True) as bar:
        yield bar
