"""Requirements that callers may install."""

from __future__ import annotations

import pytest

from warren.core.packages.names import MAX_NAMES, check_names
from warren.domain.errors import InvalidRequest


@pytest.mark.parametrize(
    ("ecosystem", "name"),
    [
        ("python", "rich"),
        ("python", "rich==14.1.0"),
        ("python", "httpx[http2,brotli]>=0.27, <1"),
        ("python", "zope.interface~=7.0"),
        ("python", "torch==2.1.0+cpu"),
        ("python", "a"),
        ("python", "x===1.0-legacy"),
        ("python", "numpy == 2.*"),
        ("npm", "lodash"),
        ("npm", "lodash@4.17.21"),
        ("npm", "@types/node@^20"),
        ("npm", "react@latest"),
        ("npm", "x@>=1.0.0 <2"),
    ],
)
def test_names_with_extras_and_versions_are_taken(ecosystem: str, name: str) -> None:
    assert check_names(ecosystem, (f" {name} ",)) == (name,)


@pytest.mark.parametrize(
    ("ecosystem", "name"),
    [
        *(
            ("python", name)
            for name in (
                "",
                " ",
                "-r requirements.txt",
                "--index-url=http://evil",
                "-e .",
                ".",
                "./x",
                "x.whl",
                "x-1.0.tar.gz",
                "x.zip [extra]",
                "/tmp/x.whl",
                "x @ http://evil/x.whl",
                "x@http://evil/x.whl",
                "git+https://evil/x",
                "http://evil/x.whl",
                "file:///etc/passwd",
                "x; rm -rf /",
                "x; python_version > '3'",
                "x && y",
                "$(id)",
                "x\ny",
                "x\x00y",
                "x --pre",
                "x[",
                "x==",
                "ü",
                "x" * 201,
                "x==-1",
                "x===--pre",
                "x===http://evil/x.whl",
                "x>=1,==",
            )
        ),
        *(
            ("npm", name)
            for name in (
                "-g",
                "--registry=http://evil",
                "../x",
                "./x",
                "/tmp/x",
                "x.tgz/..",
                "x.tgz",
                "x-1.0.TAR.GZ",
                "git://evil/x",
                "user/repo",
                "github:user/repo",
                "x@npm:y",
                "x@http://evil",
                "x@file:../y",
                "@/x",
                "@scope/",
                "@scope/x/y",
                "x y",
                "x;y",
                "x@",
            )
        ),
        ("cargo", "serde"),
    ],
)
def test_what_an_installer_would_take_for_more_is_refused(ecosystem: str, name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_names(ecosystem, (name,))


def test_there_must_be_some_and_not_too_many() -> None:
    for names in ((), ("x",) * (MAX_NAMES + 1)):
        with pytest.raises(InvalidRequest):
            check_names("python", names)
    assert len(check_names("python", ("x",) * MAX_NAMES)) == MAX_NAMES
