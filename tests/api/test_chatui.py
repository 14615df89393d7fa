"""ChatUI's gateway as its contract has it: golden files, replayed, and what no file can say."""

from __future__ import annotations

import base64
import concurrent.futures
import json
import os
import secrets
import time
import uuid
from typing import TYPE_CHECKING

import httpx
import jwt
import pytest

from api import golden
from api.chatui import Chatui, connect, given, serve, taken
from api.served import Served, wait_for
from warren.core.images.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.settings import Settings

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="the local engine is tested as root here"),
]
GONE = "Container session not found, or it was shut down due to inactivity."


@pytest.fixture(scope="module")
def served(make_settings: Callable[..., Settings]) -> Iterator[Served]:
    yield from serve(make_settings, pytest.skip)


@pytest.fixture
def chatui(served: Served) -> Iterator[Chatui]:
    with Chatui(served) as chatui:
        yield chatui


@pytest.mark.parametrize("name", golden.names("chatui"))
def test_golden(served: Served, name: str) -> None:
    golden.replay(served, "chatui", name)


@pytest.mark.timeout(600)  # the first who asks for the image builds it
def test_a_plot_that_is_shown_is_saved(make_settings: Callable[..., Settings], images_dir: str) -> None:
    Catalog(images_dir).build("data")
    settings = make_settings("local", image="data", dialects={"chatui": {"executions_per_minute": 0}})
    served = Served(settings)
    served.start()
    code = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.figure(); plt.plot([2, 1]); plt.show()
plt.plot([3]); plt.show()
plt.plot([4]); plt.savefig("/tmp/output/own.png")
"""
    try:
        with Chatui(served) as chatui:
            first, second = chatui.run(code), chatui.run(code.replace("plt.show()", ""))
    finally:
        served.stop()

    assert first["error"] is None, first
    assert sorted(taken(first)) == ["figure_1.png", "figure_2.png", "figure_3.png", "own.png"]
    assert all(picture.startswith(b"\x89PNG") for picture in taken(first).values())
    assert {each["mime_type"] for each in first["files"]} == {"image/png"}
    assert list(taken(second)) == ["own.png"]


def test_a_page_is_shown_to_people_and_json_to_programs(served: Served) -> None:
    with connect(served, "anonymous") as client:
        page = client.get("/", headers={"Accept": "text/html,*/*;q=0.8"})
        plain = client.get("/", headers={"X-Request-ID": "mine"})
        refused = client.get("/containers/c", headers={"Authorization": ""})

    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert plain.json()["message"] == "Code Execution Gateway"
    assert plain.headers["x-request-id"] == "mine"
    assert uuid.UUID(refused.headers["x-request-id"]).version == 4
    assert refused.headers["x-code-execution-version-tag"] == f"v{refused.headers['x-code-execution-version']}"


def test_a_body_may_be_as_large_as_it_says_and_no_larger(make_settings: Callable[..., Settings]) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"container_id": "'
        for _ in range(40):
            yield b"x" * 1024

    for served in serve(make_settings, pytest.skip, body_bytes=32_768):
        with Chatui(served) as chatui:
            content = secrets.token_bytes(30_000)
            wanted = {"detail": "Request body too large. Maximum size is 32768 bytes."}
            announced = chatui.post("print(1)", files=[given("a", content)])
            found_out = chatui.http.post("/execute", content=pieces(), headers={"Content-Type": "application/json"})
            fits = chatui.post("print(open('a', 'rb').read()[:1])", files=[given("a", content[:20_000])])

        assert (announced.status_code, announced.json()) == (413, wanted)
        assert (found_out.status_code, found_out.json()) == (413, wanted)
        assert "x-code-execution-version" not in announced.headers
        assert "x-code-execution-version" in found_out.headers
        assert uuid.UUID(announced.headers["x-request-id"]).version == 4
        assert fits.json()["error"] is None


def test_files_may_be_as_large_as_the_contract_says(chatui: Chatui) -> None:
    large = bytes(5 * 1024 * 1024)
    fits = chatui.run("import os; print(os.path.getsize('f0'))", files=[given("f0", large)])
    one = chatui.post("x", files=[given("f0", large + b"x")])
    five = chatui.post("x", files=[given(f"f{n}", large[:4_500_000]) for n in range(5)])

    assert fits["stdout"] == "5242880\n"
    assert (one.status_code, one.json()["detail"]) == (400, "File 'f0' too large (5242881 bytes, max 5242880)")
    assert (five.status_code, five.json()["detail"]) == (400, "Total size of uploaded files exceeds limit")


def test_output_files_that_are_too_much_together_are_named(chatui: Chatui) -> None:
    answer = chatui.bash("for n in 1 2 3; do head -c 9000000 /dev/zero > /tmp/output/$n; done")

    assert [(each["name"], each["size"], each["error"]) for each in answer["files"]] == [
        ("1", 9_000_000, None),
        ("2", 9_000_000, None),
        ("3", 9_000_000, "Total file size limit exceeded"),
    ]
    assert [len(content) for content in taken(answer).values()] == [9_000_000, 9_000_000]


@pytest.mark.parametrize(
    ("code", "stream", "total"),
    [
        ("print('x' * 100_001)", "stdout", "100002 chars"),
        ("print('é' * 100_000)", "stdout", "100001 chars"),
        ("import sys; sys.stderr.write('y' * 100_001)", "stderr", "100001 chars"),
        ("print('z' * 3_000_000)", "stdout", "3000001 chars"),
        ("print('ä' * 3_000_000)", "stdout", "3000001 chars"),
    ],
)
def test_long_output_is_cut_and_says_so(chatui: Chatui, code: str, stream: str, total: str) -> None:
    said = chatui.run(code)[stream]

    assert len(set(said[:100_000])) == 1
    assert said[100_000:] == f"\n\n... [OUTPUT TRUNCATED — {total} total, showing first 100000]"


def test_output_of_exactly_the_bound_is_whole(chatui: Chatui) -> None:
    assert chatui.run("print('x' * 99_999)")["stdout"] == "x" * 99_999 + "\n"


def test_programs_of_one_container_wait_for_each_other(chatui: Chatui) -> None:
    code = "import os, time\nos.mkdir('held')\ntime.sleep(0.3)\nos.rmdir('held')"
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: chatui.run(code), range(4)))

    assert [answer["error"] for answer in answers] == [None] * 4


def test_a_client_that_leaves_ends_its_program(chatui: Chatui) -> None:
    with pytest.raises(httpx.ReadTimeout):
        chatui.http.post(
            "/execute",
            json={"container_id": chatui.id, "code": "import time; time.sleep(100)", "timeout": 110},
            timeout=1.0,
        )
    begun = chatui.run("print(1)")
    assert begun["stdout"] == "1\n"


def test_a_container_has_so_many_executions_and_is_then_removed(make_settings: Callable[..., Settings]) -> None:
    for served in serve(make_settings, pytest.skip, executions_per_container=2):
        with Chatui(served) as chatui:
            assert [chatui.run("print(1)")["error"] for _ in range(2)] == [None, None]
            assert (chatui.show()["execution_count"], chatui.show()["max_executions"]) == (2, 2)
            refused, after = chatui.post("print(1)"), chatui.post("print(1)")

        assert (refused.status_code, refused.json()["detail"]) == (
            429,
            "Container session reached its maximum number of executions.",
        )
        assert (after.status_code, after.json()["detail"]) == (404, GONE)


def test_there_may_be_so_many_containers(make_settings: Callable[..., Settings]) -> None:
    for served in serve(make_settings, pytest.skip, containers_per_principal=1, containers=2):
        with Chatui(served) as chatui, Chatui(served, "bob"), connect(served, "adam") as adam:
            own = chatui.http.post("/containers")
            everybody = adam.post("/containers")

        assert (own.status_code, own.json()["detail"]) == (
            429,
            "You have reached the maximum number of active container sessions.",
        )
        assert (everybody.status_code, everybody.json()["detail"]) == (
            429,
            "The gateway is at its maximum number of active container sessions.",
        )


def test_of_containers_that_are_made_at_once_none_is_too_many(served: Served) -> None:
    with connect(served, "bob") as client, concurrent.futures.ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.post("/containers"), range(8)))
        for answer in answers:
            if answer.status_code == 200:
                client.delete(f"/containers/{answer.json()['container_id']}")

    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 5


def test_rates_are_the_contracts(make_settings: Callable[..., Settings]) -> None:
    for served in serve(make_settings, pytest.skip, executions_per_minute=2, creates_per_minute=1):
        with Chatui(served) as chatui:
            answers = [chatui.post("print(1)") for _ in range(3)]
            again = chatui.http.post("/containers")

        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].json()["detail"] == "Rate limit exceeded for this principal. Please slow down."
        assert int(answers[2].headers["retry-after"]) > 1
        assert (again.status_code, again.json()["detail"]) == (
            429,
            "Container creation rate limit exceeded for this principal.",
        )


def test_the_type_of_a_file_is_by_the_ending_of_its_name_alone(served: Served) -> None:
    names = ("data:text/html,x.csv", "a.pptx", "b.tar.gz", "c", "d.PNG")
    code = f"import os\nos.makedirs('/tmp/output/data:text')\nfor n in {names!r}: open('/tmp/output/' + n, 'w').close()"
    with Chatui(served) as chatui:
        files = chatui.run(code)["files"]

    assert {each["name"]: each["mime_type"] for each in files} == {
        "a.pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "b.tar.gz": "application/gzip",
        "c": "application/octet-stream",
        "d.PNG": "image/png",
        "data:text/html,x.csv": "text/csv",
    }


def test_what_ran_too_long_says_what_it_wrote_and_not_how_it_was_ended(served: Served) -> None:
    loops = "import sys\nprint('said', file=sys.stderr, flush=True)\nwhile True: pass"
    catches = "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: raise ValueError('its own') from None"
    with Chatui(served) as chatui:
        plain, own = chatui.run(loops, timeout=4), chatui.run(catches, timeout=4)
        silent = chatui.run("while True: pass", timeout=1)

    assert [each["timed_out"] for each in (plain, own, silent)] == [True] * 3
    assert (plain["stderr"], silent["stderr"]) == ("said\n", "")
    assert own["stderr"].endswith("ValueError: its own\n")


def test_an_interrupt_that_a_program_raises_is_named_by_its_class(served: Served) -> None:
    with Chatui(served) as chatui:
        done = chatui.run("raise KeyboardInterrupt")
        killed = chatui.run("import os, signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)")

    assert done["error_type"] == "KeyboardInterrupt"
    assert done["error"].startswith("Traceback (most recent call last):")
    assert killed["error_type"] == "ProcessSignalError"


def test_a_program_that_does_not_compile_has_the_heading_of_a_traceback(served: Served) -> None:
    with Chatui(served) as chatui:
        done = chatui.run("import sys\nx = (")

    lines = done["stderr"].splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", '  File "<user_code>", line 2']
    assert (done["error"], done["error_type"]) == (done["stderr"].strip(), "SyntaxError")


def test_an_address_that_only_its_clients_know_refuses_in_its_words(served: Served) -> None:
    with connect(served, "anonymous") as anonymous:
        its, ours = anonymous.get("/health/details"), anonymous.get("/healthz/details")

    assert (its.status_code, its.json()) == (401, {"detail": "Missing Bearer token"})
    assert its.headers["www-authenticate"] == "Bearer"
    assert (ours.status_code, ours.json()["code"]) == (401, "unauthenticated")


def test_a_container_that_lived_too_long_says_so(make_settings: Callable[..., Settings]) -> None:
    for served in serve(make_settings, pytest.skip, max_lifetime_s=1):
        with Chatui(served) as chatui:
            expired = wait_for(lambda: found if (found := chatui.post("print(1)")).status_code != 200 else None)
            shown = chatui.http.get(f"/containers/{chatui.id}")

        wanted = (404, "Container session expired after reaching its maximum lifetime.")
        assert (expired.status_code, expired.json()["detail"]) == wanted
        assert (shown.status_code, shown.json()["detail"]) == wanted


def test_an_idle_container_goes(make_settings: Callable[..., Settings]) -> None:
    for served in serve(make_settings, pytest.skip, idle_timeout_s=1):
        with Chatui(served) as chatui:
            gone = wait_for(
                lambda: found if (found := chatui.http.get(f"/containers/{chatui.id}")).status_code == 404 else None
            )

        assert gone.json()["detail"] == GONE


def test_a_timeout_removes_the_container_where_the_operator_wants_that(make_settings: Callable[..., Settings]) -> None:
    for served in serve(make_settings, pytest.skip, timeout_removes=True):
        with Chatui(served) as chatui:
            answer = chatui.run("import time; time.sleep(30)", timeout=1)
            after = chatui.post("print(1)")

        assert (answer["error"], answer["timed_out"]) == (
            "Execution timed out after 1 seconds. Container removed.",
            True,
        )
        assert after.status_code == 404


def test_values_of_the_operator_are_given_where_they_may_be(
    make_settings: Callable[..., Settings], tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = tmp_path_factory.mktemp("env") / "values"
    for served in serve(make_settings, pytest.skip, allow_env=True, env_file=str(source)):
        with connect(served) as client:
            missing = client.post("/containers", json={"inject_sandbox_env": True})
        source.write_text("TOKEN=secret\n")
        with Chatui(served, inject_sandbox_env=True) as with_env, Chatui(served) as without:
            seen = with_env.bash("stat -c %a .env; cat ~/.env")["stdout"]
            unseen = without.bash("cat ~/.env")["error_type"]

        assert (missing.status_code, missing.json()["detail"]) == (
            400,
            "Sandbox env injection was requested, but no readable env source file is configured.",
        )
        assert (seen, unseen) == ("600\nTOKEN=secret\n", "BashExitError")


def test_packages_that_cannot_be_installed_are_an_error_beside_the_output(
    make_settings: Callable[..., Settings],
) -> None:
    for served in serve(make_settings, pytest.skip, allow_pip=True):
        with Chatui(served) as chatui:
            answer = chatui.run("print('ran')", pip_packages=["no-such-package-anywhere"])
            failed = chatui.run("1 / 0", pip_packages=["no-such-package-anywhere"])
            bad = [chatui.post("x", pip_packages=names) for names in ([""], ["x" * 65], ["a; b"], ["--index-url=x"])]
            many = chatui.post("x", pip_packages=["a"] * 6)
            version = chatui.http.get("/version").json()

        assert (answer["stdout"], answer["error"], answer["error_type"]) == (
            "ran\n",
            "Pip installation failed",
            "InstallationError",
        )
        assert answer["stderr"].startswith("--- PIP INSTALL ERROR ---\n")
        assert answer["stderr"].endswith("\n------------------------\n")
        assert answer["install_time"] > 0
        assert (failed["error_type"], failed["install_time"] > 0) == ("ZeroDivisionError", True)
        assert [each.json()["detail"][0]["msg"] for each in bad] == [
            "Value error, Package name cannot be empty",
            "Value error, Package name too long (max 64 chars)",
            "Value error, Package name contains invalid characters",
            "Value error, Package name contains invalid characters",
        ]
        assert many.json()["detail"][0]["msg"] == "Value error, Too many pip packages (max 5)"
        assert version["features"]["pip_packages"] is True


def test_tokens_sign_in_and_tenants_are_kept_apart(make_settings: Callable[..., Settings]) -> None:
    secret = secrets.token_hex(32)

    def sign(tenant: str, subject: str, lasts_s: int = 600) -> dict[str, str]:
        now = int(time.time())
        claims = {"tenant_id": tenant, "sub": subject, "iat": now - 1000, "exp": now + lasts_s}
        return {"Authorization": f"Bearer {jwt.encode(claims, secret, algorithm='HS256')}"}

    tokens = {"secret": secret, "tenant_claim": "tenant_id"}
    served = Served(make_settings(jwt=tokens))
    served.start()
    try:
        with connect(served, "anonymous") as client:
            made = client.post("/containers", headers=sign("red", "ann"))
            where = f"/containers/{made.json()['container_id']}"
            asked = {"container_id": made.json()["container_id"], "code": "print(6 * 7)"}
            ran = client.post("/execute", json=asked, headers=sign("red", "ann"))
            refused = {
                "tenant": client.get(where, headers=sign("blue", "ann")),
                "principal": client.get(where, headers=sign("red", "bob")),
            }
            expired = client.get(where, headers=sign("red", "ann", -100))
            client.delete(where, headers=sign("red", "ann"))
    finally:
        served.stop()

    assert ran.json()["stdout"] == "42\n"
    for whose, answer in refused.items():
        detail = f"Container session belongs to another {whose}"
        assert (answer.status_code, answer.json()) == (403, {"detail": detail})
    assert (expired.status_code, expired.json()) == (401, {"detail": "Invalid or expired credentials"})


def test_a_file_that_cannot_be_written_is_an_error_of_its_own(chatui: Chatui) -> None:
    chatui.bash("mkdir taken; ln -s /etc out")
    for name in ("taken", "out/passwd"):
        answer = chatui.run("print(1)", files=[given(name, b"x")])
        assert answer["error_type"] == "FileUploadError"
        assert answer["error"].startswith("Failed to copy input files to container: ")
        assert answer["stdout"] == ""


def test_numbers_have_the_names_that_dashboards_know(chatui: Chatui) -> None:
    before = json.loads(chatui.http.get("/metrics/json").text)
    chatui.run("print(1)")
    chatui.run("1 / 0")
    after = chatui.http.get("/metrics/json").json()
    lines = chatui.http.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("gateway_"))

    assert after["successful_executions"] - before["successful_executions"] == 1
    assert after["failed_executions"] - before["failed_executions"] == 1
    assert float(values['gateway_executions_total{outcome="failed"}']) == after["failed_executions"]
    assert float(values["gateway_execution_duration_seconds_count"]) == after["total_executions"]
    assert float(values["gateway_active_executions"]) == 0
    assert float(values['gateway_http_requests_total{method="POST",path="/execute",status_code="200"}']) >= 2
    assert 'gateway_http_request_duration_seconds_count{method="POST",path="/execute"}' in values
    assert 'gateway_slide_renders_total{outcome="successful"}' in values
    assert values["gateway_slide_render_duration_seconds_count"] == "0.0"


def test_a_container_that_is_removed_while_it_runs_something_says_so(chatui: Chatui) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        running = threads.submit(chatui.post, "open('/home/sandbox/begun', 'w'); import time; time.sleep(60)")
        wait_for(lambda: chatui.http.get("/metrics/json").json()["active_executions"] or None)
        chatui.http.delete(f"/containers/{chatui.id}")
        answer = running.result()

    assert answer.status_code in {200, 404}
    if answer.status_code == 200:
        assert answer.json()["error_type"] in {"GatewayError", "ProcessSignalError"}


def test_a_large_answer_is_whole(chatui: Chatui) -> None:
    answer = chatui.run("import os; open('/tmp/output/r', 'wb').write(bytes(range(256)) * 40_000)")

    assert taken(answer) == {"r": bytes(range(256)) * 40_000}
    assert base64.b64decode(answer["files"][0]["content"]) == bytes(range(256)) * 40_000
