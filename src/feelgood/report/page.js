"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const NS = "http://www.w3.org/2000/svg";

  // ---- small things ------------------------------------------------------------------------------------------------
  const svg = (name, attributes = {}, text) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const html = (name, className = "", text) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const short = (v) => {
    const a = Math.abs(v);
    if (v === 0) return "0";
    if (a >= 1e9 || a < 1e-3) return v.toExponential(0).replace("e+", "e");
    if (a >= 1e6) return +(v / 1e6).toPrecision(3) + "M";
    if (a >= 1e4) return +(v / 1e3).toPrecision(3) + "k";
    return String(+v.toPrecision(3));
  };
  const exact = (v) => (Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en-GB") : String(+v.toPrecision(4)));
  const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  // Dark colours are hard to see on a dark page: mix them with white until they are light enough.
  const onDark = (hex) => {
    const c = channels(hex), light = (0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2]) / 255;
    const grey = Math.max(...c) - Math.min(...c) < 16;
    const mix = grey && light < 0.25 ? 0.92 : 1.25 * Math.max(0, 0.45 - light);
    return "#" + c.map((x) => Math.round(x + (255 - x) * mix).toString(16).padStart(2, "0")).join("");
  };
  const paint = (node, colour) => {
    node.style.setProperty("--light", colour);
    node.style.setProperty("--dark", onDark(colour));
    return node;
  };
  const clamp = (v, low, high) => Math.max(low, Math.min(high, v));

  // ---- scales ------------------------------------------------------------------------------------------------------
  const linear = (low, high, from, to, count) => {
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 2.5, 5, 10].find((m) => m * power >= raw * 0.999);
    const ticks = [];
    for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) ticks.push(Math.abs(t) < step * 1e-6 ? 0 : t);
    return { at: (v) => from + ((v - low) / (high - low || 1)) * (to - from), ticks };
  };
  const logarithmic = (low, high, from, to, count) => {
    const a = Math.log10(low), b = Math.log10(high), ticks = [];
    const every = Math.max(1, Math.round((b - a) / count));
    for (let k = Math.ceil(a - 1e-9); k <= b + 1e-9; k += every) ticks.push(10 ** k);
    if (ticks.length < 2) {
      ticks.length = 0;
      for (let k = Math.floor(a); k <= b; k++) for (const m of [1, 2, 5]) if (m * 10 ** k >= low * 0.999 && m * 10 ** k <= high * 1.001) ticks.push(m * 10 ** k);
    }
    return { at: (v) => from + ((Math.log10(Math.max(v, low * 1e-3)) - a) / (b - a || 1)) * (to - from), ticks };
  };

  // ---- one panel ---------------------------------------------------------------------------------------------------
  const extent = (panel, shown) => {
    const xs = [], ys = [];
    for (const s of shown) {
      xs.push(...s.x.filter(Number.isFinite));
      for (const values of [s.y, s.low, s.high]) if (values) ys.push(...values.filter(Number.isFinite));
    }
    const fit = (values, log, pad) => {
      const good = log ? values.filter((v) => v > 0) : values;
      let low = good.reduce((a, b) => Math.min(a, b), Infinity), high = good.reduce((a, b) => Math.max(a, b), -Infinity);
      if (!(low <= high)) [low, high] = log ? [1, 10] : [0, 1];
      if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
      if (log) { const f = (high / low) ** pad; return [low / f, high * f]; }
      return [low - (high - low) * pad, high + (high - low) * pad];
    };
    const marked = shown.some((s) => s.points);
    // On a logarithmic axis the lower end of a band may be almost 0, so the curves set the range.
    const tall = panel.y_log ? shown.flatMap((s) => s.y) : ys;
    const free = fit([...tall, ...panel.guides], panel.y_log, 0.05);
    return [fit(xs, panel.x_log, marked ? 0.04 : 0), (panel.y_range || free).map((end, i) => end ?? free[i])];
  };
  const path = (points) => points.map(([x, y], i) => (i ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1)).join("");

  function frame(panel, width, height, left) {
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", height });
    root.append(svg("title", {}, [panel.title, panel.y_label, panel.x_label].filter(Boolean).join(", ")));
    const top = panel.title ? 26 : 10, right = width - 12, bottom = height - 40;
    if (panel.title) root.append(svg("text", { x: left, y: 14, class: "title" }, panel.title));
    root.append(svg("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, panel.x_label));
    return { root, top, right, bottom, left };
  }

  function drawLines(panel, hidden, width) {
    const names = panel.y_names;
    const shown = panel.series.filter((s) => !hidden.has(s.name));
    const height = names.length ? 66 + 24 * names.length : 262;
    const longest = names.reduce((n, name) => Math.max(n, name.length), 0);
    const left = names.length ? Math.min(width * 0.45, 16 + 6.6 * longest) : 56;
    const f = frame(panel, width, height, left);
    let [[x0, x1], [y0, y1]] = extent(panel, shown);
    if (names.length) {
      const all = panel.series.flatMap((s) => [...s.x, ...(s.low || []), ...(s.high || [])]).filter(Number.isFinite);
      const low = Math.min(...all), high = Math.max(...all), pad = (high - low || 1) * 0.05;
      [x0, x1, y0, y1] = [low - pad, high + pad, names.length - 0.5, -0.5];
    }
    const x = (panel.x_log ? logarithmic : linear)(x0, x1, f.left, f.right, Math.max(2, Math.floor(width / 90)));
    const y = (panel.y_log ? logarithmic : linear)(y0, y1, f.bottom, f.top, 5);
    // If there are few distinct positions, such as chain lengths, they are the ticks.
    const places = [...new Set(shown.flatMap((s) => s.x))].sort((a, b) => a - b);
    const own = !names.length && shown.some((s) => s.points) && places.length <= 8;
    let last = -Infinity;
    for (const t of own ? places : x.ticks) {
      const at = x.at(t);
      if (at < f.left - 1 || at > f.right + 1) continue;
      f.root.append(svg("line", { x1: at, x2: at, y1: f.bottom, y2: f.bottom + 4, class: "axis" }));
      if (names.length) f.root.append(svg("line", { x1: at, x2: at, y1: f.top, y2: f.bottom, class: "grid" }));
      if (at - last < 30) continue;
      f.root.append(svg("text", { x: at, y: f.bottom + 17, "text-anchor": "middle" }, t === panel.x_zero ? "0" : short(t)));
      last = at;
    }
    if (names.length) {
      names.forEach((name, i) => f.root.append(svg("text", { x: f.left - 10, y: y.at(i) + 4, "text-anchor": "end" }, name.length * 6.6 > f.left ? name.slice(0, Math.floor(f.left / 6.6) - 2) + "…" : name)));
    } else {
      for (const t of y.ticks) {
        f.root.append(svg("line", { x1: f.left, x2: f.right, y1: y.at(t), y2: y.at(t), class: "grid" }));
        f.root.append(svg("text", { x: f.left - 8, y: y.at(t) + 4, "text-anchor": "end" }, short(t)));
      }
      f.root.append(svg("text", { transform: `translate(11 ${(f.top + f.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, panel.y_label));
    }
    f.root.append(svg("line", { x1: f.left, x2: f.right, y1: f.bottom, y2: f.bottom, class: "axis" }));
    for (const level of panel.guides) f.root.append(svg("line", { x1: f.left, x2: f.right, y1: y.at(level), y2: y.at(level), class: "guide" }));
    const clip = "clip" + drawLines.count++;
    const box = svg("clipPath", { id: clip });
    box.append(svg("rect", { x: f.left - 6, y: f.top - 4, width: f.right - f.left + 12, height: f.bottom - f.top + 8 }));
    const plot = svg("g", { "clip-path": `url(#${clip})` });
    f.root.append(box, plot);
    for (const s of shown) {
      const group = paint(svg("g", { "data-series": s.name }), s.colour);
      const ok = s.x.map((_, i) => i).filter((i) => Number.isFinite(s.x[i]) && Number.isFinite(s.y[i]));
      if (names.length) {
        if (s.low) group.append(svg("line", { x1: x.at(s.low[0]), x2: x.at(s.high[0]), y1: y.at(s.y[0]), y2: y.at(s.y[0]), class: "line" }));
        group.append(svg("circle", { cx: x.at(s.x[0]), cy: y.at(s.y[0]), r: 4.4, class: s.dashed ? "dot hollow" : "dot" }));
      } else {
        if (s.low) {
          const edge = [...ok.map((i) => [x.at(s.x[i]), y.at(s.high[i])]), ...ok.slice().reverse().map((i) => [x.at(s.x[i]), y.at(s.low[i])])];
          group.append(svg("path", { d: path(edge) + "Z", class: "band" }));
        }
        group.append(svg("path", { d: path(ok.map((i) => [x.at(s.x[i]), y.at(s.y[i])])), class: `line${s.dashed ? " dashed" : ""}${s.strong ? " strong" : ""}` }));
        if (s.points) for (const i of ok) group.append(svg("circle", { cx: x.at(s.x[i]), cy: y.at(s.y[i]), r: 3.6, class: "dot" }));
      }
      plot.append(group);
    }
    return { ...f, x, y, shown };
  }
  drawLines.count = 0;

  const STOPS = ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"].map(channels);
  const heatColour = (share) => {
    const at = clamp(share, 0, 1) * (STOPS.length - 1), i = Math.min(STOPS.length - 2, Math.floor(at));
    return STOPS[i].map((c, k) => Math.round(c + (STOPS[i + 1][k] - c) * (at - i)));
  };
  function drawHeat(panel, width) {
    const { x, y, z, low, high } = panel.heat;
    const left = 62, cell = (width - left - 12) / x.length, row = clamp(cell * 0.55, 24, 44);
    const f = frame(panel, width, 26 + row * y.length + 40, left);
    z.forEach((values, i) => values.forEach((value, j) => {
      const top = f.top + row * (y.length - 1 - i), known = value !== null && Number.isFinite(value);
      const c = known ? heatColour((value - low) / (high - low || 1)) : [127, 127, 127];
      const rect = svg("rect", { x: f.left + cell * j + 1, y: top + 1, width: cell - 2, height: row - 2, rx: 4, fill: `rgb(${c})`, "fill-opacity": known ? 1 : 0.15 });
      rect.append(svg("title", {}, `${panel.x_label} ${x[j]}${panel.y_label ? `, ${panel.y_label} ${y[i]}` : ""}: ${known ? exact(value) : "no score"}`));
      const ink = 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 140 ? "#111" : "#fff";
      const text = svg("text", { x: f.left + cell * (j + 0.5), y: top + row / 2 + 4, "text-anchor": "middle", "pointer-events": "none" }, known ? short(value) : "");
      text.style.fill = ink;
      f.root.append(rect, text);
    }));
    x.forEach((name, j) => f.root.append(svg("text", { x: f.left + cell * (j + 0.5), y: f.bottom + 16, "text-anchor": "middle" }, name)));
    y.forEach((name, i) => f.root.append(svg("text", { x: f.left - 8, y: f.top + row * (y.length - 0.5 - i) + 4, "text-anchor": "end" }, name)));
    f.root.append(svg("text", { transform: `translate(11 ${(f.top + f.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, panel.y_label));
    return f;
  }

  // ---- a chart: legend, panels, tooltips -----------------------------------------------------------------------------
  function mount(block) {
    const chart = charts[+block.dataset.chart], legend = block.querySelector(".legend"), grid = block.querySelector(".panels");
    const names = new Map();
    for (const panel of chart.panels) for (const s of panel.series) if (!names.has(s.name)) names.set(s.name, s);
    const named = chart.panels.some((p) => p.y_names.length), heat = chart.panels.some((p) => p.heat);
    // With many series, those that some panels lack are hidden at first.
    const everywhere = (name) => chart.panels.every((p) => p.series.some((s) => s.name === name));
    const hidden = new Set(names.size > 10 && [...names.keys()].some(everywhere) ? [...names.keys()].filter((n) => !everywhere(n)) : []);
    let limit = heat && chart.panels.length > 12 ? 12 : chart.panels.length;
    const tip = html("div", "tip"); tip.hidden = true;
    // As many columns as fit, then as few as give the same number of rows.
    const arrange = () => {
      const room = Math.max(1, Math.floor((grid.clientWidth + 20) / (heat ? 235 : 310))), count = Math.min(limit, chart.panels.length);
      const columns = Math.ceil(count / Math.ceil(count / room));
      grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
      return Math.floor((grid.clientWidth - 20 * (columns - 1)) / columns) || 320;
    };

    const buttons = new Map();
    const refresh = () => {
      for (const [name, button] of buttons) button.setAttribute("aria-pressed", String(!hidden.has(name)));
      draw();
    };
    if (!named && names.size > 1) {
      for (const [name, { colour, dashed }] of names) {
        const button = html("button"), label = html("span", "", name);
        button.type = "button";
        button.title = "show or hide; double-click for this one alone";
        button.append(paint(html("i", dashed ? "dashed" : ""), colour), label);
        button.addEventListener("click", () => { hidden.has(name) ? hidden.delete(name) : hidden.add(name); refresh(); });
        button.addEventListener("dblclick", () => {
          const alone = [...names.keys()].every((n) => n === name || hidden.has(n));
          hidden.clear();
          if (!alone) for (const n of names.keys()) if (n !== name) hidden.add(n);
          refresh();
        });
        button.addEventListener("pointerenter", () => highlight(name));
        button.addEventListener("pointerleave", () => highlight(null));
        buttons.set(name, button);
        legend.append(button);
      }
    }
    const highlight = (name) => {
      if (name !== null && hidden.has(name)) return;
      for (const group of grid.querySelectorAll("[data-series]")) group.classList.toggle("dim", name !== null && group.dataset.series !== name);
    };

    function watch(panel, f) {
      const cursor = svg("line", { y1: f.top, y2: f.bottom, class: "cursor", visibility: "hidden" });
      f.root.insertBefore(cursor, f.root.querySelector("[clip-path]"));
      const leave = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); highlight(null); };
      f.root.addEventListener("pointerleave", leave);
      f.root.addEventListener("pointermove", (event) => {
        const box = f.root.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
        let rows = [], head = "";
        if (panel.y_names.length) {
          const i = Math.round(((py - f.top) / (f.bottom - f.top)) * panel.y_names.length - 0.5);
          head = panel.y_names[i] || "";
          rows = f.shown.filter((s) => s.y[0] === i).map((s) => ({ s, i: 0, v: s.x[0] }));
        } else {
          let best = null;
          for (const s of f.shown) for (const v of s.x) { const d = Math.abs(f.x.at(v) - px); if (best === null || d < best.d) best = { d, v }; }
          if (best === null) return leave();
          for (const s of f.shown) { const i = s.x.indexOf(best.v); if (i >= 0 && Number.isFinite(s.y[i])) rows.push({ s, i, v: s.y[i] }); }
          rows.sort((a, b) => b.v - a.v);
          head = `${panel.title ? panel.title + " · " : ""}${panel.x_label} ${exact(best.v)}`;
          cursor.setAttribute("x1", f.x.at(best.v)); cursor.setAttribute("x2", f.x.at(best.v));
          cursor.setAttribute("visibility", "visible");
        }
        if (!rows.length) return leave();
        const near = panel.y_names.length ? null : rows.reduce((a, b) => (Math.abs(f.y.at(b.v) - py) < Math.abs(f.y.at(a.v) - py) ? b : a)).s.name;
        tip.replaceChildren(html("b", "", head));
        for (const { s, i, v } of rows) {
          const row = html("div", s.name === near ? "near" : ""), value = html("output", "", exact(v));
          if (s.low) value.append(html("small", "", `  ${exact(s.low[i])} – ${exact(s.high[i])}`));
          row.append(paint(html("i"), s.colour), html("span", "", panel.y_names.length ? (s.dashed ? "bound" : panel.title || "value") : s.name), value);
          tip.append(row);
        }
        tip.hidden = false;
        const home = grid.getBoundingClientRect(), x = event.clientX - home.left, y = event.clientY - home.top;
        const beside = x + 18 + tip.offsetWidth > home.width ? x - 18 - tip.offsetWidth : x + 18;
        tip.style.left = clamp(beside, 0, Math.max(0, home.width - tip.offsetWidth)) + "px";
        tip.style.top = Math.max(0, y - tip.offsetHeight / 2) + "px";
      });
    }

    let width = 0;
    function draw() {
      width = arrange();
      tip.hidden = true;
      grid.replaceChildren();
      for (const panel of chart.panels.slice(0, limit)) {
        const f = panel.heat ? drawHeat(panel, width) : drawLines(panel, hidden, width);
        grid.append(f.root);
        if (!panel.heat) watch(panel, f);
      }
      grid.append(tip);
    }
    refresh();
    new ResizeObserver(() => { if (Math.abs(arrange() - width) > 1) draw(); }).observe(grid);

    const tools = block.querySelector(".tools");
    const tool = (name, title, act) => { const b = html("button", "plain", name); b.type = "button"; b.title = title; b.addEventListener("click", () => act(b)); tools.append(b); };
    if (limit < chart.panels.length) tool(`all ${chart.panels.length} panels`, "show every panel", (b) => { limit = chart.panels.length; b.remove(); draw(); });
    if (buttons.size > 1) tool("all curves", "show every curve, or none", () => { hidden.size ? hidden.clear() : [...names.keys()].forEach((n) => hidden.add(n)); refresh(); });
    tool("CSV", "save the numbers", () => save(`${chart.kind}.csv`, "text/csv", csv(chart)));
  }
  const quoted = (v) => (/[",\n]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : v ?? "");
  function csv(chart) {
    const lines = [["panel", "series", "x", "y", "low", "high"]];
    for (const panel of chart.panels) {
      for (const s of panel.series) s.x.forEach((x, i) => lines.push([panel.title || panel.x_label, s.name, x, s.y[i], s.low ? s.low[i] : "", s.high ? s.high[i] : ""]));
      if (panel.heat) panel.heat.z.forEach((values, i) => values.forEach((v, j) => lines.push([panel.title, `${panel.y_label} ${panel.heat.y[i]}`, panel.heat.x[j], v, "", ""])));
    }
    return lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  }
  function save(name, type, text) {
    const link = html("a"), url = URL.createObjectURL(new Blob([text], { type }));
    link.href = url; link.download = name; link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // ---- tables that sort ----------------------------------------------------------------------------------------------
  for (const table of document.querySelectorAll("table")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") === "descending" || (column === 0 && head.getAttribute("aria-sort") !== "ascending");
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const number = (text) => (text.trim() === "" ? NaN : Number(text));
      const rows = [...body.rows].map((row) => [row, key(row), number(key(row))]);
      const order = (a, b) => {
        const [p, q] = [a[2], b[2]];
        if (Number.isNaN(p) && Number.isNaN(q)) return (rising ? 1 : -1) * a[1].localeCompare(b[1], "en", { numeric: true });
        if (Number.isNaN(p)) return 1;
        if (Number.isNaN(q)) return -1;
        return (rising ? 1 : -1) * (p - q);
      };
      body.append(...rows.sort(order).map(([row]) => row));
    }));
  }

  // ---- light and dark --------------------------------------------------------------------------------------------------
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)"), toggle = document.getElementById("theme");
  let choice = "auto";
  try { choice = localStorage.getItem("feelgood-theme") || "auto"; } catch { /* a page opened from a file may have no storage */ }
  const dress = () => {
    const dark = choice === "dark" || (choice === "auto" && system.matches);
    root.dataset.theme = dark ? "dark" : "light";
    toggle.textContent = dark ? "Light" : "Dark";
  };
  toggle.addEventListener("click", () => {
    choice = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("feelgood-theme", choice); } catch { /* as above */ }
    dress();
  });
  system.addEventListener("change", dress);
  dress();
  document.querySelectorAll("[data-chart]").forEach(mount);
})();
