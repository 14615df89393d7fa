"""Decks of three slides, red, green and blue, that hide and move them in the ways decks do."""

from __future__ import annotations

_BODY = """<section class="slide" id=a style="background:#ff0000"><h1>one</h1></section>
<section class="slide" id=b style="background:#00ff00"><h1>two</h1></section>
<section class="slide" id=c style="background:#0000ff"><h1>three</h1></section>"""
_ACTIVE = _BODY.replace('class="slide" id=a', 'class="slide active" id=a')


def _deck(style: str, body: str = _BODY, script: str = "") -> str:
    base = "*{margin:0;box-sizing:border-box}"
    return f"<!doctype html><meta charset=utf-8><style>{base}{style}</style>{body}<script>{script}</script>"


_FULL = "width:1920px;height:1080px;"
_CONTROLS = "<div style='position:fixed;inset:400px 0'><button style='width:100%;height:300px'>Next</button></div>"
_GO = "let at=0;const all=[...document.querySelectorAll('.slide')];onkeydown=()=>{all[at].classList.remove('active');"

DECKS = {
    "flow": _deck(f".slide{{{_FULL}}}"),
    "display": _deck(f".slide{{{_FULL}display:none}}.slide.active{{display:flex}}", _ACTIVE + _CONTROLS, _GO + "}"),
    "preview": _deck(
        f".slide{{{_FULL}display:none}}.slide.active{{display:flex}}", f"<div class=preview-area>{_ACTIVE}</div>"
    ),
    "opacity": _deck(
        ".slide{position:absolute;inset:0;width:100vw;height:100vh;opacity:0;transition:opacity .8s}"
        ".slide.active{opacity:1}",
        _ACTIVE,
    ),
    "visibility": _deck(
        f"body{{overflow:hidden}}.slide{{position:absolute;top:0;left:0;{_FULL}visibility:hidden}}"
        ".slide.active{visibility:visible}",
        _ACTIVE,
    ),
    "track": _deck(
        "body{overflow:hidden}.view{width:100vw;height:100vh;overflow:hidden}"
        ".track{display:flex;width:300vw;transform:translateX(-100vw);transition:transform 1s}"
        ".slide{width:100vw;height:100vh;flex:none}",
        f"<div class=view><div class=track>{_BODY}</div></div>",
    ),
    "stacked": _deck(f".slide{{position:absolute;top:0;left:0;{_FULL}}}"),
    "inline": _deck(
        f".slide{{{_FULL}}}",
        script="document.querySelectorAll('.slide').forEach((e,i)=>{e.style.display=i?'none':'grid'})",
    ),
    "attribute": _deck(f".slide{{{_FULL}}}", _BODY.replace("id=b", "id=b hidden").replace("id=c", "id=c hidden")),
    "snap": _deck(
        ".deck{height:100vh;overflow-y:scroll;scroll-snap-type:y mandatory;scroll-behavior:smooth}"
        ".slide{height:100vh;scroll-snap-align:start}",
        f"<main class=deck>{_BODY}</main>",
    ),
    "sideways": _deck(
        "html{scroll-snap-type:x mandatory}body{display:flex;width:300vw}.slide{width:100vw;height:100vh;"
        "scroll-snap-align:start;scroll-margin:50px}",
    ),
    "moved": _deck(
        f"body{{overflow:hidden}}.slide{{position:absolute;{_FULL}transform:translateX(100%) scale(.8);opacity:.2}}"
        ".slide.active{transform:none;opacity:1}",
        _ACTIVE,
    ),
    "scaled": _deck(
        ".stage{transform:scale(.5);transform-origin:0 0;width:3840px}.slide{width:3840px;height:2160px}",
        f"<div class=stage>{_BODY}</div>",
    ),
    "thumbnails": _deck(
        f".main .slide{{{_FULL}}}.thumbs{{position:fixed;right:0;top:0;z-index:9}}"
        ".thumbs .slide{width:96px;height:54px}",
        f"<div class=main>{_BODY}</div><nav class=thumbs><button>x</button>{_BODY}</nav>",
    ),
    "faded": _deck(
        f".slide{{{_FULL}position:relative}}.slide>*{{opacity:0;transition:opacity 2s 1s}}.slide.seen>*{{opacity:1}}"
        "h1{position:absolute;inset:0;background:inherit}",
        _BODY.replace("<h1>", "<h1 style='background:#ff00ff'>"),
        "const o=new IntersectionObserver(es=>es.forEach(e=>e.isIntersecting&&e.target.classList.add('seen')));"
        "document.querySelectorAll('.slide').forEach(e=>o.observe(e))",
    ),
    "nested": _deck(f".slide .slide{{{_FULL}}}", f"<div class='slide wrapper'>{_BODY}</div>"),
    "details": _deck(
        f".slide{{{_FULL}}}.deck{{display:none}}", f"<div class=deck><div style='opacity:0'>{_BODY}</div></div>"
    ),
    "late": _deck(
        f".slide{{{_FULL}}}",
        "<div id=root></div>",
        f"addEventListener('load',()=>requestAnimationFrame(()=>{{document.getElementById('root').innerHTML=`{_BODY}`}}))",
    ),
    "reveal": _deck(
        ".reveal .slides section{height:100%}",
        '<link rel=stylesheet href="https://cdn.example/npm/reveal.js@5/dist/reveal.css">'
        '<script src="https://cdn.example/npm/reveal.js@5/dist/reveal.js"></script>'
        f"<div class=reveal><div class=slides>{_BODY}</div></div>",
        "Reveal.initialize({width:1920,height:1080,margin:0,center:false,transition:'slide'})",
    ),
}
"""By how they do it. In the window of 1920 x 1080 each slide is to fill it."""
