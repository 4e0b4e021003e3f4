// The network: two libraries made by Weft, one that trains and one that reads, and their data.

import { load as loadTraining, ARGUMENTS } from "./train.js";
import { load as loadReading, ARGUMENTS as READ, STATE } from "./read.js";

const PIXELS = 64, SEEN = 1500;
const RATE = 'optimizer.param_groups[0]["lr"]';
export const BATCH = ARGUMENTS[0].shape[0];
const ROWS = READ[0].shape[0];

/** Numbers from 0 to 1 that are the same each time (mulberry32). */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The digits: those to learn from, then those that are held out. */
export async function loadDigits() {
  const answer = await fetch(new URL("./digits.bin", import.meta.url));
  if (!answer.ok) throw new Error(`digits.bin: ${answer.status}`);
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const count = bytes.length / (PIXELS + 1);
  const images = Float32Array.from(bytes.subarray(0, count * PIXELS), (x) => x / 16);
  const labels = bytes.subarray(count * PIXELS);
  return {
    seen: { images: images.subarray(0, SEEN * PIXELS), labels: labels.subarray(0, SEEN) },
    held: { images: images.subarray(SEEN * PIXELS), labels: labels.subarray(SEEN) },
  };
}

export class Network {
  static async load() {
    const [training, reading, digits] = await Promise.all(
      [loadTraining(), loadReading(), loadDigits()]);
    return new Network(training, reading, digits);
  }

  constructor(training, reading, digits) {
    this.training = training;
    this.reading = reading;
    this.digits = digits;
    this.images = new Float32Array(BATCH * PIXELS);
    this.labels = new BigInt64Array(BATCH);
    this._begin();
  }

  _begin() {
    this.steps = 0;
    this.random = random(1);
    this.order = Uint16Array.from({ length: SEEN }, (_, i) => i);
    this._share();
  }

  get perEpoch() { return SEEN / BATCH; }
  get epochs() { return this.steps / this.perEpoch; }
  get rate() { return this.training.getState(RATE)[0]; }
  set rate(value) { this.training.setState(RATE, value); }

  /** A new start: another instance of the same module. */
  async reset() {
    const rate = this.rate;
    this.training = await loadTraining(this.training.module);
    this.rate = rate;
    this._begin();
  }

  /** One training step on the next digits in a random order; returns its loss. */
  step() {
    const first = (this.steps % this.perEpoch) * BATCH;
    if (first === 0) this._shuffle();
    const { images, labels } = this.digits.seen;
    for (let i = 0; i < BATCH; i++) {
      const row = this.order[first + i];
      this.images.set(images.subarray(row * PIXELS, (row + 1) * PIXELS), i * PIXELS);
      this.labels[i] = BigInt(labels[row]);
    }
    const [loss] = this.training.train_step(this.images, this.labels);
    this.steps++;
    this._stale = true;
    return loss;
  }

  _shuffle() {
    for (let i = SEEN - 1; i > 0; i--) {
      const j = Math.floor(this.random() * (i + 1));
      [this.order[i], this.order[j]] = [this.order[j], this.order[i]];
    }
  }

  /** The reading library takes the weights of the training one: both name them alike. */
  _share() {
    for (const name of Object.keys(STATE))
      this.reading.setState(name, this.training.getState(name));
    this._stale = false;
  }

  /** The probabilities of ten digits for each of some images (64 numbers from 0 to 1 each). */
  read(images) {
    if (this._stale) this._share();
    const count = images.length / PIXELS, found = new Float32Array(count * 10);
    const room = new Float32Array(ROWS * PIXELS);
    for (let at = 0; at < count; at += ROWS) {
      const end = Math.min(at + ROWS, count);
      room.fill(0);
      room.set(images.subarray(at * PIXELS, end * PIXELS));
      found.set(this.reading.read(room).subarray(0, (end - at) * 10), at * 10);
    }
    return found;
  }

  /** What the network takes the held-out digits for, and the part that is right. */
  test() {
    const { images, labels } = this.digits.held;
    const found = this.read(images);
    const guesses = Array.from(labels, (_, i) => largest(found.subarray(i * 10, i * 10 + 10)));
    return { guesses, right: guesses.filter((g, i) => g === labels[i]).length / labels.length };
  }

  save() { return this.training.save(); }

  load(bytes) {
    this.training.load(bytes);
    this._share();
  }
}

export function largest(numbers) {
  let best = 0;
  numbers.forEach((x, i) => { if (x > numbers[best]) best = i; });
  return best;
}
