"""Store checks: stored files, their sizes and their expiry."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict, QuotaExceeded
from warren.testing.checks_store_sandboxes import RACERS, outcomes
from warren.testing.store_subject import OTHER, OWNER, make_file
from warren.testing.subject import refused

if TYPE_CHECKING:
    from warren.testing.store_subject import StoreSubject


async def check_a_file_comes_back_as_it_was(subject: StoreSubject) -> None:
    """Found with every field, by id, and only in the list of its owner; also after the store is opened again."""
    first, second = make_file(created_at=1.5), make_file(created_at=2.5, name="../etc\n", size=1 << 40)
    theirs = make_file(owner=OTHER)
    for file in (second, theirs, first):
        await subject.store.add_file(file)
    async with subject.reopened() as later:
        for store in (subject.store, later):
            assert [await store.file(file.id) for file in (first, second, theirs)] == [first, second, theirs]
            assert await store.files(OWNER) == (first, second)
            assert await store.files(None) == (first, second, theirs)
    assert await subject.store.file("unknown") is None


async def check_a_file_id_is_used_once(subject: StoreSubject) -> None:
    """A second file of an id is a conflict, for any owner, and the first stays."""
    file = make_file()
    await subject.store.add_file(file)
    await refused(Conflict, subject.store.add_file(make_file(id=file.id, owner=OTHER)))

    assert await subject.store.file(file.id) == file


async def check_a_file_is_removed_once(subject: StoreSubject) -> None:
    """Removal returns whether it existed; then nothing of it is left."""
    file = make_file()
    await subject.store.add_file(file)

    assert await subject.store.remove_file(file.id) is True
    assert await subject.store.remove_file(file.id) is False
    assert await subject.store.file(file.id) is None
    assert await subject.store.files(None) == ()


async def check_files_whose_time_is_over_go_the_oldest_first(subject: StoreSubject) -> None:
    """As many as requested, and only expired ones."""
    made = [make_file(expires_at=float(number), owner=(OWNER, OTHER)[number % 2]) for number in range(1, 6)]
    for file in made:
        await subject.store.add_file(file)

    assert await subject.store.remove_files(expired_at=4.0, limit=3) == tuple(made[:3])
    assert await subject.store.remove_files(expired_at=4.0, limit=3) == (made[3],)
    assert await subject.store.remove_files(expired_at=4.0, limit=3) == ()
    assert await subject.store.file(made[4].id) == made[4]


async def check_files_weigh_what_they_are(subject: StoreSubject) -> None:
    """Summed by owner and in total; removed and expired ones no longer count."""
    store = subject.store
    files = [make_file(size=100), make_file(size=0, expires_at=1.0), make_file(owner=OTHER, size=1000)]
    for file in files:
        await store.add_file(file)
    own = files[0].weight + files[1].weight

    assert await store.file_bytes(OWNER) == own
    assert await store.file_bytes(None) == own + files[2].weight
    await store.remove_files(expired_at=2.0, limit=10)
    assert await store.file_bytes(OWNER) == files[0].weight
    await store.remove_file(files[0].id)
    assert await store.file_bytes(OWNER) == 0
    assert await store.file_bytes(None) == files[2].weight


async def check_files_stay_within_their_quota(subject: StoreSubject) -> None:
    """A file above the bound is refused and not stored, for one owner and in total; 0 means no limit."""
    store, weight = subject.store, make_file().weight
    await store.add_file(make_file(), own_bytes=weight, all_bytes=2 * weight)
    await refused(QuotaExceeded, store.add_file(make_file(), own_bytes=2 * weight - 1))
    await store.add_file(make_file(owner=OTHER), own_bytes=weight, all_bytes=2 * weight)
    await refused(QuotaExceeded, store.add_file(make_file(owner=OTHER), all_bytes=3 * weight - 1))
    await store.add_file(make_file(), own_bytes=0, all_bytes=0)

    assert await store.file_bytes(None) == 3 * weight


async def check_of_many_files_at_once_as_many_are_kept_as_fit(subject: StoreSubject) -> None:
    """Of fifty concurrent files with room for three, three are stored."""
    room = 3 * make_file().weight
    found = await outcomes([partial(subject.store.add_file, make_file(), own_bytes=room) for _ in range(RACERS)])

    assert found.count(None) == 3
    assert await subject.store.file_bytes(OWNER) == room
