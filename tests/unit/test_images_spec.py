"""Image specs: refusals and their messages, and what changes the content address."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from warren.core.images.catalog import Catalog
from warren.core.images.parts import Parts
from warren.core.images.spec import ImageSpec, Interpreter, load_spec, locked_versions, parse_spec
from warren.domain.errors import InvalidRequest, NotFound
from warren.domain.gpus import NO_GPUS, GpuRequest

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = Interpreter(prefix="/opt/py", inside="/opt/python", version="3.12.4")
SPEC = ImageSpec(name="tiny", packages=("a==1", "b==2"), preload=("a",), env={"X": "1"}, path="tiny.toml")


def write(folder: Path, text: str, name: str = "tiny") -> str:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = 'tiny'\npackages = []\npreloads = []", ["unknown key 'preloads'", "did you mean preload?"]),
        ("name = 'tiny'\npackages = []\nzzz = 1", ["unknown key 'zzz'", "description, env, fonts"]),
        ("packages = []", ["name is missing"]),
        ("name = 'tiny'\npackages = []\ngpus = -1", ["tiny.toml: gpus must be all, auto, none, a number"]),
        ("name = 'tiny'\npackages = []\ngpus = true", ["gpus must be all, auto, none, a number"]),
        ("name = 'tiny'", ["packages is missing"]),
        ("name = 'tiny'\npackages = 'numpy'", ["packages must be a list of strings", "numpy"]),
        ("name = 'tiny'\npackages = [1]", ["packages must be a list of strings"]),
        ("name = 'tiny'\npackages = []\nenv = {A = 1}", ["env must be a table of strings"]),
        ("name = 'tiny'\npackages = []\nenv = {'A=B' = ''}", ["'A=B' is not the name of an environment variable"]),
        ("name = 3\npackages = []", ["name must be a string, not 3"]),
        ("name = 'Tiny Image'\npackages = []", ["'Tiny Image' must be lower-case"]),
        ("name = 'other'\npackages = []", ["'other'", "name the file other.toml"]),
        ("name = 'tiny'\npackages = ['-r /etc/passwd']", ["'-r /etc/passwd'", "numpy=="]),
        ("name = 'tiny'\npackages = ['a @ file:///x']", ["'a @ file:///x'"]),
        ("name = 'tiny'\npackages = []\npreload = ['os; x']", ["'os; x' is not the name of a module"]),
        ("name = 'tiny'\npackages = []\npython = '3'", ["python '3'", "'>=3.11'"]),
        ("name = 'tiny'\npackages = []\nroot = 'relative'", ["root 'relative'", "absolute"]),
        ("name = 'tiny'\npackages = []\nroot = '/does/not/exist'", ["'/does/not/exist'", "exists"]),
        ("name = 'tiny'\npackages = []\nsystem = 1", ["system must be a table, not 1"]),
        (
            "name = 'tiny'\npackages = []\n[system]\npackage = []",
            ["unknown key system.package:", "mean packages?"],
        ),
        ("name = 'tiny'\npackages = []\n[system]\npackages = ['--force']", ["'--force' must be the name of a Debian"]),
        ("name = 'tiny'\npackages = []\n[system]\npackages = ['a1 | b; c']", ["'b; c' must be the name of a Debian"]),
        ("name = 'tiny'\npackages = []\n[system]\ncommands = ['/bin/x']", ["'/bin/x' must be the name of a program"]),
        ("name = 'tiny'\npackages = []\n[browser]\nprograms = ['x; y']", ["'x; y' must be an absolute path"]),
        ("name = 'tiny'\npackages = []\n[node]\npackages = ['a']", ["'a' must be a name and a version"]),
        ("name = 'tiny'\npackages = []\n[node]\npackages = ['a==1']", ["needs npm's lock", "tiny.npm.json"]),
        ("name = 'tiny'\npackages = []\n[fonts]\nArial = 1", ["fonts must be a table of strings"]),
        ("name =", ["not valid TOML"]),
    ],
)
def test_a_wrong_spec_is_one_sentence_with_the_file_and_the_part(tmp_path: Path, text: str, words: list[str]) -> None:
    path = write(tmp_path, text)

    with pytest.raises(InvalidRequest) as caught:
        load_spec(path)

    message = str(caught.value)
    assert all(word in message for word in [path, *words]), message
    assert "\n" not in message


def test_a_spec_that_its_lock_does_not_fit_is_refused() -> None:
    values: dict[str, Any] = {"name": "tiny", "packages": ["Foo_Bar==2"]}

    assert parse_spec(values, path="tiny.toml", lock="foo-bar==2 \\\n    --hash=sha256:0\n").lock

    for lock in ("foo-bar==1 \\\n", "other==2\n", ""):
        with pytest.raises(InvalidRequest, match="lock does not hold that"):
            parse_spec(values, path="tiny.toml", lock=lock)


def test_a_lock_may_pin_two_versions_for_two_pythons() -> None:
    lock = "a==1 ; python_full_version < '3.12' \\\n    --hash=sha256:0\na==2 ; python_full_version >= '3.12' \\\n"

    assert locked_versions(lock) == {"a": {"1", "2"}}


def test_the_address_is_the_same_for_the_same_inputs_in_any_order() -> None:
    assert SPEC.digest(PYTHON) == replace(SPEC, packages=("b==2", "a==1"), description="words").digest(PYTHON)


def test_gpus_are_no_part_of_the_address(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, "name = 'tiny'\npackages = []\ngpus = 'all'"))

    assert spec.gpus == GpuRequest("all")
    assert spec.digest(PYTHON) == replace(spec, gpus=NO_GPUS).digest(PYTHON)


def test_comments_of_a_lock_do_not_change_the_address() -> None:
    assert replace(SPEC, lock="# by me\na==1\n\n").digest(PYTHON) == replace(SPEC, lock="a==1\n    # via b\n").digest(
        PYTHON
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, name="tiny2"),
        replace(SPEC, packages=("a==1", "b==3")),
        replace(SPEC, preload=("b",)),
        replace(SPEC, env={"X": "2"}),
        replace(SPEC, lock="a==1"),
        replace(SPEC, parts=Parts(packages=("a",))),
        replace(SPEC, parts=Parts(commands=("a",))),
        replace(SPEC, parts=Parts(browser=("/a",))),
        replace(SPEC, parts=Parts(fonts={"A": "B"})),
        replace(SPEC, parts=Parts(node=("a==1",), node_lock="{}")),
    ],
)
def test_whatever_changes_the_image_changes_its_address(other: ImageSpec) -> None:
    assert other.digest(PYTHON) != SPEC.digest(PYTHON)


def test_parts_that_an_image_does_not_have_are_no_part_of_its_address() -> None:
    assert SPEC.parts.inputs() == {}


@pytest.mark.parametrize(
    "lock",
    [
        "not json",
        "[]",
        '{"packages": {}}',
        '{"packages": {"node_modules/a": {"version": "2", "integrity": "sha512-x"}}}',
        '{"packages": {"node_modules/a": {"version": "1"}}}',
        '{"packages": {"node_modules/a": {"version": "1", "integrity": "sha512-x"}, "node_modules/b": {}}}',
    ],
)
def test_a_lock_of_npm_that_does_not_pin_everything_by_its_hash_is_refused(lock: str) -> None:
    values: dict[str, Any] = {"name": "tiny", "packages": [], "node": {"packages": ["a==1"]}}

    with pytest.raises(InvalidRequest, match=r"tiny\.npm\.json does not hold"):
        parse_spec(values, path="tiny.toml", node_lock=lock)


def test_an_image_of_the_catalog_that_is_locked_for_npm_names_no_registry() -> None:
    spec = Catalog("/nowhere").spec("office")

    assert spec.parts.node_lock is not None
    assert "://" not in spec.parts.node_lock


def test_another_interpreter_means_another_address() -> None:
    assert SPEC.digest(PYTHON) != SPEC.digest(replace(PYTHON, version="3.12.5"))
    assert SPEC.digest(PYTHON) != SPEC.digest(replace(PYTHON, inside="/opt/py"))


def test_a_python_that_does_not_fit_is_refused_before_anything_is_made() -> None:
    replace(SPEC, python=">=3.11,<3.13").check_interpreter(PYTHON)

    with pytest.raises(InvalidRequest, match=r"needs Python >=3.13, but Warren runs on 3\.12\.4"):
        replace(SPEC, python=">=3.13").check_interpreter(PYTHON)


def test_a_free_threaded_python_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidRequest, match=r"free-threaded Python 3\.12\.4.*install Warren on a Python without"):
        SPEC.check_interpreter(replace(PYTHON, free_threaded=True))


def test_a_root_of_its_own_needs_an_interpreter_that_it_does_not_hide() -> None:
    replace(SPEC, root="/").check_interpreter(PYTHON)

    with pytest.raises(InvalidRequest, match="outside /usr"):
        replace(SPEC, root="/").check_interpreter(replace(PYTHON, prefix="/usr", inside="/usr"))


@pytest.mark.parametrize("prefix", ["/tmp/python", "/workspace", "/home/sandbox/python"])
def test_an_interpreter_where_sandboxes_have_something_of_their_own_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidRequest, match=f"lies in {prefix}, which sandboxes cannot see"):
        SPEC.check_interpreter(replace(PYTHON, prefix=prefix, inside=prefix))

    SPEC.check_interpreter(replace(PYTHON, prefix="/tmpfs/python", inside="/tmpfs/python"))


def test_an_unknown_image_is_answered_with_the_nearest_and_all_names(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))

    with pytest.raises(NotFound, match=r"no image 'dta': did you mean data\? There is data, office, python"):
        catalog.get("dta")
    assert list(tmp_path.iterdir()) == []


def test_an_image_is_found_by_an_alias_whatever_its_tag(tmp_path: Path) -> None:
    write(tmp_path, "name = 'geo'\naliases = ['acme/geo']\npackages = []", name="geo")
    catalog = Catalog(str(tmp_path / "data"), [str(tmp_path)])

    assert [catalog.spec(name).name for name in ("geo", "acme/geo", "acme/geo:3.12")] == ["geo"] * 3
    assert catalog.status("acme/geo:1").name == "geo"
    with pytest.raises(NotFound, match="run `warren image build geo`"):
        catalog.get("acme/geo")
    with pytest.raises(NotFound, match="no image 'acme/other'"):
        catalog.get("acme/other")


def test_an_alias_changes_no_address_and_has_no_tag() -> None:
    assert replace(SPEC, aliases=("acme/geo",)).digest(PYTHON) == SPEC.digest(PYTHON)
    with pytest.raises(InvalidRequest, match="without a tag"):
        parse_spec({"name": "geo", "packages": [], "aliases": ["acme/geo:1"]}, path="geo.toml")


def test_an_image_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))

    assert not catalog.status("data").built
    with pytest.raises(NotFound, match="run `warren image build data`"):
        catalog.get("data")


def test_an_own_spec_comes_before_one_of_the_same_name_that_came_with_warren(tmp_path: Path) -> None:
    write(tmp_path, "name = 'data'\ndescription = 'mine'\npackages = []", name="data")

    catalog = Catalog(str(tmp_path / "data"), [str(tmp_path), str(tmp_path / "missing")])

    assert next((spec.name, spec.description) for spec in catalog.specs()) == ("data", "mine")


def test_the_specs_that_come_with_warren_are_pinned_and_locked(tmp_path: Path) -> None:
    for spec in Catalog(str(tmp_path)).specs():
        assert spec.lock is not None, spec.name
        assert spec.description
        assert all("==" in package for package in spec.packages), spec.name


def test_an_alias_of_two_images_is_the_one_that_is_built(tmp_path: Path) -> None:
    for name in ("able", "baker"):
        write(tmp_path, f"name = '{name}'\naliases = ['acme/any']\npackages = []", name=name)
    catalog = Catalog(str(tmp_path / "data"), [str(tmp_path)])

    assert catalog.spec("acme/any").name == "able"
    folder = tmp_path / "data" / "images" / catalog.status("baker").digest
    folder.mkdir(parents=True)
    fields = {"name": "baker", "digest": folder.name, "root": "host", "interpreter_prefix": "/", "env": {}}
    image = {**fields, "interpreter_inside": "/", "preload": []}
    (folder / "image.json").write_text(json.dumps({"image": image, "size_bytes": 1, "built_at": 0}))

    assert catalog.get("acme/any:3.12").name == "baker"


@pytest.mark.parametrize("alias", ["mcpgateway/sandbox-python", "mcpgateway/sandbox-runtime"])
def test_images_of_the_sandboxes_page_can_be_served_by_the_default_image(tmp_path: Path, alias: str) -> None:
    catalog = Catalog(str(tmp_path))

    assert alias in catalog.spec("data").aliases
    assert catalog.spec(f"{alias}:3.12").name == "python"
