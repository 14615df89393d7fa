"""The inside end of a control socket: frames that travel together, and frames of several threads."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from warren.guest.wire.control import Control
from warren.guest.wire.frames import Decoder, Header

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ends() -> Iterator[tuple[Control, socket.socket]]:
    inside, outside = socket.socketpair()
    control = Control(inside.detach())
    with outside:
        outside.settimeout(10)
        yield control, outside
        control.close()


def test_a_frame_that_may_wait_travels_with_the_next_one(ends: tuple[Control, socket.socket]) -> None:
    control, agent = ends

    control.send_with_next({"t": "display", "n": 1}, b"two")
    agent.setblocking(False)
    with pytest.raises(BlockingIOError):
        agent.recv(1)
    control.send({"t": "done"})

    assert list(Decoder().feed(agent.recv(1 << 16))) == [({"t": "display", "n": 1}, b"two"), ({"t": "done"}, b"")]


def test_a_large_frame_does_not_wait(ends: tuple[Control, socket.socket]) -> None:
    control, agent = ends

    control.send_with_next({"t": "display"}, b"x" * 20_000)

    assert len(agent.recv(1 << 16)) > 20_000


def test_frames_of_several_threads_arrive_whole_and_in_each_ones_order(ends: tuple[Control, socket.socket]) -> None:
    control, agent = ends

    def say(who: int) -> None:
        for number in range(200):
            control.send_with_next({"t": "first", "who": who, "n": number})
            control.send({"t": "then", "who": who, "n": number})

    threads = [threading.Thread(target=say, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    heard: list[Header] = []
    decoder = Decoder()
    while len(heard) < 1600:
        heard += [header for header, _ in decoder.feed(agent.recv(1 << 16))]
    for thread in threads:
        thread.join()

    for who in range(4):
        order = [(header["n"], header["t"]) for header in heard if header["who"] == who]
        assert order == [(number, kind) for number in range(200) for kind in ("first", "then")]
