// SPDX-License-Identifier: Apache-2.0
// Keeps the status page up to date. The server says how everything looks: this asks for the parts
// that change, puts them in the place of the old ones, and draws the points that have come.
"use strict";
(() => {
  const PERIOD_MS = 2000;
  const figures = [...document.querySelectorAll("figure.chart")];
  let points = JSON.parse(document.getElementById("points").textContent);
  let away = 0;

  // The first point that is shown.
  function begin() {
    return points.next - Math.min(Math.max(points.next - 1, points.least), points.most);
  }

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function amount(value, unit) {
    if (unit === "%") return Math.round(value * 1000) / 10 + " %";
    if (unit === "ms" && value && value < 1) return Math.round(value * 1e4) / 10 + " µs";
    if (unit === "ms" && value >= 1000) return Math.round(value / 10) / 100 + " s";
    const text = value >= 1e6 ? Math.round(value / 1e4) / 100 + " M"
      : value >= 1e4 ? Math.round(value / 100) / 10 + " k" : Math.round(value * 100) / 100 + "";
    return unit ? `${text} ${unit}` : text;
  }

  function ago(index) {
    const seconds = Math.round((points.next - 1 - index) * points.period / 1000);
    return seconds >= 100 ? `${Math.round(seconds / 60)} min ago` : seconds ? `${seconds} s ago` : "now";
  }

  function data(row) {
    return points[row].map((y, i) => ({ x: points.first + i, y })).filter((p) => p.x >= begin());
  }

  function options(unit, stacked) {
    const quiet = css("--quiet"), line = css("--line");
    return {
      animation: false, maintainAspectRatio: false, normalized: true, parsing: false,
      interaction: { mode: "index", intersect: false },
      elements: { point: { radius: 0, hitRadius: 6 }, line: { borderWidth: 1.6, tension: 0.25 } },
      plugins: {
        legend: { display: false },
        tooltip: { callbacks: {
          title: (items) => ago(items[0].parsed.x),
          label: (item) => ` ${item.dataset.label}: ${amount(item.parsed.y, unit)}`,
        } },
      },
      scales: {
        x: { type: "linear", min: begin(), max: points.next - 1,
          grid: { display: false, borderColor: line },
          ticks: { color: quiet, maxRotation: 0, font: { size: 11 }, count: 4,
            callback: (value) => ago(value) } },
        y: { beginAtZero: true, stacked, suggestedMax: unit === "%" ? 1 : undefined,
          grid: { color: line, borderColor: line },
          ticks: { color: quiet, font: { size: 11 }, maxTicksLimit: 5,
            callback: (value) => amount(value, unit) } },
      },
    };
  }

  function datasets(figure) {
    const stacked = figure.dataset.stacked === "1";
    return figure.dataset.rows.split(" ").map((row, i) => {
      const color = css(`--c${i}`);
      return { label: row, data: data(row), borderColor: color, backgroundColor: color + "44",
        fill: stacked ? (i ? "-1" : "origin") : false };
    });
  }

  // A chart takes the place of the server's picture.
  function chartBegin(figure) {
    const plot = figure.querySelector(".plot"), canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", figure.querySelector("figcaption").textContent);
    plot.replaceChildren(canvas);
    figure.chart = new window.Chart(canvas, { type: "line", data: { datasets: datasets(figure) },
      options: options(figure.dataset.unit, figure.dataset.stacked === "1") });
  }

  function chartsUpdate(colors) {
    for (const figure of figures.filter((f) => f.chart)) {
      const sets = datasets(figure);
      figure.chart.data.datasets.forEach((set, i) => Object.assign(set, sets[i]));
      if (colors) figure.chart.options = options(figure.dataset.unit, figure.dataset.stacked === "1");
      Object.assign(figure.chart.options.scales.x,
        { min: begin(), max: points.next - 1 });
      figure.chart.update("none");
    }
  }

  // Points behind those that are here; another start of the server begins anew.
  function pointsJoin(fresh) {
    if (fresh.started !== points.started || fresh.first > points.next) {
      points = fresh;
      return;
    }
    for (const [row, values] of Object.entries(fresh)) {
      if (!Array.isArray(values)) continue;
      points[row] = points[row].slice(0, fresh.first - points.first).concat(values);
      points[row].splice(0, points[row].length - points.most);
    }
    Object.assign(points, { next: fresh.next, at: fresh.at });
    points.first = points.next - points.requests.length;
  }

  function partsTake(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const part of fresh.querySelectorAll("[data-live]")) {
      const old = document.getElementById(part.id);
      if (old && old.innerHTML !== part.innerHTML) old.replaceWith(document.adoptNode(part));
    }
    const restarted = points.started;
    pointsJoin(JSON.parse(fresh.getElementById("points").textContent));
    if (restarted !== points.started) location.reload(); // models may be others
    chartsUpdate(false);
  }

  function awaySay(error) {
    const note = document.getElementById("away");
    away = error ? away || Date.now() : 0;
    note.hidden = !error;
    if (error)
      note.textContent = `inferd has not answered for ${Math.round((Date.now() - away) / 1000)} s`;
  }

  async function look() {
    try {
      const answer = await fetch(`${location.pathname}?since=${points.next}`,
        { cache: "no-store", signal: AbortSignal.timeout(8000) });
      if (!answer.ok) throw new Error(answer.status);
      partsTake(await answer.text());
      awaySay(null);
    } catch (error) {
      awaySay(error);
    }
    setTimeout(look, document.hidden ? 5 * PERIOD_MS : PERIOD_MS);
  }

  if (window.Chart) {
    window.Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    figures.forEach(chartBegin);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chartsUpdate(true));
  }
  setTimeout(look, PERIOD_MS);
})();
