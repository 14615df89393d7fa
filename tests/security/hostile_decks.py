"""Decks that attack their renderer. PORT stands for a port that must never be reached."""

from __future__ import annotations

_STYLE = (
    "<style>body{margin:0}.slide{width:1280px;height:720px;background:#fff;position:relative;overflow:hidden}</style>"
)


def _deck(attack: str, slides: str = "<section class=slide><h1 id=said>innocent</h1></section>") -> str:
    return f"<!doctype html><meta charset=utf-8>{_STYLE}<body>{slides}{attack}"


_TRIES = """
<script>
const home = 'http://127.0.0.1:PORT', file = 'file:///tmp/secret.txt';
const said = document.getElementById('said');
const say = (how, what) => { said.textContent += ` ${how}:${String(what).slice(0, 60)}`; };
const attempt = async (how, act) => { try { const got = await act(); if (got) say('LEAK-' + how, got); } catch {} };
for (const url of [file, home + '/fetch']) {
  attempt('fetch', async () => (await fetch(url)).text());
  attempt('opaque', async () => { await fetch(url, {mode: 'no-cors'}); return 'reached'; });
  attempt('xhr', () => new Promise((done, failed) => {
    const asked = new XMLHttpRequest(); asked.onload = () => done(asked.responseText); asked.onerror = failed;
    asked.open('GET', url); asked.send(); }));
  attempt('module', async () => { await import(url); return 'imported'; });
  attempt('image', () => new Promise((done, failed) => {
    const image = new Image(); image.onload = () => done('loaded'); image.onerror = failed; image.src = url; }));
  attempt('frame', () => new Promise(done => {
    const frame = document.createElement('iframe'); frame.src = url; document.body.append(frame);
    frame.onload = () => { try { done(frame.contentDocument.body.textContent); } catch { done(''); } }; }));
  attempt('style', () => { const sheet = document.createElement('link'); sheet.rel = 'stylesheet'; sheet.href = url;
    document.head.append(sheet); });
  for (const rel of ['prefetch', 'preload', 'preconnect', 'dns-prefetch', 'prerender', 'modulepreload', 'icon']) {
    const link = document.createElement('link'); link.rel = rel; link.href = url; link.as = 'script';
    document.head.append(link);
  }
}
attempt('socket', () => new Promise((done, failed) => {
  const socket = new WebSocket('ws://127.0.0.1:PORT/');
  socket.onopen = () => done('open'); socket.onerror = failed; }));
attempt('events', () => new Promise((done, failed) => {
  const events = new EventSource(home); events.onopen = () => done('open'); events.onerror = failed; }));
attempt('beacon', () => { navigator.sendBeacon(home, 'x'); });
attempt('worker', () => new Promise((done, failed) => {
  const code = `fetch('${home}/worker').then(() => postMessage('reached'), () => postMessage(''));
    new WebSocket('ws://127.0.0.1:PORT/worker')`;
  const worker = new Worker(URL.createObjectURL(new Blob([code])));
  worker.onmessage = event => done(event.data); worker.onerror = failed; }));
attempt('service', async () => { await navigator.serviceWorker.register('/sw.js'); return 'registered'; });
attempt('peer', async () => {
  const peer = new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:PORT'},
    {urls: 'turn:127.0.0.1:PORT?transport=tcp', username: 'a', credential: 'b'}]});
  peer.createDataChannel('x'); await peer.setLocalDescription(await peer.createOffer()); });
attempt('transport', async () => { await new WebTransport('https://127.0.0.1:PORT/').ready; return 'open'; });
attempt('popup', () => { const opened = window.open(home + '/popup'); return opened && 'opened'; });
attempt('rules', () => { const rules = document.createElement('script'); rules.type = 'speculationrules';
  rules.textContent = JSON.stringify({prerender: [{source: 'list', urls: [home + '/rules']}]});
  document.head.append(rules); });
addEventListener('load', () => attempt('download', () => {
  const link = document.createElement('a'); link.href = home + '/download';
  link.download = 'x'; link.ping = home + '/ping'; document.body.append(link); link.click(); }));
addEventListener('load', () => attempt('form', () => {
  const form = document.createElement('form'); form.action = home + '/form';
  form.method = 'post'; document.body.append(form); form.submit(); }));
</script>
"""
_SHOWN = """<section class=slide><iframe src='file:///tmp/secret.txt' width=1200 height=600></iframe></section>
<section class=slide><object data='file:///tmp/secret.txt' width=1200 height=600></object></section>
<section class=slide><embed src='file:///tmp/secret.txt' width=1200 height=600></section>
<section class=slide><iframe src='http://127.0.0.1:PORT/' width=1200 height=600 style='border:0'></iframe></section>
<section class=slide style='background:url(http://127.0.0.1:PORT/b.png), url(file:///tmp/secret.txt)'></section>"""
_POISON = """<img name=querySelectorAll><img name=getAnimations><img name=title><form class=x><input name=style></form>
<script>
const wrong = () => { throw new Error('PWNED'); };
Array.prototype.map = Array.prototype.filter = () => ['PWNED'];
Array.from = () => ['PWNED']; JSON.stringify = () => '"PWNED"'; Promise.prototype.then = wrong;
Element.prototype.getBoundingClientRect = () => ({x: 0, y: 0, left: 0, top: 0, width: 9e9, height: 9e9});
Document.prototype.querySelectorAll = Element.prototype.scrollIntoView = window.getComputedStyle = wrong;
window.requestAnimationFrame = window.setTimeout = () => 0; Object.defineProperty(Object.prototype, 'value',
  {get: () => 'PWNED', set() {}, configurable: true}); window.MutationObserver = window.OffscreenCanvas = wrong;
globalThis.slides = globalThis.settling = new Proxy({}, {get: () => wrong});
</script>"""
_RESTLESS = """<style>@keyframes spin{to{transform:rotate(1turn)}} h1{animation:spin 1s infinite}
.slide{transition:all 3600s} @keyframes in{from{opacity:0}} .slide{animation:in 3600s both}</style>
<canvas id=c></canvas><script>const c = document.getElementById('c').getContext('2d');
const tick = () => { c.fillStyle = `hsl(${Math.random() * 360} 90% 50%)`; c.fillRect(0, 0, 300, 300);
  document.body.dataset.now = performance.now(); requestAnimationFrame(tick); };
tick(); setInterval(() => fetch('/assets/poll?' + Math.random()).catch(() => 0), 1);
document.fonts.add(new FontFace('never', 'url(/assets/never.woff2)'));</script>
<video autoplay loop src='/assets/never.mp4'></video><img loading=lazy src='/assets/never.png'>"""

HARMLESS = {
    "tries": _deck(_TRIES),
    "shown": _deck("", _SHOWN),
    "poison": _deck(_POISON),
    "dialogs": _deck(
        "<script>alert(1);confirm(2);prompt(3);print();onbeforeunload=e=>{e.preventDefault();return 'x'};"
        "for(let i=0;i<50;i++){open('about:blank');open('http://127.0.0.1:PORT/')}</script>"
    ),
    "leaving": _deck(
        "<meta http-equiv=refresh content='0;url=http://127.0.0.1:PORT/refresh'>"
        "<script>location='http://127.0.0.1:PORT/x';location='file:///tmp/secret.txt';setInterval(()=>{"
        "location.href='http://127.0.0.1:PORT/y';location.reload()},5);history.pushState(1,'','/elsewhere')</script>"
    ),
    "restless": _deck(_RESTLESS),
    "frames": _deck(
        "<iframe src='/'></iframe><iframe src='/?again'></iframe><iframe src='#x'></iframe><script>"
        "const own=document.documentElement.outerHTML;if(top===self)for(let i=0;i<12;i++){"
        "const f=document.createElement('iframe');if(i%2)f.src='/?'+i;else f.srcdoc=own;"
        "document.body.append(f)}</script>"
    ),
}
"""Each of them ends well: what it wanted did not happen, and its slides are there."""

_BOMBED = {"page_crashed", "timeout"}

REFUSED = {
    "endless": (_deck("<script>while(true);</script>"), {"timeout"}),
    "endless-later": (_deck("<script>onload=()=>setTimeout(()=>{while(true);},30)</script>"), {"timeout"}),
    "alerts": (_deck("<script>for(;;)alert(1)</script>"), {"timeout"}),
    "promises": (_deck("<script>const f=()=>Promise.resolve().then(f);f()</script>"), {"timeout"}),
    "about-blank": (_deck("<script>onload=()=>{location='about:blank'}</script>"), {"page_left", "no_slides"}),
    "blob": (
        _deck(
            "<script>onload=()=>{"
            "location=URL.createObjectURL(new Blob(['<p class=slide>x'],{type:'text/html'}))}</script>"
        ),
        {"page_left"},
    ),
    "giant": (_deck("<style>.slide{width:60000px;height:60000px}</style>"), {"slide_size"}),
    "heap": (_deck("<script>const a=[];for(;;)a.push(new Array(1e6).fill(a.length))</script>"), _BOMBED),
    "buffers": (_deck("<script>const a=[];for(;;)a.push(new Uint8Array(5e7).fill(1))</script>"), _BOMBED),
    "vanishing": (
        _deck(
            "<script>const all=[...document.querySelectorAll('.slide')];"
            "addEventListener('scroll',()=>all.slice(1).forEach(e=>e.remove()))</script>",
            "<section class=slide>1</section>" * 150,
        ),
        {"page_changed"},
    ),
    "none": (_deck("<script>document.querySelectorAll('.slide').forEach(e=>e.remove())</script>"), {"no_slides"}),
    "many": (_deck("", "<section class=slide></section>" * 201), {"too_many_slides"}),
    "crowd": (_deck("<script>document.body.innerHTML='<i class=slide></i>'.repeat(6e4)</script>"), {"too_many_slides"}),
    "output": (_deck(""), {"output_too_large"}),
}
"""Each of them ends in an error with one of these codes."""
EITHER = {
    "shifting": _deck(
        "<script>setInterval(()=>{const all=[...document.querySelectorAll('.slide')];"
        "document.body.append(all[Math.random()*all.length|0]);all[0].className+=' slide x'+Math.random();"
        "all[0].style.width=Math.random()*9000+'px';all[0].cloneNode(true)},1)</script>",
        "<section class=slide><p>1</p></section>" * 5,
    ),
    "forest": _deck("<script>document.querySelector('.slide').innerHTML='<b><i>x</i></b>'.repeat(3e5)</script>"),
    "deep": _deck(
        "<script>let e=document.querySelector('.slide');for(let i=0;i<2e4;i++){const n=document."
        "createElement('div');e.append(n);e=n}</script>"
    ),
    "blurred": _deck(
        "<style>.slide *{filter:blur(400px) drop-shadow(0 0 300px red)}</style>",
        "<section class=slide>" + "<div style='position:absolute;inset:0'>x" * 40 + "</section>",
    ),
}
"""Each of them ends well or in an error, and in time."""
ALONE = ("heap", "buffers")
"""They fill the memory, and what else is in the sandbox would feel it."""
ORDERS = {
    **{name: {"timeout_s": 4.0} for name in ("endless", "endless-later", "alerts", "promises", *EITHER)},
    **{name: {"timeout_s": 15.0} for name in ALONE},
    "output": {"max_output_bytes": 1000},
}
"""What is written in their job files."""
