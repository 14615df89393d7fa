"""Skills over HTTP: stored, shared, changed, installed in sandboxes, and their ownership."""

from __future__ import annotations

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from api.served import Served

HEAD = "---\nname: {name}\ndescription: Analyzes tables.\n---\n"


def pack(name: str, folder: str = "", **files: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{folder}SKILL.md", HEAD.format(name=name))
        for path, content in files.items():
            archive.writestr(folder + path.replace("__", "/"), content)
    return packed.getvalue()


def send(client: httpx.Client, content: bytes, filename: str = "skill.zip", **query: Any) -> httpx.Response:
    return client.post("/skills/upload", files={"file": (filename, content)}, params=query)


@pytest.fixture
def upload(ann: httpx.Client) -> Iterator[Callable[..., dict[str, Any]]]:
    """Upload a skill of ann's, which is deleted after the test."""
    made: set[str] = set()

    def upload(name: str, *, by: httpx.Client | None = None, **files: str) -> dict[str, Any]:
        answer = send(by or ann, pack(name, **files), replace=True)
        assert answer.status_code == 201, answer.text
        skill: dict[str, Any] = answer.json()
        made.add(skill["id"])
        return skill

    yield upload
    for skill_id in made:
        ann.delete(f"/skills/{skill_id}")


def install(client: httpx.Client, sandbox: str, *skills: str) -> httpx.Response:
    return client.post(f"/sandboxes/{sandbox}/skills", json={"skill_ids": list(skills)})


def run(client: httpx.Client, sandbox: str, command: str) -> dict[str, Any]:
    answer = client.post(f"/sandboxes/{sandbox}/exec", json={"command": command})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def read(client: httpx.Client, sandbox: str, path: str) -> str:
    return client.get(f"/sandboxes/{sandbox}/files/{path}").text


@pytest.mark.parametrize("folder", ["", "data-analyzer-main/"])
def test_a_package_comes_out_inside(ann: httpx.Client, sandbox: str, folder: str) -> None:
    content = pack("data-analyzer", folder, scripts__run="print(6 * 7)", data="1")
    skill = send(ann, content, "my.skill").json()
    try:
        assert (skill["name"], skill["source_type"]) == ("data-analyzer", "imported")
        package = ann.get(f"/skills/{skill['id']}/package")
        assert (package.content, package.headers["content-type"]) == (content, "application/zip")
        assert 'filename="data-analyzer.zip"' in package.headers["content-disposition"]
        assert install(ann, sandbox, skill["id"]).json() == {"installed": ["data-analyzer"], "already_installed": []}
        result = run(ann, sandbox, "python skills/data-analyzer/scripts/run; ls -A skills")
        assert result["stdout"] == "42\ndata-analyzer\n"
    finally:
        assert ann.delete(f"/skills/{skill['id']}").status_code == 204
    assert read(ann, sandbox, "skills/data-analyzer/data") == "1"


def test_what_is_installed_is_known_until_it_is_another(
    ann: httpx.Client, sandbox: str, upload: Callable[..., dict[str, Any]]
) -> None:
    first = upload("changing", old="1", both="1")
    other = upload("other")
    assert install(ann, sandbox, first["id"], first["id"]).json()["installed"] == ["changing"]
    again = install(ann, sandbox, other["id"], first["id"]).json()
    assert again == {"installed": ["other"], "already_installed": ["changing"]}
    second = upload("changing", new="2", both="2")
    assert second["id"] == first["id"]
    assert install(ann, sandbox, first["id"]).json()["installed"] == ["changing"]

    assert run(ann, sandbox, "cd skills/changing; ls; cat both")["stdout"] == "SKILL.md\nboth\nnew\n2"


def test_a_sandbox_is_made_with_skills(ann: httpx.Client, upload: Callable[..., dict[str, Any]]) -> None:
    skill = upload("with-create")
    asked = {"skill_ids": [skill["id"]], "session_key": "with-skills"}
    made = ann.post("/sandboxes", json=asked)
    try:
        assert made.status_code == 201
        assert "Analyzes" in read(ann, made.json()["id"], "skills/with-create/SKILL.md")
        assert ann.post("/sandboxes", json=asked).status_code == 200
    finally:
        ann.delete(f"/sandboxes/{made.json()['id']}")


def test_a_sandbox_whose_skills_are_not_there_is_not_made(ann: httpx.Client) -> None:
    before = ann.get("/sandboxes").json()["total"]
    refused = ann.post("/sandboxes", json={"skill_ids": ["skl_000000000000000000000000"]})

    assert refused.status_code == 404
    assert "no skill" in refused.json()["detail"]
    assert ann.get("/sandboxes").json()["total"] == before


def test_a_new_sandbox_with_no_room_for_its_skills_is_removed(
    ann: httpx.Client, served: Served, upload: Callable[..., dict[str, Any]]
) -> None:
    if served.settings.engine == "bare":
        pytest.skip("the bare engine has no limit of the disk")
    skill = upload("large", data="x" * (9 << 20))
    skills = [skill["id"], *(upload(f"large-{number}", data="x" * (9 << 20))["id"] for number in range(3))]
    before = ann.get("/sandboxes").json()["total"]
    refused = ann.post("/sandboxes", json={"skill_ids": skills, "disk_mb": 16})

    assert refused.status_code in {409, 413}, refused.text
    assert ann.get("/sandboxes").json()["total"] == before


def test_a_folder_that_is_the_programs_own_is_left_alone(
    ann: httpx.Client, sandbox: str, upload: Callable[..., dict[str, Any]]
) -> None:
    skill = upload("mine")
    run(ann, sandbox, "mkdir -p skills/mine; echo precious > skills/mine/notes")
    refused = install(ann, sandbox, skill["id"])

    assert refused.status_code == 409
    assert "skills/mine" in refused.json()["detail"]
    assert run(ann, sandbox, "ls -A skills skills/mine")["stdout"] == "skills:\nmine\n\nskills/mine:\nnotes\n"


def test_a_link_in_the_workspace_leads_no_package_out(
    ann: httpx.Client, sandbox: str, upload: Callable[..., dict[str, Any]]
) -> None:
    skill = upload("escaping")
    run(ann, sandbox, "ln -s /tmp skills")
    refused = install(ann, sandbox, skill["id"])

    assert refused.status_code in {400, 409}
    assert run(ann, sandbox, "ls -A /tmp | grep -c escaping")["stdout"] == "0\n"


def test_many_at_once_install_once(ann: httpx.Client, sandbox: str, upload: Callable[..., dict[str, Any]]) -> None:
    skill = upload("raced", **{f"file{number}": "x" for number in range(20)})
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: install(ann, sandbox, skill["id"]).json(), range(8)))

    assert sum(each["installed"] == ["raced"] for each in found) == 1
    assert sum(each["already_installed"] == ["raced"] for each in found) == 7
    assert run(ann, sandbox, "ls -A skills")["stdout"] == "raced\n"


def test_a_skill_is_its_owners_until_it_is_shared(
    ann: httpx.Client, served: Served, upload: Callable[..., dict[str, Any]]
) -> None:
    skill = upload("private")
    path = f"/skills/{skill['id']}"
    with served.client("bob") as bob, served.client("adam") as adam, served.client("rita") as rita:
        sandbox = bob.post("/sandboxes").json()["id"]
        try:
            assert [bob.request(verb, path).status_code for verb in ("GET", "DELETE")] == [404, 404]
            assert bob.get(f"{path}/package").status_code == 404
            assert bob.patch(path, json={"portal_visible": True}).status_code == 404
            assert install(bob, sandbox, skill["id"]).status_code == 404
            assert bob.get("/skills").json()["total"] == 0
            assert adam.get(path).status_code == 200
            assert adam.get("/skills", params={"everybody": True}).json()["total"] >= 1
            assert bob.get("/skills", params={"everybody": True}).status_code == 403
            assert rita.post("/skills", json={}).status_code == 403

            shared = ann.patch(path, json={"portal_visible": True, "portal_tags": ["a"], "portal_category": "c"})
            assert (shared.json()["portal_visible"], shared.json()["portal_tags"]) == (True, ["a"])
            assert [each["id"] for each in bob.get("/skills").json()["items"]] == [skill["id"]]
            assert install(bob, sandbox, skill["id"]).json()["installed"] == ["private"]
            assert bob.patch(path, json={"portal_visible": False}).status_code == 403
            assert bob.delete(path).status_code == 403
            assert adam.delete(path).status_code == 204
        finally:
            bob.delete(f"/sandboxes/{sandbox}")


def test_an_admin_sees_a_skill_that_is_not_shared_but_does_not_use_it(
    served: Served, upload: Callable[..., dict[str, Any]]
) -> None:
    skill = upload("unshared")
    with served.client("adam") as adam:
        assert adam.post("/sandboxes", json={"skill_ids": [skill["id"]]}).status_code == 403


def test_names_are_used_once(ann: httpx.Client, upload: Callable[..., dict[str, Any]]) -> None:
    upload("taken")
    other = upload("other-name")

    assert send(ann, pack("taken")).status_code == 409
    assert send(ann, pack("other-name"), "x.zip", replace=False).status_code == 409
    assert ann.get(f"/skills/{other['id']}").json()["name"] == "other-name"


def test_a_text_can_be_changed_and_a_package_not(ann: httpx.Client, upload: Callable[..., dict[str, Any]]) -> None:
    text = {"name": "text", "description": "One.", "skill_md_content": "Body\n", "skill_metadata": {"a": [1, None]}}
    made = ann.post("/skills", json=text).json()
    path = f"/skills/{made['id']}"
    try:
        assert (made["source_type"], made["skill_metadata"]) == ("manual", {"a": [1, None]})
        changed = ann.patch(path, json={"name": "renamed", "description": "Two."}).json()
        assert changed["skill_md_content"] == '---\nname: renamed\ndescription: "Two."\n---\n\nBody\n'
        changed = ann.patch(path, json={"skill_md_content": "Other\n", "skill_metadata": {}}).json()
        assert changed["skill_md_content"].endswith("---\n\nOther\n")
        assert (changed["name"], changed["skill_metadata"]) == ("renamed", {})
        assert changed["updated_at"] > made["updated_at"]
    finally:
        ann.delete(path)
    package = upload("packed", more="x")
    refused = ann.patch(f"/skills/{package['id']}", json={"description": "Other."})
    assert refused.status_code == 409
    assert "upload it again" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("filename", "content", "status"),
    [
        ("a.txt", b"x", 400),
        ("a.zip", b"x", 400),
        ("a.md", b"no head", 400),
        ("a.zip", pack("bad")[:-30], 400),
        ("a.zip", b"x" * (10 << 20) + b"y", 413),
    ],
)
def test_what_is_no_skill_is_refused(ann: httpx.Client, filename: str, content: bytes, status: int) -> None:
    answer = send(ann, content, filename)

    assert answer.status_code == status, answer.text
    assert ann.get("/skills").json()["total"] == 0


def test_a_form_has_one_file(ann: httpx.Client) -> None:
    none = ann.post("/skills/upload", files={"field": (None, "x")})
    two = ann.post("/skills/upload", files=[("a", ("a.zip", pack("a"))), ("b", ("b.zip", pack("b")))])
    plain = ann.post("/skills/upload", content=pack("a"))

    assert [each.status_code for each in (none, two, plain)] == [400, 400, 400]


def test_what_is_done_with_skills_is_recorded(
    ann: httpx.Client, served: Served, sandbox: str, upload: Callable[..., dict[str, Any]]
) -> None:
    skill = upload("recorded")
    install(ann, sandbox, skill["id"])
    ann.patch(f"/skills/{skill['id']}", json={"portal_visible": True})
    ann.delete(f"/skills/{skill['id']}")
    with served.client("adam") as adam:
        rows = adam.get("/audit", params={"limit": 40}).json()["items"]

    done = [row for row in rows if row["action"].startswith("skill.")][:4]
    assert [row["action"] for row in done] == ["skill.delete", "skill.update", "skill.install", "skill.create"]
    assert {row["outcome"] for row in done} == {"ok"}
    assert (done[2]["sandbox_id"], done[2]["details"]["installed"]) == (sandbox, ["recorded"])
