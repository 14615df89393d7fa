// What a page shows, for slides_score.py: words with their places, painted boxes, blocks of text, tables, links.
() => {
  const pen = document.createElement('canvas').getContext('2d');
  const cjk = '\\u2e80-\\u9fff\\uac00-\\ud7af\\uf900-\\ufaff\\u3040-\\u30ff';
  const isShown = e => !e.checkVisibility || e.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const cased = (text, style) => style.textTransform === 'uppercase' ? text.toUpperCase()
    : style.textTransform === 'lowercase' ? text.toLowerCase() : text;
  const opacity = colour => {
    const parts = colour.match(/[\d.]+/g);
    return /rgba|\/ /.test(colour) ? parseFloat(parts[parts.length - 1]) : 1;
  };

  const textOf = (slide, frame) => {
    const words = [], blocks = new Set();
    const walker = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (!parent || !node.data.trim() || /^(SCRIPT|STYLE|TITLE|DESC|NOSCRIPT)$/i.test(parent.tagName)) continue;
      const style = getComputedStyle(parent);
      if (!isShown(parent) || parseFloat(style.fontSize) < 3) continue;
      const token = new RegExp(`[${cjk}]|(?:(?![${cjk}])[\\p{L}\\p{N}\\p{M}])+`, 'gu');
      pen.font = style.font;
      const ascent = pen.measureText('x').fontBoundingBoxAscent;
      let found, any = false;
      while ((found = token.exec(node.data))) {
        const range = document.createRange();
        range.setStart(node, found.index);
        range.setEnd(node, found.index + found[0].length);
        const box = range.getClientRects()[0];
        if (!box || box.width < 1 || box.height < 1) continue;
        const x = box.left - frame.left, y = box.top - frame.top;
        const cx = x + box.width / 2, cy = y + box.height / 2;
        if (cx < 0 || cy < 0 || cx > frame.width || cy > frame.height) continue;
        const base = y + (parent.namespaceURI.includes('svg') ? box.height * .8 : ascent);
        words.push([cased(found[0], style), x, y, box.width, box.height, base]);
        any = true;
      }
      if (!any) continue;
      let block = parent;
      while (block !== slide && getComputedStyle(block).display.startsWith('inline') && !block.closest('svg')) {
        block = block.parentElement;
      }
      blocks.add(block);
    }
    return {words, blocks: blocks.size};
  };

  const boxesOf = (slide, frame) => {
    const boxes = [];
    for (const each of slide.querySelectorAll('*')) {
      const style = getComputedStyle(each), box = each.getBoundingClientRect();
      if (each.closest('svg') || !isShown(each) || box.width < 4 || box.height < 4) continue;
      if (style.display === 'contents') continue;
      const isText = /text/.test(style.webkitBackgroundClip || '');
      const isFilled = !isText && (style.backgroundImage.includes('gradient')
        || style.backgroundColor !== 'rgba(0, 0, 0, 0)' && opacity(style.backgroundColor) > .02);
      const sides = ['Top', 'Right', 'Bottom', 'Left'].filter(side => parseFloat(style[`border${side}Width`]) > 0
        && style[`border${side}Style`] !== 'none' && opacity(style[`border${side}Color`]) > .02).length;
      const x = box.left - frame.left, y = box.top - frame.top;
      if (x > frame.width || y > frame.height || x + box.width < 0 || y + box.height < 0) continue;
      if (box.width * box.height >= .97 * frame.width * frame.height) continue;
      if (isFilled || sides === 4) boxes.push([x, y, box.width, box.height]);
    }
    return boxes;
  };

  return [...document.querySelectorAll('.slide')].map(slide => {
    const frame = slide.getBoundingClientRect();
    return {...textOf(slide, frame), boxes: boxesOf(slide, frame), tables: slide.querySelectorAll('table').length,
            links: slide.querySelectorAll('a[href^=http]').length};
  });
}
