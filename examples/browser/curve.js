// The curves of a training: the loss of each step, and the accuracy of each test.

const EDGE = { left: 44, right: 44, top: 12, bottom: 26 };

export class Curve {
  constructor(canvas) {
    this.canvas = canvas;
    this.clear();
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  clear() {
    this.losses = [];
    this.right = [];
    this.draw();
  }

  draw() {
    const { canvas } = this, style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    const wide = canvas.clientWidth, high = canvas.clientHeight;
    canvas.width = wide * devicePixelRatio;
    canvas.height = high * devicePixelRatio;
    const pen = canvas.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    pen.font = "11px system-ui, sans-serif";
    const most = Math.max(60, this.losses.length);
    const x = (step) => EDGE.left + (step / most) * (wide - EDGE.left - EDGE.right);
    const y = (part) => EDGE.top + (1 - part) * (high - EDGE.top - EDGE.bottom);
    const first = Math.max(2.4, ...this.losses.slice(0, 5));
    const top = Math.min(Math.ceil(first / 0.4) * 0.4, 8);
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    for (let i = 0; i <= 4; i++) {
      const line = Math.round(y(i / 4)) + 0.5;
      pen.strokeStyle = colour("--line");
      pen.beginPath();
      pen.moveTo(EDGE.left, line);
      pen.lineTo(wide - EDGE.right, line);
      pen.stroke();
      pen.textAlign = "right";
      pen.fillStyle = colour("--loss");
      pen.fillText(((top * i) / 4).toFixed(1), EDGE.left - 8, line);
      pen.textAlign = "left";
      pen.fillStyle = colour("--right");
      pen.fillText(`${25 * i} %`, wide - EDGE.right + 8, line);
    }
    pen.fillStyle = colour("--quiet");
    pen.textAlign = "center";
    for (let i = 0; i <= 4; i++)
      pen.fillText(Math.round((most * i) / 4), x((most * i) / 4), high - 10);
    // Loss: each step in pale, and their running mean.
    this._line(pen, this.losses.map((loss, i) => [x(i + 1), y(Math.min(loss / top, 1))]),
      colour("--pale"), 1);
    let mean = this.losses[0];
    this._line(pen, this.losses.map((loss, i) => {
      mean = 0.92 * mean + 0.08 * loss;
      return [x(i + 1), y(Math.min(mean / top, 1))];
    }), colour("--loss"), 2);
    this._line(pen, this.right.map(([step, part]) => [x(step), y(part)]), colour("--right"), 2);
  }

  _line(pen, points, colour, width) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.lineJoin = "round";
    pen.beginPath();
    points.forEach((point, i) => (i ? pen.lineTo(...point) : pen.moveTo(...point)));
    pen.stroke();
  }
}
