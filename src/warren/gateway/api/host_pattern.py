"""What a rule of the way out may name, as one regular expression: so that the documentation says all that is taken."""

from __future__ import annotations

_LABEL = r"[A-Za-z0-9_*](?:[A-Za-z0-9_*-]{0,61}[A-Za-z0-9_*])?"
_NAME_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_LAST = r"[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_V4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_H = r"[0-9A-Fa-f]{1,4}"
_V6 = "|".join(
    (
        rf"(?:{_H}:){{7}}{_H}",
        rf"(?:{_H}:){{1,7}}:",
        *(rf"(?:{_H}:){{1,{7 - more}}}(?::{_H}){{1,{more}}}" for more in range(1, 7)),
        rf":(?::{_H}){{1,7}}",
        "::",
    )
)
_V4_LENGTH = r"(?:/(?:3[0-2]|[12]?[0-9]))?"
_V6_LENGTH = r"(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?"

NAME = rf"^(?:{_NAME_LABEL}\.)*{_LAST}$"
"""The exact name of a host."""
TARGET = rf"^(?:\*|(?:{_LABEL}\.)*{_LAST}|{_V4}{_V4_LENGTH}|(?:{_V6}){_V6_LENGTH})$"
"""A name, a glob of names, an address or a network."""
