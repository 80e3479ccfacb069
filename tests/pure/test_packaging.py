"""The package lists in setup.cfg say what is in the tree, and the shaders are found."""

import configparser
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_package_is_listed():
    listed = set(_setup()["options"]["packages"].split())
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "meganeura").rglob("__init__.py")
    }
    assert listed == found | {"meganeura.shaders"}


def test_required_packages_are_the_five():
    requirements = _setup()["options"]["install_requires"].split("\n")
    names = {r.strip().split(">")[0].split("=")[0] for r in requirements if r.strip()}
    assert names == {"wgpu", "egglog", "numpy", "tqdm", "h5py"}


def test_no_module_is_too_long():
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "meganeura").rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 600
    }
    assert not too_long


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for path in (ROOT / "meganeura").rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in folders)


def test_license_and_typing_marker_exist():
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert (ROOT / "meganeura" / "py.typed").exists()
