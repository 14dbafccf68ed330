"""The documentation: links lead somewhere, and commands are as the command line has them."""

import ast
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

ROOT = Path(__file__).parents[1]
MAX_WIDTH = 110
# Options of other programs that the pages mention by themselves.
FOREIGN_OPTIONS = {"--ipc", "--shm-size"}
ENDS_OF_A_COMMAND = ("|", "||", "&&", ";", "&", ">", "#", ")")


def markdown_files() -> list[Path]:
    git = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if git.returncode:
        folders = ROOT, ROOT / "docs", ROOT / "lgc_ros" / "models"
        return sorted(path for folder in folders for path in folder.glob("*.md"))
    return [ROOT / name for name in git.stdout.split("\0") if name and (ROOT / name).is_file()]


PAGES = pytest.mark.parametrize("page", markdown_files(), ids=lambda p: str(p.relative_to(ROOT)))


def split_fences(text: str) -> tuple[str, str]:
    """Prose and fenced code of a page."""
    prose, code, fenced = [], [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        else:
            (code if fenced else prose).append(line)
    assert not fenced, "a code block is not closed"
    return "\n".join(prose), "\n".join(code)


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    found: list[str] = []
    for title in re.findall(r"^#+ +(.+?) *$", split_fences(page.read_text())[0], re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return set(found)


@PAGES
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    prose, _ = split_fences(page.read_text())
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_of_the_docs_begins_with_its_purpose():
    pages = {page: page.read_text() for page in (ROOT / "docs").glob("*.md")}
    assert len(pages) > 10
    start = re.compile(r"# .+\n\n(At the end of this page|This page) ")
    silent = {page.name for page, text in pages.items() if not start.match(text)}
    assert not silent


@PAGES
def test_lines_of_prose_are_at_most_110_characters_wide(page):
    prose, _ = split_fences(page.read_text())
    lines = [line for line in prose.splitlines() if not line.lstrip().startswith("|")]
    assert not [line for line in lines if len(line) > MAX_WIDTH]


@cache
def command_lines() -> dict[str, object]:
    """The commands of this repository, by how they are called."""
    from lgc_ros.cli.main import app

    lines = {"lgc": get_command(app)}
    training = pytest.importorskip("training.__main__", reason="needs the extra `training`")
    return lines | {"python -m training": get_command(training.app)}


def options(command) -> set[str]:
    own = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}
    return own.union(*(options(c) for c in getattr(command, "commands", {}).values()))


def commands_in(page: Path) -> list[str]:
    """Every command line of a page: lines of code blocks, and inline code."""
    prose, code = split_fences(page.read_text())
    lines = re.sub(r"\\\n\s*", " ", code).splitlines()
    return [*lines, *(" ".join(inline.split()) for inline in re.findall(r"`([^`]+)`", prose))]


def problems(words: list[str], command) -> list[str]:
    """Subcommands and options that the command does not have."""
    while getattr(command, "commands", None):
        position = next((i for i, word in enumerate(words) if not word.startswith("-")), None)
        if position is None or not re.fullmatch(r"[a-z]+", words[position]):
            break
        unknown = given_options(words[:position]) - options(command)
        name, words = words[position], words[position + 1 :]
        if unknown or name not in command.commands:
            return sorted(unknown) or [f"no command {name!r}"]
        command = command.commands[name]
    return sorted(given_options(words) - options(command))


def given_options(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}


def words_after(program: str, line: str) -> list[list[str]]:
    """The arguments of every call of a program in a line."""
    calls = []
    for match in re.finditer(rf"(?:^|[\s/(]){re.escape(program)}(?=\s)", line):
        rest = re.sub(r"\[|\]|\$\(.*", " ", line[match.end() :]).split(" #")[0]
        try:
            words = shlex.split(rest)
        except ValueError:
            words = rest.split()
        end = next((i for i, w in enumerate(words) if w in ENDS_OF_A_COMMAND), len(words))
        calls.append(words[:end])
    return calls


@PAGES
def test_every_command_and_option_of_lgc_and_training_exists(page):
    wrong = []
    for line in commands_in(page):
        for program, command in command_lines().items():
            for words in words_after(program, line):
                wrong += [f"{line}: {problem}" for problem in problems(words, command)]
    assert not wrong


@PAGES
def test_every_option_named_alone_belongs_to_a_command(page):
    known = FOREIGN_OPTIONS.union(*map(options, command_lines().values()))
    prose, _ = split_fences(page.read_text())
    named = {re.match(r"--[a-z-]+", code)[0] for code in re.findall(r"`(--[a-z][^`]*)`", prose)}
    assert named <= known


def test_every_module_that_the_architecture_page_names_exists():
    page = (ROOT / "docs" / "architecture.md").read_text()
    modules = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", page)
    assert len(modules) > 40
    missing = [
        m for m in modules if not ((ROOT / "lgc_ros" / m).is_file() or (ROOT / m).is_file())
    ]
    assert not missing


def test_the_architecture_page_lists_the_import_layers():
    rows = re.findall(
        r"^\| \d+ \| (.+?) \|", (ROOT / "docs" / "architecture.md").read_text(), re.M
    )
    layers = re.search(r"^layers = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    expected = [re.findall(r"\w+", line) for line in re.findall(r'"(.+?)"', layers[1])]
    assert [re.findall(r"\w+", row) for row in rows] == expected


def launch_arguments(name: str) -> set[str]:
    """Arguments that a launch file declares, by its source: launch need not be installed."""
    tree = ast.parse((ROOT / "launch" / name).read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "DeclareLaunchArgument":
            names |= {word.value for word in node.args if isinstance(word, ast.Constant)}
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            names |= {key.value for key in node.value.keys}
    return names


def test_the_page_about_robots_lists_every_launch_argument():
    page = (ROOT / "docs" / "robot.md").read_text()
    tables = re.findall(r"^\| argument \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    listed = [
        {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
        for table in tables
    ]
    files = ("odometry.launch.py", "replay.launch.py")
    assert listed == [launch_arguments(file) for file in files]
