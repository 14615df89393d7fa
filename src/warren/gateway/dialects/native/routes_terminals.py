"""The native API: terminals of a sandbox, over WebSockets."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Literal

import anyio
import orjson
from pydantic import BaseModel, ConfigDict, Field

from warren.domain.errors import Error, InvalidRequest
from warren.domain.records import Scope
from warren.gateway.api.bodies import ClientLeft, parse_body
from warren.gateway.api.dispatch import WEBSOCKET
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.api.websockets import SUBPROTOCOL, WebSocket
from warren.gateway.dialects.native.common import sandbox_id
from warren.gateway.dialects.native.schemas import KERNEL_NAME, Text
from warren.gateway.dialects.native.schemas_answers import TerminalShown, TerminalsShown

if TYPE_CHECKING:
    from starlette.types import Receive, Send
    from starlette.types import Scope as Request

    from warren.core.executions.terminals import Session
    from warren.gateway.api.operations import Call, Reply

_MAX_MESSAGE = 4096
Size = Annotated[int, Field(ge=1, le=1000)]


class TerminalQuery(BaseModel):
    """What a terminal is opened with."""

    model_config = ConfigDict(extra="forbid")

    cols: Size | None = Field(default=None, description="Columns; 80 for a new one unless given, else unchanged.")
    rows: Size | None = Field(default=None, description="Rows; 24 for a new one unless given, else unchanged.")
    command: Annotated[Text, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="What a new terminal runs, by bash; an interactive bash unless given."
    )


class TerminalMessage(BaseModel):
    """What a client says in a text frame."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["resize", "close"]
    cols: Size | None = None
    rows: Size | None = None


class TerminalSocket:
    """A terminal on one side, a WebSocket on the other."""

    def __init__(self, session: Session, held: contextlib.AsyncExitStack) -> None:
        self._session = session
        self._held = held
        self._failure: Exception | None = None

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        """Join them until one side ends. What goes wrong is raised, after both tasks have ended."""
        async with self._held:
            websocket = WebSocket(scope, receive, send)
            await websocket.accept()
            session = self._session
            await _say(websocket, "ready", name=session.name, created=session.created, scrollback=session.scrollback)
            with anyio.CancelScope() as joined:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._take, websocket, joined)
                    await self._show(websocket)
                    joined.cancel()
            # A client that left has only left.
            if isinstance(self._failure, Error):
                raise self._failure

    async def _show(self, websocket: WebSocket) -> None:
        try:
            while data := await self._session.see():
                await websocket.send(data)
            await _say(websocket, "exit", exit_code=self._session.exit_code)
            await websocket.close()
        except (ClientLeft, Error) as error:
            self._failure = self._failure or error

    async def _take(self, websocket: WebSocket, joined: anyio.CancelScope) -> None:
        try:
            while True:
                message = await websocket.receive()
                if isinstance(message, bytes):
                    await self._session.type(message)
                else:
                    await self._obey(message)
        except (ClientLeft, Error) as error:
            self._failure = self._failure or error
            joined.cancel()

    async def _obey(self, text: str) -> None:
        if len(text) > _MAX_MESSAGE:
            raise InvalidRequest(f"a text frame has at most {_MAX_MESSAGE} characters: send keys as binary frames")
        message = parse_body(TerminalMessage, text.encode())
        if message.type == "close":
            await self._session.hang_up()
        elif message.cols is None or message.rows is None:
            raise InvalidRequest("resize needs cols and rows")
        else:
            await self._session.resize(message.cols, message.rows)


async def _say(websocket: WebSocket, kind: str, **fields: object) -> None:
    await websocket.send(orjson.dumps({"type": kind, **fields}).decode())


_PATH = "/sandboxes/{sandbox_id}/terminals"
_ONE = f"{_PATH}/{{terminal}}"

routes = Routes("Terminals")


@routes.add(
    f"GET {_PATH}",
    Scope.READ,
    answers=(Answer("Those whose programs run, attached to or not.", TerminalsShown),),
    errors=(404, 409, 502),
)
async def list_terminals(call: Call) -> Reply:
    """List the terminals of a sandbox."""
    terminals = await call.service.terminals.list(call.caller, sandbox_id(call))
    shown = [TerminalShown.render(each, attached=each.viewers, age_seconds=each.age_s) for each in terminals]
    return json_reply({"items": shown})


@routes.add(
    f"{WEBSOCKET} {_ONE}",
    Scope.RUN,
    description=(
        "Binary frames are what is typed and what is shown. Text frames are JSON: from the server first "
        '`{"type": "ready", "name", "created", "scrollback"}`, where `scrollback` counts the bytes that were '
        'shown before, and at the end `{"type": "exit", "exit_code"}`; from the client '
        '`{"type": "resize", "cols", "rows"}`, and `{"type": "close"}`, which hangs up on the program. '
        "A client that goes away leaves the program running: connecting again shows the scroll-back. "
        "A failure closes with the code 4000 + its status. "
        f"A web page sends its key as the subprotocol `warren.key.` + key, beside `{SUBPROTOCOL}`."
    ),
    query=TerminalQuery,
    answers=(Answer("It is open.", status=101),),
    errors=(404, 409, 502),
)
async def open_terminal(call: Call) -> TerminalSocket:
    """Open a terminal, or attach to it, over a WebSocket."""
    query = call.query(TerminalQuery)
    if (query.cols is None) != (query.rows is None):
        raise InvalidRequest("give both cols and rows, or neither")
    async with contextlib.AsyncExitStack() as held:
        session = await held.enter_async_context(
            call.service.terminals.attach(
                call.caller,
                sandbox_id(call),
                terminal_name(call),
                command=query.command,
                cols=query.cols,
                rows=query.rows,
            )
        )
        return TerminalSocket(session, held.pop_all())


@routes.add(
    f"DELETE {_ONE}",
    Scope.RUN,
    description="As closing the window would: it is hung up on, and killed a second later.",
    answers=(Answer("It was hung up on.", status=204),),
    errors=(404, 409, 502),
)
async def close_terminal(call: Call) -> Reply:
    """End the program on a terminal."""
    await call.service.terminals.hang_up(call.caller, sandbox_id(call), terminal_name(call))
    return NO_CONTENT


def terminal_name(call: Call) -> str:
    """Return the terminal of the path. Raises NotFound for what cannot be one."""
    return call.id("terminal", KERNEL_NAME, "terminal")
