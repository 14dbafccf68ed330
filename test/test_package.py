"""What installs, and what its metadata promises."""

import ast
import importlib
import re
import subprocess
from pathlib import Path

import pytest
from catkin_pkg.package import parse_package
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lgc_ros

ROOT = Path(__file__).parents[1]


@pytest.fixture
def package():
    return parse_package(ROOT / "package.xml")


@pytest.fixture
def distribution(monkeypatch):
    """What setup.py passes to setuptools."""
    pytest.importorskip("setuptools")
    from distutils.core import run_setup

    monkeypatch.chdir(ROOT)
    return run_setup("setup.py", stop_after="init")


def requirements(distribution) -> list[Requirement]:
    extras = distribution.extras_require.values()
    lines = [*distribution.install_requires, *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in lines]


def tracked_files(folder: str = ".") -> list[str]:
    """Paths of the files under version control in a folder of the checkout."""
    command = ["git", "ls-files", "-z", folder]
    git = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if git.returncode:
        pytest.skip("not a git checkout")
    return [name for name in git.stdout.split("\0") if name]


def tracked_texts() -> dict[str, str]:
    """Path and content of every text file under version control."""
    texts = {}
    for name in tracked_files():
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b"\0"
        if b"\0" not in content:
            texts[name] = content.decode()
    return texts


def test_package_xml_is_valid_for_ament_python(package):
    package.validate()
    assert package.package_format == 3
    assert package.get_build_type() == "ament_python"


def test_ros_pip_and_python_agree_on_name_version_license_and_description(package, distribution):
    assert package.name == distribution.get_name() == lgc_ros.__name__
    assert package.version == distribution.get_version() == lgc_ros.__version__
    assert package.licenses == [distribution.get_license()]
    assert package.description == distribution.get_description()


def test_the_changelog_has_this_version(package):
    changelog = (ROOT / "CHANGELOG.rst").read_text()
    assert re.search(rf"^(Forthcoming|{re.escape(package.version)} .*)$", changelog, re.MULTILINE)


def test_every_console_script_can_be_called(distribution):
    for script in distribution.entry_points["console_scripts"]:
        module, function = script.partition("=")[2].strip().split(":")
        if module.startswith("lgc_ros.ros."):
            pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")
        assert callable(getattr(importlib.import_module(module), function)), script


def test_every_data_file_exists_and_the_package_is_in_the_ament_index(distribution):
    installed = dict(distribution.data_files)
    assert installed["share/ament_index/resource_index/packages"] == ["resource/lgc_ros"]
    assert installed["share/lgc_ros"] == ["package.xml"]
    for files in installed.values():
        assert all((ROOT / file).is_file() for file in files), files


def test_every_file_in_the_package_that_is_not_python_is_installed(distribution):
    package = ROOT / lgc_ros.__name__
    patterns = distribution.package_data[lgc_ros.__name__]
    installed = {path for pattern in patterns for path in package.glob(pattern)}
    tracked = {ROOT / name for name in tracked_files(lgc_ros.__name__)}
    assert installed == {path for path in tracked if path.suffix != ".py"}
    assert package / "py.typed" in installed


def test_only_lgc_ros_is_installed(distribution):
    assert {name.partition(".")[0] for name in distribution.packages} == {"lgc_ros"}


def test_every_folder_with_code_is_installed(distribution):
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "lgc_ros").rglob("*.py")}
    assert {".".join(folder.parts) for folder in folders} == set(distribution.packages)


def test_colcon_finds_pytest_in_the_test_extra(distribution):
    names = [Requirement(line).name for line in distribution.extras_require["test"]]
    assert "pytest" in names


def test_metadata_is_where_colcon_can_read_it():
    assert "[project]" not in (ROOT / "pyproject.toml").read_text().splitlines()


def test_constraints_pin_every_dependency_within_its_range(distribution):
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, version = line.split("==")
            pins[canonicalize_name(name)] = version
    for requirement in requirements(distribution):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier


def test_every_extra_that_a_text_advises_exists(distribution):
    advice = re.compile(r"lgc_ros\\*\[([\w,]+)\]")
    for name, text in tracked_texts().items():
        advised = {extra for match in advice.findall(text) for extra in match.split(",")}
        assert advised <= distribution.extras_require.keys(), name


def test_no_file_names_a_place_of_one_machine_or_a_package_index():
    personal = re.compile(r"(?<![\w.~$}])/(home|Users|root|work|tmp)/\w|--(extra-)?index-url")
    found = {name: personal.search(text) for name, text in tracked_texts().items()}
    assert not {name: match[0] for name, match in found.items() if match}


def test_spelling_is_american():
    """As in OpenCV, nav2 and evo; the brackets keep this pattern from matching itself."""
    british = re.compile(
        r"colou[r]|[Cc]entr[e]|(neighb|behavi|fav)ou[r]|gre[y]|(lab|mod|trav)ell[ei]|"
        r"(normal|initial|optim|recogn|visual|synchron|serial|general|minim|maxim)is[aei]"
    )
    found = {name: british.search(text) for name, text in tracked_texts().items()}
    assert not {name: match[0] for name, match in found.items() if match}


def test_no_two_public_classes_share_a_name():
    found: dict[str, list[str]] = {}
    for name, text in tracked_texts().items():
        if name.startswith("lgc_ros/") and name.endswith(".py"):
            for made in re.findall(r"(?m)^class ([A-Z]\w*)", text):
                found.setdefault(made, []).append(name)
    assert {made: names for made, names in found.items() if len(names) > 1} == {}


def test_modules_classes_and_functions_are_short():
    """Commands may be longer than functions: their options and help are their signature."""
    limits = {ast.FunctionDef: 60, ast.AsyncFunctionDef: 60, ast.ClassDef: 250}
    found = []
    for name, text in tracked_texts().items():
        if not name.endswith(".py"):
            continue
        if len(text.splitlines()) > 400:
            found.append(name)
        nodes = (node for node in ast.walk(ast.parse(text)) if type(node) in limits)
        for node in nodes:
            lines = node.end_lineno - node.lineno + 1
            if lines > limits[type(node)] + 20 * name.startswith("lgc_ros/cli/"):
                found.append(f"{name}: {node.name}")
    assert found == []


def test_the_replay_offers_every_alignment():
    """The launch file repeats their names, because it must load where only ROS is installed."""
    from lgc_ros.evaluation.trajectory_metrics import ALIGNMENTS

    tree = ast.parse((ROOT / "launch" / "replay.launch.py").read_text())
    values = {
        ast.unparse(node.targets[0]): node.value for node in tree.body if type(node) is ast.Assign
    }
    assert ast.literal_eval(values["ALIGNMENTS"]) == ALIGNMENTS
