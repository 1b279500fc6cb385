"use strict";
// Asks for the newest snapshot every second and draws it. Texts come from parties and files: they
// are set as text, never as markup.

const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8F98"];
const PAUSE = 1000;
const part = id => document.getElementById(id);
let chosen = null;

function make(tag, facts = {}, ...children) {
  const svg = ["circle", "path", "text", "line", "g", "title", "svg"].includes(tag);
  const one = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [key, value] of Object.entries(facts)) one.setAttribute(key, value);
  one.append(...children);
  return one;
}

function size(bytes) {
  for (const [unit, one] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (bytes >= one) return `${Number((bytes / one).toPrecision(3))} ${unit}`;
  return `${bytes} B`;
}

const number = value => value >= 100 ? Math.round(value).toLocaleString("en")
  : String(Number(value.toPrecision(3)));
const clipped = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

function showTrainings(trainings) {
  if (!trainings.some(one => one.title === chosen)) chosen = trainings.length ? trainings[0].title : null;
  const focused = document.activeElement?.dataset?.title;
  part("trainings").replaceChildren(...trainings.map(one => {
    const rate = one.rate === null ? "" : `, ${number(one.rate)} rounds/s`;
    const button = make("button", { type: "button", "aria-pressed": String(one.title === chosen) },
      make("span", {}, one.title),
      make("progress", { max: one.rounds || 1, value: one.round, "aria-label": "rounds" }),
      make("span", { class: "rate" }, `round ${one.round.toLocaleString("en")} of ${one.rounds.toLocaleString("en")}${rate}`));
    button.dataset.title = one.title;
    button.addEventListener("click", () => { chosen = one.title; look(); });
    if (focused === one.title) queueMicrotask(() => button.focus());
    return button;
  }));
  return trainings.find(one => one.title === chosen);
}

function places(parties, links) {
  // One that all others are linked with stands in the middle; the others stand on a ring.
  const names = parties.map(one => one.name), degree = new Map(names.map(name => [name, new Set()]));
  for (const { sender, receiver } of links) {
    degree.get(sender)?.add(receiver);
    degree.get(receiver)?.add(sender);
  }
  const full = names.filter(name => degree.get(name).size === names.length - 1);
  const middle = names.length > 2 && full.length === 1 ? full[0] : null;
  const ring = names.filter(name => name !== middle), at = new Map();
  if (middle !== null) at.set(middle, [260, 205]);
  ring.forEach((name, i) => {
    const angle = 2 * Math.PI * i / ring.length - Math.PI / 2;
    at.set(name, [260 + 190 * Math.cos(angle), 205 + 150 * Math.sin(angle)]);
  });
  return at;
}

function drawGraph(training) {
  const at = places(training.parties, training.links), drawn = [], pairs = new Map();
  for (const link of training.links) {
    const key = [link.sender, link.receiver].sort().join("\u0000");
    const pair = pairs.get(key) || { ends: [link.sender, link.receiver], links: [] };
    pair.links.push(link);
    pairs.set(key, pair);
  }
  const total = pair => pair.links.reduce((sum, link) => sum + (link.bytes || 0), 0);
  const most = Math.max(1, ...[...pairs.values()].map(total));
  for (const pair of pairs.values()) {
    const [a, b] = pair.ends.map(name => at.get(name));
    if (!a || !b || pair.ends[0] === pair.ends[1]) continue;
    const up = pair.links.some(link => link.up > 0);
    const width = 1.5 + 6 * Math.sqrt(total(pair) / most);
    const said = pair.links.map(link => `${link.sender} → ${link.receiver}: ` +
      (link.bytes === null ? "not known here" : size(link.bytes))).join("\n");
    drawn.push(make("path", { class: up ? "edge" : "edge down", "stroke-width": up ? width : 2,
      d: `M${a[0]} ${a[1]}L${b[0]} ${b[1]}` }, make("title", {}, said)));
  }
  const small = training.parties.length > 12;
  for (const party of training.parties) {
    const [x, y] = at.get(party.name), above = y < 120;
    drawn.push(make("g", {},
      make("circle", { class: `node ${party.state}`, cx: x, cy: y, r: small ? 9 : 13 }),
      make("text", { x, y: above ? y - (small ? 14 : 20) : y + (small ? 22 : 29), "text-anchor": "middle",
        "font-size": small ? 11 : 13 }, clipped(party.name, small ? 12 : 18)),
      make("title", {}, `${party.name}: ${party.state}${party.text ? ", " + party.text : ""}`)));
  }
  part("graph").replaceChildren(...drawn);
  part("note").textContent = training.note;
}

function drawLinks(training) {
  const known = training.links.filter(link => link.bytes !== null).sort((a, b) => b.bytes - a.bytes);
  const most = Math.max(1, ...known.map(link => link.bytes));
  part("rows").replaceChildren(...known.slice(0, 40).map(link => make("tr", {},
    make("td", {}, link.sender), make("td", {}, link.receiver),
    make("td", { class: "figure" }, size(link.bytes)),
    make("td", { class: "bar" }, make("progress", { max: most, value: link.bytes, "aria-hidden": "true" })))));
  part("bytes").hidden = !known.length;
}

function drawStates(training) {
  part("list").replaceChildren(...training.parties.map(party => make("li", {},
    make("span", { class: "name" }, party.name),
    make("span", { class: `state ${party.state}` }, party.state),
    make("span", {}, party.text))));
}

function drawCurves(curves) {
  const left = 48, right = 508, top = 10, bottom = 300;
  const xs = curves.flatMap(one => one.x), ys = curves.flatMap(one => one.y);
  const x1 = Math.max(1, ...xs);
  let y0 = Math.min(...ys), y1 = Math.max(...ys);
  if (y0 === y1) [y0, y1] = [y0 - 0.5, y1 + 0.5];
  const place = (x, y) => [left + (right - left) * x / x1, bottom - (bottom - top) * (y - y0) / (y1 - y0)];
  const drawn = [];
  for (let i = 0; i <= 4; i++) {
    const y = y0 + (y1 - y0) * i / 4, [, at] = place(0, y);
    drawn.push(make("line", { class: "axis", x1: left, x2: right, y1: at, y2: at }),
      make("text", { class: "faint", x: left - 6, y: at + 4, "text-anchor": "end", "font-size": 12 }, number(y)));
    const x = x1 * i / 4;
    drawn.push(make("text", { class: "faint", x: place(x, y0)[0], y: bottom + 18, "font-size": 12,
      "text-anchor": i === 4 ? "end" : "middle" }, Math.round(x).toLocaleString("en")));
  }
  drawn.push(make("text", { class: "faint", x: right, y: bottom + 35, "text-anchor": "end", "font-size": 12 }, "rounds"));
  const legend = [];
  let colour = 0;
  for (const one of curves) {
    const path = make("path", { class: one.over ? "curve over" : "curve",
      d: one.x.map((x, i) => `${i ? "L" : "M"}${place(x, one.y[i]).map(v => v.toFixed(1)).join(" ")}`).join("") },
      make("title", {}, `${one.name}: ${number(one.y[one.y.length - 1])}`));
    drawn.push(path);
    if (one.over) continue;
    path.style.stroke = COLOURS[colour++ % COLOURS.length];
    const end = place(one.x[one.x.length - 1], one.y[one.y.length - 1]);
    const dot = make("circle", { cx: end[0], cy: end[1], r: 3.5 });
    dot.style.fill = path.style.stroke;
    drawn.push(dot);
    const mark = make("path", { d: "M0 7H22", "stroke-width": 3 });
    mark.style.stroke = path.style.stroke;
    legend.push(make("li", {}, make("svg", { viewBox: "0 0 22 14" }, mark),
      `${one.name}: ${number(one.y[one.y.length - 1])}`));
  }
  const over = curves.filter(one => one.over).length;
  if (over) legend.push(make("li", {}, make("svg", { viewBox: "0 0 22 14" },
    make("path", { class: "curve over", d: "M0 7H22" })), `finished runs (${over})`));
  part("curves").replaceChildren(...drawn);
  part("legend").replaceChildren(...legend);
}

function show(snapshot) {
  document.title = snapshot.title ? `${snapshot.title} · live` : "Colonnade";
  if (snapshot.title) part("title").textContent = snapshot.title;
  part("about").textContent = snapshot.about;
  part("said").textContent = snapshot.said;
  part("said").classList.remove("lost");
  part("facts").replaceChildren(...snapshot.facts.map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  part("messages").hidden = !snapshot.messages.length;
  part("messages").replaceChildren(...snapshot.messages.map(text => make("li", {}, text)));
  const training = showTrainings(snapshot.trainings);
  for (const id of ["parties", "states"]) part(id).hidden = !training?.parties.length;
  part("bytes").hidden = !training;
  if (training) {
    drawGraph(training);
    drawLinks(training);
    drawStates(training);
  }
  part("learning").hidden = !snapshot.curves.length;
  part("metric").textContent = `Learning curves: ${snapshot.metric}`;
  if (snapshot.curves.length) drawCurves(snapshot.curves);
}

async function look() {
  try {
    const answer = await fetch("state", { cache: "no-store" });
    show(await answer.json());
  } catch (error) {
    part("said").textContent = "The process that watches has ended; this is what was known last.";
    part("said").classList.add("lost");
  }
}

look();
setInterval(look, PAUSE);
