// What the page does: trains a part of each frame, and shows what the network has learned.

import { Curve } from "./curve.js";
import { Pad, show } from "./drawing.js";
import { BATCH, Network, largest } from "./network.js";

const at = (id) => document.getElementById(id);
const SHOWN = 40; // held-out digits in the table
const BUDGET = 10; // milliseconds of a frame that training may take

const network = await Network.load();
const curve = new Curve(at("curve"));
const pad = new Pad(at("pad"), () => readSoon());
let running = false, took = 0;

// --- training ------------------------------------------------------------------------------------

function frame() {
  if (!running) return;
  const most = Number(at("speed").value) || Infinity, start = performance.now();
  const until = Number(at("epochs").value) * network.perEpoch || Infinity;
  let count = 0, spent = 0;
  while (count < most && spent < BUDGET && network.steps < until) {
    curve.losses.push(network.step());
    count++;
    spent = performance.now() - start;
    if (network.steps % (network.perEpoch / 6) === 0) test();
  }
  if (count) took = took ? 0.9 * took + 0.1 * (spent / count) : spent / count;
  refresh();
  if (network.steps < until) requestAnimationFrame(frame);
  else run(false);
}

function run(on) {
  const until = Number(at("epochs").value);
  if (on && until && network.epochs >= until) at("epochs").value = "0"; // go on, without an end
  running = on;
  at("run").textContent = on ? "Pause" : network.steps ? "Continue" : "Start";
  document.body.dataset.running = on;
  if (on) requestAnimationFrame(frame);
}

function test() {
  const { guesses, right } = network.test();
  curve.right.push([network.steps, right]);
  at("accuracy").textContent = `${(100 * right).toFixed(1)} %`;
  guesses.slice(0, SHOWN).forEach((guess, i) => {
    const cell = at("held").children[i];
    cell.lastChild.textContent = guess;
    cell.className = guess === network.digits.held.labels[i] ? "good" : "bad";
  });
}

function refresh() {
  const recent = curve.losses.slice(-20);
  at("loss").textContent = recent.length
    ? (recent.reduce((a, b) => a + b, 0) / recent.length).toFixed(3) : "–";
  at("epoch").textContent = network.epochs.toFixed(1);
  at("step").textContent = network.steps;
  at("time").textContent = took ? `${took.toFixed(2)} ms` : "–";
  curve.draw();
  readSoon();
}

at("run").addEventListener("click", () => run(!running));
at("reset").addEventListener("click", async () => {
  run(false);
  await network.reset();
  begin();
});
at("rate").addEventListener("input", () => {
  network.rate = 10 ** Number(at("rate").value);
  at("rate-text").textContent = network.rate.toPrecision(2);
});

// --- weights -------------------------------------------------------------------------------------

at("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([network.save()]));
  link.download = "digits.safetensors";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  say("Saved. weft.load reads the file, too.");
});
at("load").addEventListener("click", () => at("file").click());
at("file").addEventListener("change", async () => {
  const [file] = at("file").files;
  at("file").value = "";
  if (!file) return;
  try {
    network.load(await file.arrayBuffer());
    at("rate").value = Math.log10(network.rate);
    at("rate-text").textContent = network.rate.toPrecision(2);
    test();
    refresh();
    say(`${file.name}: loaded.`);
  } catch (error) {
    say(`${file.name}: ${error.message}`);
  }
});

function say(text) {
  at("said").textContent = text;
}

// --- drawing -------------------------------------------------------------------------------------

let asked = false;

function readSoon() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    readDrawing();
  });
}

function readDrawing() {
  document.body.dataset.drawn = !pad.empty;
  const pixels = pad.empty ? new Float32Array(64) : pad.pixels();
  show(at("seen"), pixels);
  const found = pad.empty ? new Float32Array(10) : network.read(pixels);
  const best = largest(found);
  at("guess").textContent = pad.empty ? "" : best;
  [...at("bars").children].forEach((bar, digit) => {
    bar.style.setProperty("--part", found[digit]);
    bar.classList.toggle("best", !pad.empty && digit === best);
    bar.lastChild.textContent = pad.empty ? "" : `${(100 * found[digit]).toFixed(0)} %`;
  });
}

at("clear").addEventListener("click", () => pad.clear());
const redraw = () => { pad.draw(); refresh(); drawHeld(); };
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// --- the start -----------------------------------------------------------------------------------

function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

function drawHeld() {
  const { images } = network.digits.held;
  [...at("held").children].forEach((cell, i) =>
    show(cell.firstChild, images.subarray(i * 64, i * 64 + 64)));
}

function begin() {
  took = 0;
  curve.clear();
  test();
  refresh();
  at("run").textContent = "Start";
  say("");
}

for (let digit = 0; digit < 10; digit++)
  at("bars").append(element("li", element("b", `${digit}`), element("i"), element("span")));
for (let i = 0; i < SHOWN; i++)
  at("held").append(element("li", element("canvas"), element("span")));
at("rate").value = Math.log10(network.rate);
at("rate-text").textContent = network.rate.toPrecision(2);
at("batch").textContent = BATCH;
drawHeld();
pad.draw();
begin();
document.body.dataset.ready = true;
