"""A deck of fifteen slides as models write them: for times that anybody can take, without anybody else's deck."""

from __future__ import annotations

import base64
import random
import struct
import zlib

SLIDES = 15
_STYLE = """
*{box-sizing:border-box;margin:0}
body{font-family:Inter,'Helvetica Neue',sans-serif;background:#0f172a}
.slide{position:relative;width:1920px;height:1080px;padding:90px 110px;overflow:hidden;background:#fff;color:#1e293b}
.slide.dark{background:linear-gradient(135deg,#0f172a,#312e81 60%,#7c3aed);color:#f8fafc}
h1{font-size:96px;line-height:1.1;letter-spacing:-2px}h2{font-size:60px;margin-bottom:48px}
p,li{font-size:30px;line-height:1.5}ul{padding-left:40px}code{font-family:'JetBrains Mono',monospace}
.kicker{font-size:24px;letter-spacing:6px;text-transform:uppercase;color:#7c3aed;margin-bottom:24px}
.grid{display:grid;grid-template-columns:repeat(3,1fr);gap:36px}
.card{padding:40px;border-radius:24px;background:#f1f5f9;border:1px solid #e2e8f0;box-shadow:0 12px 32px #0f172a22}
.card b{display:block;font-size:56px;color:#4338ca}
.columns{display:flex;gap:60px}.columns>*{flex:1}
.pill{display:inline-block;padding:10px 28px;border-radius:99px;background:#ede9fe;color:#5b21b6;font-size:24px}
table{width:100%;border-collapse:collapse;font-size:28px}
td,th{padding:16px 20px;border-bottom:2px solid #e2e8f0;text-align:left}th{background:#eef2ff;color:#3730a3}
pre{padding:40px;border-radius:20px;background:#0b1020;color:#e2e8f0;font:26px/1.5 'JetBrains Mono',monospace}
pre i{color:#a78bfa;font-style:normal}
blockquote{font-size:54px;line-height:1.3;border-left:12px solid #a78bfa;padding-left:48px}
.bar{height:44px;border-radius:12px;background:linear-gradient(90deg,#4361ee,#7209b7);margin-bottom:20px}
img{width:100%;height:640px;object-fit:cover;border-radius:24px}
.foot{position:absolute;left:110px;right:110px;bottom:40px;display:flex;justify-content:space-between}
.foot span{font-size:20px;color:#94a3b8}
"""
_WORDS = (
    *("revenue", "margin", "pipeline", "customers", "latency", "coverage", "retention"),
    *("quarter", "forecast", "region", "launch", "support", "quality", "review"),
    *("budget", "hiring", "roadmap", "partner", "release", "adoption"),
)


def make_deck(slides: int = SLIDES) -> str:
    """Write the page: the same each time."""
    chance = random.Random(7)
    kinds = (_title, _cards, _list, _table, _code, _drawing, _photo, _quote, _bars)
    parts = [kinds[number % len(kinds)](number, chance) for number in range(slides)]
    pages = (
        f"{part}<div class=foot><span>Rabbits Ltd.</span><span>{at} / {slides}</span></div></section>"
        for at, part in enumerate(parts, 1)
    )
    head = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>The year of the rabbit</title><style>{_STYLE}</style>"
    )
    return head + "\n".join(pages)


def _say(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(_WORDS, k=count)).capitalize() + "."


def _title(number: int, chance: random.Random) -> str:
    return (
        f"<section class='slide dark'><div class=kicker>Part {number + 1}</div><h1>The year of the rabbit</h1>"
        f"<p style='margin:40px 0'>{_say(chance, 12)}</p><span class=pill>{_say(chance, 2)}</span>"
    )


def _cards(_number: int, chance: random.Random) -> str:
    cards = "".join(
        f"<div class=card><b>{chance.randint(10, 99)} %</b><p>{_say(chance, 8)}</p></div>" for _ in range(6)
    )
    return f"<section class=slide><h2>{_say(chance, 3)}</h2><div class=grid>{cards}</div>"


def _list(_number: int, chance: random.Random) -> str:
    items = "".join(f"<li><b>{_say(chance, 2)}</b> {_say(chance, 9)}</li>" for _ in range(5))
    return (
        f"<section class=slide><h2>{_say(chance, 4)}</h2><div class=columns><ul>{items}</ul>"
        f"<div class=card><p>{_say(chance, 30)}</p><p><a href='https://example.com/'>Read on</a></p></div></div>"
    )


def _table(_number: int, chance: random.Random) -> str:
    rows = "".join(
        f"<tr><td>{_say(chance, 2)}</td>" + "".join(f"<td>{chance.randint(1, 9999):,}</td>" for _ in range(4)) + "</tr>"
        for _ in range(8)
    )
    head = "".join(f"<th>{name}</th>" for name in ("Where", "Q1", "Q2", "Q3", "Q4"))
    return f"<section class=slide><h2>{_say(chance, 3)}</h2><table><tr>{head}</tr>{rows}</table>"


def _code(_number: int, chance: random.Random) -> str:
    lines = "\n".join(
        f"<i>def</i> {chance.choice(_WORDS)}_{at}({chance.choice(_WORDS)}):  # {_say(chance, 3)}" for at in range(14)
    )
    return f"<section class='slide dark'><h2>{_say(chance, 3)}</h2><pre><code>{lines}</code></pre>"


def _drawing(_number: int, chance: random.Random) -> str:
    points = [(at * 120, chance.randint(40, 560)) for at in range(14)]
    line = " ".join(f"{x},{y}" for x, y in points)
    dots = "".join(f"<circle cx={x} cy={y} r=12 fill='#7c3aed'/>" for x, y in points)
    return (
        f"<section class=slide><h2>{_say(chance, 4)}</h2><svg width=1700 height=680 viewBox='-20 0 1700 620'>"
        f"<polyline points='{line}' fill=none stroke='#4338ca' stroke-width=8 />{dots}"
        f"<text x=0 y=610 font-size=28>{_say(chance, 4)}</text></svg>"
    )


def _photo(number: int, chance: random.Random) -> str:
    picture = base64.b64encode(_paint(640, 400, number)).decode()
    return (
        f"<section class=slide><h2>{_say(chance, 3)}</h2><div class=columns>"
        f"<img alt='A field' src='data:image/png;base64,{picture}'><p>{_say(chance, 40)}</p></div>"
    )


def _quote(_number: int, chance: random.Random) -> str:
    quote = f"<blockquote>{_say(chance, 22)}</blockquote><p style='margin-top:48px'>— {_say(chance, 2)}</p>"
    return f"<section class=slide>{quote}"


def _bars(_number: int, chance: random.Random) -> str:
    bars = "".join(
        f"<p>{_say(chance, 2)}</p><div class=bar style='width:{chance.randint(20, 100)}%'></div>" for _ in range(7)
    )
    return f"<section class=slide><h2>{_say(chance, 3)}</h2>{bars}"


def _paint(width: int, height: int, seed: int) -> bytes:
    """Make a picture with the weight of a photograph: soft, with grain, which packs badly."""
    grain = random.Random(seed).randbytes(width * height)
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            noise = grain[y * width + x] & 15
            rows += bytes((x * 200 // width + noise, y * 200 // height + noise, 120 + noise))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(rows), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
