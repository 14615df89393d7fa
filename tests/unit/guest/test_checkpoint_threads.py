"""Whether a copy can be made while there are threads: those that are about to go are waited for, others once."""

from __future__ import annotations

import json
import subprocess
import sys

_PROGRAM = """
import _thread, json, sys, time
from warren.guest.interpreter import checkpoint

end, pauses, enough = _thread.allocate_lock(), [], int(sys.argv[1])
end.acquire()

def look(frame, event, called):
    if event == "c_call" and called is time.sleep:
        pauses.append(1)
        if len(pauses) == enough:
            end.release()

said = []
for _ in range(2):
    # Not one of `threading`'s: as a library starts it, or as it is after it has been joined.
    if not said:
        _thread.start_new_thread(end.acquire, ())
    pauses.clear()
    sys.setprofile(look)
    why = checkpoint.find_obstacle(0, None)
    sys.setprofile(None)
    said.append((why, len(pauses)))
print(json.dumps(said))
"""


def _look_twice(end_at_pause: int) -> list[tuple[str | None, int]]:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(end_at_pause)], capture_output=True, text=True, timeout=60, check=True
    )
    return [tuple(one) for one in json.loads(ran.stdout)]


def test_a_thread_that_ends_late_is_waited_for() -> None:
    first, second = _look_twice(end_at_pause=5)

    assert first[0] is None
    assert first[1] >= 5
    assert second == (None, 0)


def test_a_thread_that_stays_is_waited_for_once() -> None:
    first, second = _look_twice(end_at_pause=1000)

    assert first[0] == second[0] == "2 threads are running, and a copy would have only one"
    assert first[1] > 1
    assert second[1] == 0
