"""Tokens of shared links: one spelling, one meaning, invalid after any change of a bit."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.core.shared_links.signing import Claims, Kind, peek_kind, sign, verify
from warren.core.shared_links.signing_keys import SigningKeys
from warren.domain.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

KEY, OTHER = b"k" * 32, b"o" * 32
CLAIMS = Claims(
    link_id="lnk_1",
    kind=Kind.FILE,
    sandbox_id="sbx_0123456789abcdef01234567",
    target="out/r\u00e9sum\u00e9 \udcff.txt",
    method="PUT",
    expires_at=1_800_000_000,
    max_bytes=10,
    tenant="north",
    subject="ann",
    key_id="key_1",
)


def test_what_was_signed_is_what_is_found() -> None:
    token = sign(CLAIMS, KEY)

    assert verify(token, [OTHER, KEY]) == CLAIMS
    assert verify(token, [OTHER]) is None
    assert verify(token, []) is None


@pytest.mark.parametrize("field", [each.name for each in dataclasses.fields(Claims)])
def test_everything_in_a_link_is_signed(field: str) -> None:
    others: dict[str, Any] = {"kind": Kind.PORT, "expires_at": 1_900_000_000, "max_bytes": None}
    changed = dataclasses.replace(CLAIMS, **{field: others.get(field, "other")})
    mac = sign(CLAIMS, KEY).partition(".")[2]

    assert verify(f"{sign(changed, KEY).partition('.')[0]}.{mac}", [KEY]) is None


@given(st.integers(0, len(sign(CLAIMS, KEY)) - 1), st.characters(max_codepoint=255))
def test_no_letter_of_a_token_can_be_another(at: int, letter: str) -> None:
    token = sign(CLAIMS, KEY)
    changed = token[:at] + letter + token[at + 1 :]

    assert (verify(changed, [KEY]) is None) is (changed != token)


@given(st.text(max_size=200))
def test_any_text_is_no_token_and_no_crash(text: str) -> None:
    assert verify(text, [KEY]) is None
    assert verify(f"{text}.{'A' * 43}", [KEY]) is None
    assert peek_kind(text) in {None, *Kind}


def test_a_signature_of_something_else_is_none_of_a_link() -> None:
    """The same key over the same bytes, but without the words that say what is signed."""
    import base64
    import hashlib
    import hmac

    body = sign(CLAIMS, KEY).partition(".")[0]
    bare = base64.urlsafe_b64encode(hmac.new(KEY, body.encode(), hashlib.sha256).digest()).rstrip(b"=").decode()

    assert verify(f"{body}.{bare}", [KEY]) is None


def test_a_file_of_keys_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "links.key"
    keys, others = SigningKeys(str(path)), SigningKeys(str(path))

    assert keys.verifying() == ()
    assert keys.signing() == others.signing()
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["links.key"]


@pytest.mark.parametrize("content", ["", "no key\n", "ab" * 31 + "\n", ("ab" * 32 + "\n") * 17, "AB" * 32 + "\n"])
def test_a_file_that_holds_no_keys_is_said_to(tmp_path: Path, content: str) -> None:
    path = tmp_path / "links.key"
    path.write_text(content)
    path.chmod(0o600)

    with pytest.raises(StoreError, match="lines of 64 hexadecimal digits"):
        SigningKeys(str(path)).signing()


def test_a_file_that_others_can_read_signs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "links.key"
    path.write_text("ab" * 32 + "\n")
    path.chmod(0o640)

    with pytest.raises(StoreError, match="chmod 600"):
        SigningKeys(str(path)).verifying()


def test_without_a_file_links_are_good_in_this_process_only() -> None:
    first, second = SigningKeys(), SigningKeys()

    assert verify(sign(CLAIMS, first.signing()), first.verifying()) == CLAIMS
    assert verify(sign(CLAIMS, first.signing()), second.verifying()) is None


def test_a_token_that_is_a_tower_of_brackets_is_of_no_kind() -> None:
    assert peek_kind("W1tb" * 3000) is None
