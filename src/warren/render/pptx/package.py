"""Writes a PowerPoint file; parts that are compressed already are stored, since compressing again only takes time."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

from pptx.opc.oxml import serialize_part_xml
from pptx.opc.packuri import CONTENT_TYPES_URI, PACKAGE_URI
from pptx.opc.serialized import _ContentTypesItem

if TYPE_CHECKING:
    from pptx.presentation import Presentation

_PACKED = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".fntdata", ".xlsx")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_package(presentation: Presentation) -> bytes:
    """Return the file's bytes; the same presentation gives the same bytes."""
    package = presentation.part.package
    parts = tuple(package.iter_parts())
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        types = _ContentTypesItem.xml_for(parts)
        _add(archive, CONTENT_TYPES_URI.membername, serialize_part_xml(types))
        _add(archive, PACKAGE_URI.rels_uri.membername, package._rels.xml)  # noqa: SLF001 - has no public name
        for part in parts:
            _add(archive, part.partname.membername, part.blob)
            if part._rels:  # noqa: SLF001 - as above
                _add(archive, part.partname.rels_uri.membername, part.rels.xml)
    return written.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_STORED if name.endswith(_PACKED) else zipfile.ZIP_DEFLATED
    archive.writestr(member, content)
