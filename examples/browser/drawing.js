// A pad to draw on with mouse, pen or finger, and the drawing as 8 × 8 numbers.

/** Bitmaps of the data have 32 × 32 points and strokes about this wide; each number is the ink of
 * 4 × 4 points. */
const SIDE = 32, STROKE = 5;

export class Pad {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.strokes = [];
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      this.strokes.push([this._place(event)]);
      this._changed();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) return;
      const events = event.getCoalescedEvents?.() ?? [];
      for (const one of events.length ? events : [event])
        this.strokes.at(-1).push(this._place(one));
      this._changed();
    });
  }

  _place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  _changed() {
    this.draw();
    this.changed();
  }

  get empty() { return this.strokes.length === 0; }

  clear() {
    this.strokes = [];
    this._changed();
  }

  draw() {
    const { canvas } = this, side = canvas.clientWidth * devicePixelRatio;
    canvas.width = canvas.height = side;
    const pen = canvas.getContext("2d");
    pen.strokeStyle = getComputedStyle(canvas).color;
    paint(pen, this.strokes, side / 14, ([x, y]) => [x * side, y * side]);
  }

  /** The drawing as the data has it: as high as the image, in its middle. */
  pixels() {
    const points = this.strokes.flat(), bitmap = document.createElement("canvas");
    bitmap.width = bitmap.height = SIDE;
    const pen = bitmap.getContext("2d", { willReadFrequently: true });
    const low = [0, 1].map((axis) => Math.min(...points.map((point) => point[axis])));
    const high = [0, 1].map((axis) => Math.max(...points.map((point) => point[axis])));
    const [width, height] = [high[0] - low[0], high[1] - low[1]];
    const room = SIDE - STROKE;
    const scale = Math.min(room / Math.max(height, 0.05), 0.85 * room / Math.max(width, 0.05));
    const middle = [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2];
    pen.strokeStyle = "black";
    paint(pen, this.strokes, STROKE,
      (point) => point.map((x, axis) => SIDE / 2 + (x - middle[axis]) * scale));
    const ink = pen.getImageData(0, 0, SIDE, SIDE).data, found = new Float32Array(64);
    for (let y = 0; y < SIDE; y++)
      for (let x = 0; x < SIDE; x++)
        found[(y >> 2) * 8 + (x >> 2)] += ink[(y * SIDE + x) * 4 + 3] / 255 / 16;
    return found;
  }
}

function paint(pen, strokes, width, place) {
  pen.lineWidth = width;
  pen.lineCap = pen.lineJoin = "round";
  for (const stroke of strokes) {
    pen.beginPath();
    pen.moveTo(...place(stroke[0]));
    for (const point of stroke) pen.lineTo(...place(point));
    pen.stroke();
  }
}

/** Shows 8 × 8 numbers from 0 to 1 on a canvas of that size. */
export function show(canvas, pixels) {
  canvas.width = canvas.height = 8;
  const pen = canvas.getContext("2d"), image = pen.createImageData(8, 8);
  const [r, g, b] = getComputedStyle(canvas).color.match(/[\d.]+/g).map(Number);
  pixels.forEach((ink, i) => image.data.set([r, g, b, 255 * Math.min(ink, 1)], i * 4));
  pen.putImageData(image, 0, 0);
}
