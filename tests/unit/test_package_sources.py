"""Where packages come from: as the operator says, or as pip, uv and npm are configured on the host."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from warren.bootstrap.package_sources import build_sources
from warren.domain.errors import ConfigError
from warren.settings import Settings
from warren.settings.package_tools import read_tools

if TYPE_CHECKING:
    from pathlib import Path

    from warren.core.packages.sources import PackageSources


def build(folder: Path, **environ: str) -> PackageSources:
    """Build them of an environment whose home is this folder."""
    files = {"XDG_CONFIG_HOME": str(folder), "npm_config_userconfig": str(folder / "npmrc"), "HOME": str(folder)}
    config = folder / "pip.conf"
    given = {"PIP_CONFIG_FILE": str(config) if config.exists() else "/dev/null", **files, **environ}
    settings = Settings.load(given, folder=str(folder))
    return build_sources(settings.packages, read_tools(given, etc=str(folder / "etc")))


def urls(sources: PackageSources) -> list[str]:
    return [source.url for source in sources.python]


def test_without_any_word_the_tools_defaults_are_asked(tmp_path: Path) -> None:
    sources = build(tmp_path)

    assert all(url.startswith("https://") and url.endswith("/") for url in (urls(sources)[0], sources.npm.url))  # type: ignore[union-attr]


def test_what_the_operator_says_counts_and_nothing_else(tmp_path: Path) -> None:
    sources = build(
        tmp_path,
        WARREN_PACKAGES_PYTHON_INDEX="https://ann:pa%20ss@packages.example.com/simple",
        WARREN_PACKAGES_PYTHON_EXTRA_INDEXES="http://10.0.0.1:8080/simple/, /srv/simple",
        WARREN_PACKAGES_PYTHON_FIND_LINKS="/srv/wheels",
        WARREN_PACKAGES_NPM_REGISTRY="https://npm.example.com",
        WARREN_PACKAGES_NPM_TOKEN="t0ken",
        WARREN_PACKAGES_HOSTS="files.example.com",
        PIP_INDEX_URL="https://other.example.com/simple",
        PIP_FIND_LINKS="/opt/other",
    )

    assert urls(sources) == [
        "https://packages.example.com/simple/",
        "http://10.0.0.1:8080/simple/",
        "file:///srv/simple/",
        "file:///srv/wheels",
    ]
    assert sources.python[0].authorization == f"Basic {base64.b64encode(b'ann:pa ss').decode()}"
    assert (sources.python[3].is_links, sources.python[2].path) == (True, "/srv/simple")
    assert sources.npm is not None
    assert (sources.npm.url, sources.npm.authorization) == ("https://npm.example.com/", "Bearer t0ken")
    assert sources.hosts == {"files.example.com"}


def test_pips_configuration_is_honoured_the_environment_before_files(tmp_path: Path) -> None:
    certificates = tmp_path / "ca.pem"
    certificates.write_text("")
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://in-file.example.com/simple\n"
        "extra-index-url = file:///opt/a/simple\n    https://b.example.com/simple\n"
        f"find-links = /opt/wheels\ncert = {certificates}\nproxy = http://proxy.example.com:3128\n"
    )
    in_file = build(tmp_path)
    both = build(tmp_path, PIP_INDEX_URL="https://in-env.example.com/simple", PIP_FIND_LINKS="/opt/more")
    none = build(tmp_path, PIP_NO_INDEX="1")

    extra = ["file:///opt/a/simple/", "https://b.example.com/simple/"]
    assert urls(in_file) == ["https://in-file.example.com/simple/", *extra, "file:///opt/wheels"]
    assert urls(both) == ["https://in-env.example.com/simple/", *extra, "file:///opt/more", "file:///opt/wheels"]
    assert urls(none) == ["file:///opt/wheels"]
    assert (in_file.ca_files, in_file.proxy) == ((str(certificates),), "http://proxy.example.com:3128")


def test_uvs_configuration_is_honoured_too(tmp_path: Path) -> None:
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text(
        '[[index]]\nurl = "https://first.example.com/simple"\ndefault = true\n'
        '[[index]]\nname = "more"\nurl = "https://more.example.com/simple"\n'
    )
    in_file = build(tmp_path)
    in_env = build(tmp_path, UV_DEFAULT_INDEX="https://env.example.com/simple", UV_INDEX="a=https://a.example.com/s")

    # uv asks its default index last.
    assert urls(in_file) == ["https://more.example.com/simple/", "https://first.example.com/simple/"]
    assert urls(in_env) == [
        "https://a.example.com/s/",
        "https://more.example.com/simple/",
        "https://env.example.com/simple/",
    ]


def test_several_indexes_are_taken_as_whoever_named_them_takes_them(tmp_path: Path) -> None:
    of_pip = {"PIP_INDEX_URL": "https://a.example.com/", "PIP_EXTRA_INDEX_URL": "https://b.example.com/"}
    of_uv = {"UV_INDEX": "https://c.example.com/"}
    of_ours = {"WARREN_PACKAGES_PYTHON_INDEX": "https://d.example.com/"}
    ways = {
        "nothing": build(tmp_path),
        "pip": build(tmp_path, **of_pip),
        "uv": build(tmp_path, **of_uv),
        "both": build(tmp_path, **of_pip, **of_uv),
        "unsafe": build(tmp_path, **of_uv, UV_INDEX_STRATEGY="unsafe-best-match"),
        "half unsafe": build(tmp_path, **of_pip, UV_INDEX_STRATEGY="unsafe-first-match"),
        "ours": build(tmp_path, **of_pip, **of_ours),
        "chosen": build(tmp_path, **of_uv, **of_ours, WARREN_PACKAGES_INDEX_STRATEGY="merge"),
        "chosen first": build(tmp_path, **of_pip, WARREN_PACKAGES_INDEX_STRATEGY="first"),
    }

    assert {name for name, sources in ways.items() if sources.is_merged} == {"pip", "unsafe", "chosen"}
    assert urls(ways["both"]) == ["https://c.example.com/", "https://a.example.com/", "https://b.example.com/"]


def test_npms_configuration_is_honoured_with_its_token(tmp_path: Path) -> None:
    (tmp_path / "npmrc").write_text(
        "; a comment = no\nregistry=https://npm.example.com/team/\n//npm.example.com/team/:_authToken=abc\n"
        "//other.example.com/:_authToken=no\n//npm.example.com/:_authToken=${NOT_SET}\n"
        "@corp:registry=https://own.example.com/npm\n//own.example.com/:_auth=YTpi\n"
    )
    sources = build(tmp_path)
    chosen = build(tmp_path, npm_config_registry="https://env.example.com/")

    assert sources.npm is not None
    assert (sources.npm.url, sources.npm.authorization) == ("https://npm.example.com/team/", "Bearer abc")
    assert chosen.npm is not None
    assert (chosen.npm.url, chosen.npm.authorization) == ("https://env.example.com/", "")
    scopes = {scope: (each.url, each.authorization) for scope, each in sources.npm_scopes.items()}
    assert scopes == {"@corp": ("https://own.example.com/npm/", "Basic YTpi")}
    assert build(tmp_path, WARREN_PACKAGES_NPM_REGISTRY="https://x.example.com/").npm_scopes == {}


@pytest.mark.parametrize("text", ["[global\n", "index-url", "\x00", "[[index]]\nurl = 7\n", "[index]\nurl = []"])
def test_files_that_cannot_be_read_count_as_not_there(tmp_path: Path, text: str) -> None:
    (tmp_path / "pip.conf").write_text(text)
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text(text)
    (tmp_path / "npmrc").write_text(text)

    assert len(urls(build(tmp_path))) == 1


@pytest.mark.parametrize("value", ["packages.example.com", "ftp://x/", "https://", "http://x:y/"])
def test_what_is_no_index_is_said_when_the_service_starts(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="WARREN_PACKAGES_PYTHON_INDEX"):
        build(tmp_path, WARREN_PACKAGES_PYTHON_INDEX=value)


def test_packages_come_through_the_proxy_that_all_else_goes_through_unless_they_have_their_own(tmp_path: Path) -> None:
    environ = {"WARREN_EGRESS_UPSTREAM_PROXY": "http://ann:hush@proxy.example.com:3128"}
    settings = Settings.load(environ, folder=str(tmp_path))
    assert settings.egress.upstream_proxy is not None
    upstream = settings.egress.upstream_proxy.get_secret_value()
    plain = build_sources(settings.packages, read_tools({}, etc=str(tmp_path)), upstream)
    own = build_sources(settings.packages, read_tools({"PIP_PROXY": "http://pips.example.com"}), upstream)

    assert (plain.proxy, own.proxy) == (upstream, "http://pips.example.com")
    assert "hush" not in repr(settings)
    addresses = ("proxy.example.com:3128", "https://proxy.example.com", "http://", "http://x/path", "http://x:y")
    for wrong in (*addresses, "http://ann:hush@x?y", "http://ann:hush@x#y", "http://ann:hush@x:99999"):
        with pytest.raises(ConfigError, match="WARREN_EGRESS_UPSTREAM_PROXY cannot be what it is") as refused:
            Settings.load({"WARREN_EGRESS_UPSTREAM_PROXY": wrong}, folder=str(tmp_path))
        assert "hush" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"cannot be .*\*@index") as refused:
        Settings.load({"WARREN_PACKAGES_PYTHON_INDEX": "ftp://ann:hush@index.example.com/"}, folder=str(tmp_path))
    assert "hush" not in str(refused.value)


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    settings = Settings.load(
        {"WARREN_PACKAGES_PYTHON_CREDENTIALS": "ann:hush", "WARREN_PACKAGES_NPM_TOKEN": "hush"}, folder=str(tmp_path)
    )

    assert "hush" not in repr(settings)
