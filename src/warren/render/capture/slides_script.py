"""The script that finds and shows slides. It runs in the isolated world, beside the page's own scripts."""

LIBRARY = r"""
globalThis.slides = (() => {
  const CLONES = '.slick-cloned, .swiper-slide-duplicate, .splide__slide--clone, .owl-item.cloned, [data-clone],' +
    '.slide-background, .backgrounds *';
  const SMALL = /thumb|overview|minimap|mini-map|preview|navigator|filmstrip|outline|sidebar/i;
  const CONTROL = 'button, input, select, [role=button], [onclick], a[href^="#"]';
  const CHROME = /nav|control|arrow|pager|pagination|progress|dots|counter|hint|toolbar|fullscreen|slide-num/i;
  const PLACED = ['display', 'opacity', 'visibility', 'transform', 'left', 'top', 'z-index'];
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const words = element => String(element.getAttribute('class') || '') + ' ' + element.id;
  const chain = element => {
    const found = [];
    for (let at = element.parentElement; at; at = at.parentElement) found.push(at);
    return found;
  };
  const seen = element => {
    const box = element.getBoundingClientRect();
    return box.width > 1 && box.height > 1 &&
      element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  };

  let found = [], one = false, lit = null, on = [], off = [], changed = [];

  const set = (element, property, value) => {
    changed.push([element, property, element.style.getPropertyValue(property),
                  element.style.getPropertyPriority(property)]);
    element.style.setProperty(property, value, 'important');
  };
  const restore = () => {
    for (const [element, property, value, priority] of changed.reverse()) {
      element.style.setProperty(property, value, priority);
    }
    changed = [];
  };

  const candidates = () => {
    const leaves = all('.slide').filter(element => !element.querySelector('.slide') && !element.matches(CLONES));
    return leaves.flatMap(element => {
      if (!element.matches('.reveal')) return [element];
      const sections = all('.slides section', element).filter(section => !section.querySelector('section'));
      return sections.length ? sections : [element];
    });
  };
  const without_small = elements => {
    const widths = elements.map(element => element.getBoundingClientRect().width);
    const widest = elements[widths.indexOf(Math.max(...widths))];
    const full = !widest ? 0 : widest.getBoundingClientRect().width;
    return elements.filter((element, i) => widths[i] >= full / 2 || !full ||
      ![element, ...chain(element)].some(at => SMALL.test(words(at)) && !at.contains(widest)));
  };
  const overlapping = elements => {
    const boxes = elements.map(element => element.getBoundingClientRect());
    return boxes.some((box, i) => {
      const next = boxes[i + 1];
      if (!next) return false;
      const wide = Math.min(box.right, next.right) - Math.max(box.left, next.left);
      const high = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
      return wide > box.width / 2 && high > box.height / 2;
    });
  };
  const compare = () => {
    const visible = found.filter(seen), hidden = found.filter(element => !visible.includes(element));
    const stacked = overlapping(visible);
    one = hidden.length > 0 || stacked;
    lit = hidden.length && visible.length ? visible[0] : null;
    const names = element => Array.from(element.classList);
    const active = ['active', 'current', 'present', 'visible', 'is-active', 'show', 'shown'];
    on = lit ? names(lit).filter(name => !hidden.some(other => other.classList.contains(name)))
             : active.filter(name => found.some(element => element.classList.contains(name)));
    on = on.filter(name => visible.every(element => element.classList.contains(name)) || active.includes(name));
    off = hidden.length && lit
      ? names(hidden[0]).filter(name => !lit.classList.contains(name) &&
                                hidden.every(element => element.classList.contains(name)))
      : [];
    for (const name of ['past', 'future', 'prev', 'next', 'hidden', 'inactive', 'previous']) {
      if (one && !off.includes(name) && !(lit && lit.classList.contains(name))) off.push(name);
    }
    if (lit) lit = {display: getComputedStyle(lit).display,
                    style: PLACED.map(name => [name, lit.style.getPropertyValue(name)])};
  };
  const hide_controls = () => {
    const around = new Set(found.flatMap(chain));
    for (const element of all('body *').slice(0, 5000)) {
      if (around.has(element) || found.some(slide => slide.contains(element))) continue;
      const position = getComputedStyle(element).position;
      if (position !== 'fixed' && !(one && position === 'absolute')) continue;
      const is_control = element.matches(CONTROL) || element.querySelector(CONTROL) !== null;
      if (is_control || (one && CHROME.test(words(element)))) {
        element.style.setProperty('display', 'none', 'important');
      }
    }
  };
  const find = () => {
    if (all('.slide').length > 5000) return 5000;
    found = without_small(candidates());
    if (!found.length || found.length > 1000) return found.length;
    compare();
    hide_controls();
    return found.length;
  };

  const activate = element => {
    for (const other of found) {
      if (other === element) continue;
      other.classList.remove(...on);
      set(other, 'visibility', 'hidden');
      set(other, 'opacity', '0');
    }
    element.classList.remove(...off);
    element.classList.add(...on);
    element.removeAttribute('hidden');
    element.removeAttribute('inert');
    if (element.getAttribute('aria-hidden') === 'true') element.setAttribute('aria-hidden', 'false');
    if (lit) for (const [name, value] of lit.style) {
      if (element.style.getPropertyValue(name) !== value) set(element, name, value);
    }
    for (const at of [element, ...chain(element)]) {
      const style = getComputedStyle(at);
      if (style.display === 'none') set(at, 'display', at === element && lit ? lit.display : 'block');
      if (Number(style.opacity) < 1 && at === element || Number(style.opacity) === 0) set(at, 'opacity', '1');
      if (style.visibility !== 'visible' && at === element) set(at, 'visibility', 'visible');
      if (style.contentVisibility === 'hidden') set(at, 'content-visibility', 'visible');
    }
  };
  const in_view = box => box.left > -1 && box.top > -1 &&
    box.left < 1 + Math.max(0, innerWidth - box.width) && box.top < 1 + Math.max(0, innerHeight - box.height);
  const reach = element => {
    element.scrollIntoView({block: 'start', inline: 'start', behavior: 'instant'});
    let box = element.getBoundingClientRect();
    if (Math.abs(box.left) >= 1 || Math.abs(box.top) >= 1) {
      scrollBy({left: box.left, top: box.top, behavior: 'instant'});
      box = element.getBoundingClientRect();
    }
    return in_view(box);
  };
  const clipped = element => chain(element).some(at => {
    if (at === document.body || at === document.documentElement) return false;
    if (getComputedStyle(at).overflow === 'visible') return false;
    const box = element.getBoundingClientRect(), frame = at.getBoundingClientRect();
    return box.left < frame.left - 1 || box.top < frame.top - 1 ||
      box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
  });
  const isolate = element => {
    const width = element.offsetWidth || innerWidth, height = element.offsetHeight || innerHeight;
    for (const at of chain(element)) {
      const style = getComputedStyle(at);
      for (const name of ['transform', 'translate', 'scale', 'rotate', 'perspective', 'clip-path', 'contain']) {
        if (style.getPropertyValue(name) !== 'none') set(at, name, 'none');
      }
      if (at !== document.documentElement && at !== document.body) set(at, 'overflow', 'visible');
    }
    const place = {position: 'fixed', left: '0', top: '0', right: 'auto', bottom: 'auto', margin: '0',
      transform: 'none', translate: 'none', scale: 'none', 'z-index': '2147483647', 'box-sizing': 'border-box',
      width: width + 'px', height: height + 'px', 'max-width': 'none', 'max-height': 'none'};
    for (const [name, value] of Object.entries(place)) set(element, name, value);
  };
  const show = async i => {
    const element = found[i];
    restore();
    if (!element || !element.isConnected) return null;
    if (one) activate(element);
    reach(element);
    await settling.arrived();
    const reached = in_view(element.getBoundingClientRect()) || reach(element);
    if (!reached || clipped(element)) {
      for (const at of chain(element)) set(at, 'scroll-snap-type', 'none');
      if (!reach(element) || clipped(element)) isolate(element);
      await settling.frame();
    }
    if (settling.still()) await settling.frame();
    if (!element.isConnected) return null;
    const box = element.getBoundingClientRect();
    return {x: box.left, y: box.top, width: box.width, height: box.height};
  };

  const flat = text => (text || '').replace(/\s+/g, ' ').trim();
  const NOTES = 'aside.notes, .speaker-notes, .notes, [data-speaker-notes], template.notes';
  const describe = longest => found.map(element => {
    const heading = element.querySelector('h1, h2, h3, [role=heading], .title');
    const title = flat(element.getAttribute('data-title') || (heading && heading.textContent) ||
                       element.getAttribute('aria-label'));
    const own = element.getAttribute('data-notes') || element.getAttribute('data-speaker-notes');
    const notes = own ? [own] : all(NOTES, element).map(note =>
      note.getAttribute('data-speaker-notes') || (note.content ? note.content.textContent : note.textContent));
    return {title: title.slice(0, 250), text: flat(element.innerText || element.textContent).slice(0, longest),
            notes: notes.map(note => (note || '').trim()).join('\n').slice(0, longest)};
  });
  return {find, show, describe, element: i => found[i]};
})();
0;
"""
