"""Scripts for values that a snapshot lacks. Each runs on one element (`this`) and returns a string, checked here."""

MEASURE = r"""
(fonts => {
  const context = Document.prototype.createElement.call(document, 'canvas').getContext('2d');
  return fonts.map(font => {
    context.font = font;
    const found = context.measureText('x');
    return [found.fontBoundingBoxAscent, found.fontBoundingBoxDescent];
  });
})
"""
"""In the isolated world: ascent and descent of CSS fonts."""

INK = r"""
(pairs => {
  const context = Document.prototype.createElement.call(document, 'canvas').getContext('2d');
  return pairs.map(([font, letter]) => {
    // Large, because it is answered in whole pixels.
    const size = parseFloat(/([\d.]+)px/.exec(font)[1]) || 1;
    context.font = font.replace(/[\d.]+px/, '1000px');
    const found = context.measureText(letter);
    return [found.actualBoundingBoxLeft, found.actualBoundingBoxAscent,
      found.actualBoundingBoxRight, found.actualBoundingBoxDescent].map(side => side * size / 1000);
  });
})
"""
"""In the isolated world: how far the ink of single letters reaches."""

CHANGES = r"""
(() => {
  if (!globalThis.changes) {
    globalThis.changes = 1;
    new MutationObserver(list => {
      if (list.some(one => one.attributeName !== 'data-warren-paint')) globalThis.changes++;
    }).observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  }
  return globalThis.changes;
})()
"""
"""In the isolated world: a number that grows when the document changes."""

DRAWING = r"""
function(most) {
  const names = ['fill', 'fill-opacity', 'fill-rule', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray',
    'stroke-dashoffset', 'stroke-linecap', 'stroke-linejoin', 'opacity', 'stop-color', 'stop-opacity', 'color',
    'clip-rule', 'visibility', 'display', 'marker-start', 'marker-mid', 'marker-end', 'clip-path', 'mask'];
  const all = Element.prototype.querySelectorAll;
  const copy = Node.prototype.cloneNode.call(this, true);
  const from = [this, ...all.call(this, '*')], to = [copy, ...all.call(copy, '*')];
  if (from.length > 3000) return '';
  for (let at = 0; at < from.length; at++) {
    const style = getComputedStyle(from[at]), element = to[at];
    for (const attribute of Array.from(element.attributes)) {
      if (/^(on|style$|class$)/i.test(attribute.name)) element.removeAttribute(attribute.name);
    }
    for (const name of names) {
      const value = style.getPropertyValue(name);
      if (value && !(name === 'display' && value !== 'none')) element.setAttribute(name, value.replace(/"/g, "'"));
    }
    if (at > 0 && style.transform !== 'none' && !from[at].hasAttribute('transform')) return '';
    const link = element.getAttribute('href') || element.getAttribute('xlink:href') || '';
    if (link && link[0] !== '#') {
      if (/^(image|use)$/i.test(element.tagName)) return '';
      element.removeAttribute('href');
    }
    if (/^use$/i.test(element.tagName) && link && !all.call(this, link).length) return '';
  }
  for (const element of to) {
    if (/^(text|script|style|foreignobject|title|desc|animate.*|set)$/i.test(element.tagName)) element.remove();
  }
  const box = this.getBoundingClientRect();
  if (!copy.hasAttribute('viewBox')) copy.setAttribute('viewBox', `0 0 ${box.width} ${box.height}`);
  copy.setAttribute('width', String(box.width));
  copy.setAttribute('height', String(box.height));
  copy.removeAttribute('visibility');
  const text = new XMLSerializer().serializeToString(copy);
  return text.length > most ? '' : text;
}
"""
"""In the isolated world: a drawing that stands alone, without its text."""

CHART = r"""
function(most) {
  try {
    const context = document.createElement('canvas').getContext('2d');
    const paint = value => {
      if (Array.isArray(value)) value = value[0];
      if (value && value.colorStops && value.colorStops[0]) value = value.colorStops[0].color;
      if (typeof value !== 'string') return null;
      context.fillStyle = '#000001'; context.fillStyle = value;
      return context.fillStyle === '#000001' ? null : String(context.fillStyle);
    };
    const text = value => value === undefined || value === null ? '' : String(value).slice(0, 200);
    const number = value => typeof value === 'number' ? value
      : value && typeof value === 'object' ? (value.y ?? value.value ?? null)
      : typeof value === 'string' && value !== '' && isFinite(value) ? Number(value) : null;
    // Columns and lines over one axis; PowerPoint has those in one chart, too.
    const combined = (types, axes, lying) => types.size === 2 && types.has('bar') && types.has('line') && !lying
      && new Set(axes.map(axis => axis || 0)).size === 1;
    const chartjs = () => {
      const chart = window.Chart && window.Chart.getChart && window.Chart.getChart(this);
      if (!chart) return null;
      const options = chart.options || {}, plugins = options.plugins || {}, sets = chart.data.datasets || [];
      const own_type = one => one.type || chart.config.type;
      const types = new Set(sets.map(own_type));
      if (types.size !== 1 && !combined(types, sets.map(one => one.yAxisID), options.indexAxis === 'y')) return null;
      const scales = Object.values(options.scales || {});
      const drawn = at => {
        const own = (chart.getDatasetMeta(at).dataset || {}).options || sets[at];
        return {shown: chart.isDatasetVisible(at), fill: own.fill, backgroundColor: own.backgroundColor};
      };
      const type = types.size > 1 ? 'bar' : [...types][0];
      const across = options.indexAxis === 'y' ? 'x' : type === 'radar' ? 'r' : 'y';
      const axis = Object.values(chart.scales || {}).find(one => one.axis === across) || {};
      const lying = type === 'scatter' ? Object.values(chart.scales || {}).find(one => one.axis === 'x') : null;
      const ticks = axis.ticks || [], lines = (axis.options && axis.options.grid) || {};
      const part = (chart.getDatasetMeta(0).data || [])[0] || {}, area = chart.chartArea;
      const round = part.outerRadius > 0;
      const edges = type === 'radar' ? [axis.xCenter - axis.drawingArea, axis.yCenter - axis.drawingArea,
        2 * axis.drawingArea, 2 * axis.drawingArea]
        : round ? [part.x - part.outerRadius, part.y - part.outerRadius, 2 * part.outerRadius,
        2 * part.outerRadius] : area && [area.left, area.top, area.right - area.left, area.bottom - area.top];
      return {
        low: axis.min, high: axis.max, step: ticks.length > 2 ? ticks[1].value - ticks[0].value : null,
        ...(lying ? {x_low: lying.min, x_high: lying.max, x_step: lying.ticks.length > 2
          ? lying.ticks[1].value - lying.ticks[0].value : null} : {}),
        ticks: !(axis.options && axis.options.ticks && axis.options.ticks.display === false),
        grid: lines.display === false ? '' : paint(lines.color),
        hole: round ? part.innerRadius / part.outerRadius : 0.5,
        plot: edges && edges.map((edge, at) => edge / (at % 2 ? chart.height : chart.width)),
        family: text(options.font && options.font.family),
        type, labels: (chart.data.labels || []).slice(0, 500).map(text),
        horizontal: options.indexAxis === 'y', stacked: scales.some(scale => scale && scale.stacked === true),
        legend: plugins.legend && plugins.legend.display !== false ? (plugins.legend.position || 'top') : '',
        title: plugins.title && plugins.title.display ? text(plugins.title.text) : '',
        colour: paint(options.color), size: (options.font && options.font.size) || 12,
        title_size: (plugins.title && plugins.title.font && plugins.title.font.size) || 12,
        series: sets.slice(0, 24).map((one, at) => [one, drawn(at)]).filter(pair => pair[1].shown)
          .map(([one, own]) => ({
          name: text(one.label), values: one.data.slice(0, 500).map(number),
          xs: one.data.slice(0, 500).map(value => value && typeof value === 'object' ? value.x : null),
          filled: !!own.fill, as: own_type(one),
          colour: paint(/line|radar/.test(own_type(one)) ? one.borderColor : one.backgroundColor),
          lined: type !== 'scatter' || !!one.showLine, marker: part.options ? 2 * part.options.radius : 6,
          area: own.fill ? paint(own.backgroundColor) : null, smooth: one.tension > 0,
          edge: round && part.options && part.options.borderWidth > 0 ? paint(part.options.borderColor) : null,
          colours: Array.isArray(one.backgroundColor) ? one.backgroundColor.slice(0, 500).map(paint) : [],
        })),
      };
    };
    const legend = option => {
      const sign = option.legend && option.legend[0];
      if (!sign || sign.show === false) return '';
      if (sign.orient === 'vertical') return sign.left === 'left' ? 'left' : 'right';
      return sign.bottom !== null && sign.bottom !== undefined && sign.bottom !== 'auto' ? 'bottom' : 'top';
    };
    const title = option => {
      const sign = (option.title && option.title[0]) || {};
      return {title: text(sign.text), title_left: !/center|middle|right/.test(String(sign.left) + sign.textAlign),
        title_size: (sign.textStyle && sign.textStyle.fontSize) || 18};
    };
    const net = (chart, option, sets, palette) => {
      const web = chart.getModel().getComponent('radar').coordinateSystem, names = option.radar[0].indicator;
      const scales = web.getIndicatorAxes().map(one => one.scale);
      const [low, high] = scales[0].getExtent(), wide = chart.getWidth(), tall = chart.getHeight();
      // PowerPoint has one scale for all: with others, the same numbers would be another drawing.
      if (sets.length !== 1 || scales.some(one => String(one.getExtent()) !== String([low, high]))) return null;
      // It goes round the other way, too.
      const turned = list => [...list.slice(0, 1), ...list.slice(1).reverse()];
      const sign = (option.legend && option.legend[0]) || {}, lines = option.radar[0].splitLine || {};
      return {
        type: 'radar', low, high, step: scales[0].getInterval(), legend: legend(option), family: 'sans-serif', size: 12,
        ticks: !!(option.radar[0].axisLabel && option.radar[0].axisLabel.show),
        plot: [(web.cx - web.r) / wide, (web.cy - web.r) / tall, 2 * web.r / wide, 2 * web.r / tall],
        ...title(option),
        colour: paint((sign.textStyle || {}).color), grid: paint((lines.lineStyle || {}).color),
        labels: turned(names.slice(0, 500).map(one => text(one.name ?? one.text))),
        series: (sets[0].data || []).slice(0, 24).map((one, at) => {
          const shade = one.areaStyle || sets[0].areaStyle;
          return {
            name: text(one.name), values: turned((one.value || []).slice(0, 500).map(number)), filled: !!shade,
            colour: paint((one.lineStyle && one.lineStyle.color) || (one.itemStyle && one.itemStyle.color)
              || palette[at % palette.length]),
            opacity: (shade && shade.opacity) ?? 0.7, marker: 4, lined: true, colours: [],
          };
        }),
      };
    };
    const echarts = () => {
      const chart = window.echarts && window.echarts.getInstanceByDom && window.echarts.getInstanceByDom(this);
      if (!chart) return null;
      const option = chart.getOption(), sets = option.series || [], palette = option.color || [];
      const types = new Set(sets.map(one => one.type));
      const mixed = combined(types, sets.map(one => one.yAxisIndex), (option.yAxis || []).some(one => one.data));
      if ((types.size !== 1 && !mixed) || !/^(bar|line|pie|scatter|radar)$/.test([...types][0])) return null;
      const type = mixed ? 'bar' : [...types][0];
      if (type === 'radar') return net(chart, option, sets, palette);
      const axis = [...(option.xAxis || []), ...(option.yAxis || [])].find(one => one.type === 'category' || one.data);
      const horizontal = !!axis && (option.yAxis || []).includes(axis);
      const ring = type === 'pie' && Array.isArray(sets[0].radius) && parseFloat(sets[0].radius[0]) > 0;
      const data = one => (one.data || []).slice(0, 500);
      const across = (horizontal ? option.xAxis : option.yAxis) || [], lines = (across[0] && across[0].splitLine) || {};
      const sign = (option.legend && option.legend[0]) || {}, known = {};
      try {
        const model = chart.getModel(), wide = chart.getWidth(), tall = chart.getHeight();
        let place;
        if (type === 'pie') {
          const part = model.getSeriesByIndex(0).getData().getItemLayout(0);
          place = {x: part.cx - part.r, y: part.cy - part.r, width: 2 * part.r, height: 2 * part.r};
          known.hole = part.r0 / part.r;
        } else {
          const scale = model.getComponent(horizontal ? 'xAxis' : 'yAxis').axis.scale;
          [known.low, known.high] = scale.getExtent();
          known.step = scale.getInterval();
          place = model.getComponent('grid').coordinateSystem.getRect();
          if (type === 'scatter') {
            const lying = model.getComponent('xAxis').axis.scale;
            [known.x_low, known.x_high] = lying.getExtent();
            known.x_step = lying.getInterval();
          }
        }
        known.plot = [place.x / wide, place.y / tall, place.width / wide, place.height / tall];
      } catch (error) { /* another version: programs choose for themselves */ }
      return {
        ...known, grid: lines.show === false ? '' : paint((lines.lineStyle || {}).color), family: 'sans-serif',
        labels_shown: type === 'pie' && !(sets[0].label && sets[0].label.show === false),
        type: ring ? 'doughnut' : type, horizontal,
        labels: type === 'pie' ? data(sets[0]).map(one => text(one && one.name))
          : ((axis && axis.data) || []).slice(0, 500).map(
              one => text(one && one.value !== undefined ? one.value : one)),
        stacked: sets.some(one => one.stack), size: 12,
        colour: paint((sign.textStyle || {}).color) || paint(((across[0] || {}).axisLabel || {}).color),
        legend: legend(option),
        ...title(option),
        series: sets.slice(0, 24).map((one, at) => ({
          name: text(one.name),
          values: data(one).map(value => number(type === 'scatter' && Array.isArray(value) ? value[1] : value)),
          xs: data(one).map(value => Array.isArray(value) ? value[0] : null), filled: !!one.areaStyle,
          colour: paint((one.itemStyle && one.itemStyle.color) || palette[at % palette.length]),
          as: one.type, lined: type !== 'scatter', marker: typeof one.symbolSize === 'number' ? one.symbolSize : 10,
          smooth: !!one.smooth, opacity: (one.areaStyle && one.areaStyle.opacity) ?? 0.7,
          colours: type === 'pie'
            ? data(one).map(
                (value, i) => paint((value.itemStyle && value.itemStyle.color) || palette[i % palette.length]))
            : [],
        })),
      };
    };
    const found = chartjs() || echarts();
    const said = found ? JSON.stringify(found) : '';
    return said.length > most ? '' : said;
  } catch (error) { return ''; }
}
"""
"""In the page's own world, for only there its chart library is: whatever comes back is hearsay."""
