"use strict";
// The page works without this script; with it, pictures tell values, methods can be hidden, and
// tables can be saved. Texts are set as text, never as markup.

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);
const hidden = new Set();
const figure = value => Math.abs(value) >= 1e5
  ? Math.round(value).toLocaleString("en")
  : String(Number(value.toPrecision(4)));

function nearest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle; else high = middle;
  }
  return Math.abs(sorted[high] - value) < Math.abs(sorted[low] - value) ? high : low;
}

function entry(text, colour) {
  const line = document.createElement("div");
  if (colour) {
    const dot = document.createElement("i");
    dot.style.background = colour;
    line.append(dot);
  }
  line.append(text);
  return line;
}

function atPointer(facts, x, y, frame) {
  // x and y: shares of the axes' box, y from above. Returns what to show there.
  const [left, right] = facts.x, [bottom, top] = facts.y;
  if (facts.lines) {
    const shown = facts.lines.filter(line => !hidden.has(line.method));
    if (!shown.length) return [];
    const wanted = left + x * (right - left);
    const at = shown.map(line => nearest(line.x, wanted));
    const values = shown.map((line, i) =>
      entry(`${line.name}: ${figure(line.y[at[i]])}`, line.colour));
    return [entry(`${facts.axis}: ${figure(shown[0].x[at[0]])}`), ...values];
  }
  let best = null, least = facts.reach === null ? Infinity : facts.reach;
  for (const [mx, my, text, method] of facts.marks || []) {
    if (method !== null && hidden.has(method)) continue;
    const dx = facts.rows ? 0 : ((mx - left) / (right - left) - x) * frame.width;
    const dy = ((top - my) / (top - bottom) - y) * frame.height;
    const distance = Math.hypot(dx, dy);
    if (distance < least) [best, least] = [text, distance];
  }
  return best === null ? [] : best.split("\n").map(line => entry(line));
}

for (const drawn of document.querySelectorAll("figure[data-hover]")) {
  const facts = JSON.parse(drawn.dataset.hover), svg = drawn.querySelector("svg");
  const guide = document.createElement("div");
  guide.className = "guide";
  guide.hidden = true;
  drawn.append(guide);
  const leave = () => { tip.hidden = guide.hidden = true; };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("pointermove", event => {
    const place = svg.getBoundingClientRect(), [l, t, w, h] = facts.box;
    const frame = { width: w * place.width, height: h * place.height };
    const x = (event.clientX - place.left - l * place.width) / frame.width;
    const y = (event.clientY - place.top - t * place.height) / frame.height;
    const inside = x >= 0 && x <= 1 && y >= 0 && y <= 1;
    const lines = inside ? atPointer(facts, x, y, frame) : [];
    if (!lines.length) return leave();
    tip.replaceChildren(...lines);
    tip.hidden = false;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, room)) + scrollX}px`;
    tip.style.top = `${event.clientY + scrollY + 16}px`;
    guide.hidden = !facts.lines;
    const own = drawn.getBoundingClientRect();
    guide.style.left = `${event.clientX - own.left}px`;
    guide.style.top = `${place.top - own.top + t * place.height}px`;
    guide.style.height = `${frame.height}px`;
  });
}

for (const bar of document.querySelectorAll(".filter")) {
  bar.hidden = false;
  bar.addEventListener("change", event => {
    const number = Number(event.target.value);
    if (event.target.checked) hidden.delete(number); else hidden.add(number);
    for (const part of document.querySelectorAll(`main [data-method="${number}"]`))
      part.classList.toggle("away", hidden.has(number));
  });
}

for (const buttons of document.querySelectorAll(".save")) {
  buttons.hidden = false;
  for (const button of buttons.querySelectorAll("button"))
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([button.dataset.text], { type: "text/plain" }));
      link.download = button.dataset.name;
      link.click();
      URL.revokeObjectURL(link.href);
    });
}
