"""The files that name packages and versions agree with each other, and name no host."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[2]


def text(name: str) -> str:
    return (ROOT / name).read_text()


def requirements(name: str) -> dict[str, Requirement]:
    lines = (line.split("#")[0].strip() for line in text(name).splitlines())
    parsed = [Requirement(line) for line in lines if line]
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def test_every_direct_dependency_is_pinned_in_the_lock():
    locked = requirements("requirements.lock")
    for name, direct in requirements("requirements.in").items():
        (pin,) = locked[name].specifier
        assert pin.operator == "=="
        assert direct.specifier.contains(pin.version), (
            f"{locked[name]} is not {direct}: run make lock"
        )
    assert [name for name in locked if re.match(r"torch|nvidia|cuda|triton", name)] == []


def test_the_package_and_its_extras_need_what_is_listed():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    extras = {**project["optional-dependencies"]}
    del extras["lens"]  # it is pinned in files of its own
    del extras["gpu"]  # Triton comes with PyTorch for CUDA, in the version that this needs
    pinned_elsewhere = requirements("workflow/gguf.lock").keys()
    lines = [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    needed = {canonicalize_name(r.name): r for r in map(Requirement, lines)}
    listed = requirements("requirements.in")
    assert pinned_elsewhere <= needed.keys() - listed.keys()
    not_listed = {"torch", "carry-core", *pinned_elsewhere}
    assert needed.keys() - not_listed == listed.keys() - {"setuptools", "uv"}
    for name in listed.keys() & needed.keys():
        assert listed[name].specifier in (needed[name].specifier, ""), name


def test_each_environment_of_transformer_lens_pins_one_version_of_it():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    (needed,) = map(Requirement, project["optional-dependencies"]["lens"])
    main = requirements("requirements.lock")
    versions = []
    for number in (3, 4):
        pins = requirements(f"workflow/lens{number}.lock")
        assert pins.keys() & main.keys() == set(), "these are taken from .venv"
        assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins.values())
        (pin,) = pins["transformer-lens"].specifier
        assert needed.specifier.contains(pin.version)
        versions.append(pin.version)
    assert [version.split(".")[0] for version in versions] == ["3", "4"]


def test_environment_yml_is_the_lock_and_the_makefiles_torch():
    (torch,) = re.findall(r"^TORCH \?= (\S+)$", text("Makefile"), re.MULTILINE)
    pip = yaml.safe_load(text("environment.yml"))["dependencies"][-1]["pip"]
    assert pip == [torch, "--requirement requirements.lock", "--editable ."]


def test_no_host_and_no_path_of_one_machine():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    address = project.get("urls", {}).get("Source")
    for name in (
        "requirements.in",
        "requirements.lock",
        "environment.yml",
        "pyproject.toml",
        "Makefile",
        "workflow/gguf.lock",
        "workflow/lens3.lock",
        "workflow/lens4.lock",
    ):
        local = r"\w+://\S+|--(?:extra-)?index-url|--find-links|/(?:home|root|tmp|work|Users)/"
        named = text(name).replace(address, "the repository") if address else text(name)
        assert re.findall(local, named) == [], name


@pytest.mark.needs("a checkout that git reads")
def test_the_tracked_tree_stays_small():
    """A clone stays small: CONTRIBUTING names this limit."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    sizes = {name: (ROOT / name).stat().st_size for name in names}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    assert sum(sizes.values()) < 128 * 2**20, f"the largest: {', '.join(largest)}"


def test_the_core_imports_what_it_requires_and_nothing_else():
    """A bridge to another library imports it inside its function."""
    project = tomllib.loads(text("pyproject.toml"))["project"]
    required = {Requirement(line).name for line in project["dependencies"]}
    packages = set()
    for path in (ROOT / "carry_core").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                packages |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                packages.add(node.module.split(".")[0])
    assert packages - sys.stdlib_module_names - {"carry_core"} == required


def test_a_missing_extra_is_one_line():
    """`carry` names the package that is missing and the extra that has it."""
    code = "import sys; sys.modules['click'] = None; from carry_paper.__main__ import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    remedy = "pip install 'carry-core[paper]'."
    message = f"`carry` needs the package click, which is not installed: {remedy}\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", message)


@pytest.fixture
def unready(tmp_path) -> Path:
    """A checkout that has not been set up, as far as `make setup` looks at one."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "workflow/profiles"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "workflow" / "ipython_kernel_config.py").touch()
    return tmp_path


def set_up(
    folder: Path, python: str, *variables: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `make setup` with another Python, and nothing from the environment but `PATH`."""
    return subprocess.run(
        ["make", "--silent", "setup", f"PYTHON={python}", *variables],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("python", "line"),
    [
        ("false", "false is not Python 3.11 or newer, which the book needs: install one"),
        (
            "./python",
            "could not be installed: .venv/install.log says why (it needs a network, once)",
        ),
    ],
)
def test_a_set_up_with_an_old_python_or_no_network_stops_in_one_line(unready, python, line):
    (unready / "python").symlink_to(sys.executable)  # whose path may have spaces
    stopped = set_up(unready, python, PIP_CONFIG_FILE=os.devnull, PIP_NO_INDEX="1")
    assert stopped.returncode == 2
    printed, by_make = stopped.stderr.splitlines()
    assert line in printed
    assert by_make.startswith("make: ***")
    assert not (unready / ".venv" / ".ready").exists()


SHOWN = """include Makefile
shown:
	@echo "$$LOGNAME:$$XDG_CACHE_HOME:$$npm_config_cache:$$JUPYTER_DATA_DIR:$$JUPYTER_CONFIG_DIR"
"""


@pytest.mark.parametrize("is_writable", [True, False])
def test_caches_lie_in_venv_where_the_home_folder_cannot_be_written_to(
    unready, tmp_path_factory, is_writable
):
    """`LOGNAME` is set, since Snakemake asks for a name, which not every user has."""
    (unready / "shown.mk").write_text(SHOWN)
    home = str(tmp_path_factory.mktemp("home")) if is_writable else "/dev/null/home"
    command = ["make", "--silent", "-f", "shown.mk", "shown"]
    environment = {"PATH": os.environ["PATH"], "HOME": home}
    printed = subprocess.run(
        command, cwd=unready, env=environment, capture_output=True, text=True, check=True
    ).stdout
    name, *folders = printed.strip().split(":")
    assert name
    for folder in folders:
        assert folder.startswith(f"{unready}/.venv/") if not is_writable else folder == ""


# A Python that records its arguments, with pip's settings from SETTINGS. Its uv can install nothing
# whose command has UNINSTALLABLE in it.
FAKE_PYTHON = """#!/bin/sh
echo "$*" >> calls
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  "-m pip config list") echo "$SETTINGS" ;;
  "-m uv"*"$UNINSTALLABLE"*) echo "no index" >&2; exit 2 ;;
esac
"""
PIP_TORCH = r"-m pip install .* torch==[\d.]+"


@pytest.fixture
def set_up_calls(unready):
    """Run `make setup` with the fake Python; return its calls, and what was printed."""

    def calls(*variables: str, **environment: str) -> tuple[list[str], str]:
        fake = unready / "python"
        fake.write_text(FAKE_PYTHON)
        fake.chmod(0o755)
        done = set_up(unready, str(fake), *variables, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert (unready / ".venv" / ".ready").exists()
        return (unready / "calls").read_text().splitlines(), done.stdout

    return calls


def test_where_uv_cannot_install_the_lock_pip_does(set_up_calls):
    calls, printed = set_up_calls(UNINSTALLABLE="--requirement requirements.lock")
    by_uv, by_pip = [call for call in calls if call.endswith("--requirement requirements.lock")]
    assert by_uv.startswith("-m uv")
    assert "--reinstall" in by_uv
    assert by_pip.startswith("-m pip")
    assert "now pip does, which takes longer" in printed


@pytest.mark.parametrize(
    ("variables", "environment", "install"),
    [
        (["NVIDIA="], {}, "-m uv .* --torch-backend cpu torch==.*"),
        (["NVIDIA=/proc/driver/nvidia"], {}, PIP_TORCH),
        (["NVIDIA="], {"SETTINGS": "global.index-url='file:///wheels'"}, PIP_TORCH),
        (["NVIDIA="], {"SETTINGS": ":env:.find-links='/wheels'"}, PIP_TORCH),
        (["NVIDIA="], {"SETTINGS": "global.timeout='60'"}, "-m uv .* --torch-backend cpu torch=.*"),
        (
            ["NVIDIA=", "UV_TORCH_BACKEND=cu126"],
            {"SETTINGS": "global.index-url='file:///wheels'"},
            "-m uv .* --torch-backend cu126 torch==.*",
        ),
        (["NVIDIA=", "TORCH=torch==2.9.1 --pre"], {}, "-m pip install .* torch==2.9.1 --pre"),
        (["NVIDIA="], {"UV_TORCH_BACKEND": "cu126"}, "-m uv .* --torch-backend cu126 torch==.*"),
    ],
)
def test_pytorch_is_the_build_for_cpus_where_nothing_asks_for_another(
    set_up_calls, variables, environment, install
):
    calls, printed = set_up_calls(*variables, **{"UNINSTALLABLE": "nothing", **environment})
    (call,) = [call for call in calls if "torch==" in call]
    assert re.fullmatch(install, call)
    assert "now pip does" not in printed


def test_where_uv_cannot_install_pytorch_pip_does(set_up_calls):
    calls, printed = set_up_calls("NVIDIA=", UNINSTALLABLE="--torch-backend")
    by_uv, by_pip = [call for call in calls if "torch==" in call]
    assert by_uv.startswith("-m uv")
    assert re.fullmatch(PIP_TORCH, by_pip)
    assert re.search(r"uv could not install torch==[\d.]+ for cpu; now pip does", printed)


# A Node and an npm that record how they are called.
FAKE_NODE = """#!/bin/sh
echo "$*" >> calls
case "$1" in *tsc) [ -e "$1" ] && [ "$2" = --version ] || exit 3 ;; esac
"""
FAKE_NPM = """#!/bin/sh
mkdir -p .venv/node_modules/typescript/bin && touch .venv/node_modules/typescript/bin/tsc
"""
FAILS = "#!/bin/sh\nexit 1\n"


@pytest.mark.parametrize(
    ("node", "npm", "code", "printed", "last_call"),
    [
        (FAILS, FAKE_NPM, 0, "Node does not run here", ""),
        (FAKE_NODE, FAILS, 0, "npm cannot install TypeScript here", "--check playground/a.js"),
        (FAKE_NODE, FAKE_NPM, 2, "", ".venv/node_modules/typescript/bin/tsc --project playground"),
    ],
)
def test_types_of_scripts_are_checked_by_the_typescript_of_the_makefile_or_not_at_all(
    unready, node, npm, code, printed, last_call
):
    """The TypeScript that is installed here finds a fault; another one in PATH is not asked."""
    for program, script in (("node", node), ("npm", npm), ("tsc", FAILS)):
        (unready / program).write_text(script)
        (unready / program).chmod(0o755)
    for name in ("playground/a.js", ".venv/.ready", "calls"):
        (unready / name).parent.mkdir(exist_ok=True)
        (unready / name).touch()
    done = subprocess.run(
        ["make", "--silent", "scripts"],
        cwd=unready,
        env={"PATH": f"{unready}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(printed)
    assert done.stdout.count("\n") == bool(printed)
    assert ["", *(unready / "calls").read_text().splitlines()][-1] == last_call
