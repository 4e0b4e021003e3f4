"""Builds a page that learns: WebAssembly of a training step, the data, and the page, in one folder.

    python examples/browser/build.py [FOLDER] [--serve]

The folder (build/browser) is static: any web server can offer it, and it asks for nothing else.
`--serve` does that on this machine. It needs `pip install "weft[aot,demo]"`.
"""

import argparse
import functools
import http.server
import shutil
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import weft
from weft import nn, optim
from weft.nn import functional as F

HERE = Path(__file__).parent
#: Digits of a training step; digits that are read at once; digits that are learned from.
BATCH, ROWS, SEEN = 25, 33, 1500


def data():
    """Images as 64 numbers from 0 to 16, and what they show."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order].astype(np.uint8), labels[order].astype(np.uint8)


def programs():
    """A training step, and what a network says about digits: they share their weights' names."""
    weft.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )
    optimizer = optim.Adam(model.parameters(), lr=5e-3)

    def train_step(images, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    def read(images):
        with weft.no_grad():
            return F.softmax(model(images), -1)

    seen = weft.spec((BATCH, 1, 8, 8)), weft.spec((BATCH,), "int64")
    return weft.export(train_step, *seen), weft.export(read, weft.spec((ROWS, 1, 8, 8)))


def build(folder):
    """Writes all files of the page; returns the sizes of the WebAssembly."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = [
        program.build(folder / f"{name}.wasm")
        for name, program in zip(("train", "read"), programs())
    ]
    images, labels = data()
    (folder / "digits.bin").write_bytes(images.tobytes() + labels.tobytes())
    for file in HERE.iterdir():
        if file.suffix in (".html", ".css", ".js"):
            shutil.copyfile(file, folder / file.name)
    return {one.path.name: one.path.stat().st_size for one in made}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=HERE.parent.parent / "build" / "browser")
    parser.add_argument("--serve", action="store_true", help="offer the page on this machine")
    options = parser.parse_args()
    for name, size in build(options.folder).items():
        print(f"{name}: {size / 1024:.0f} KB")
    print(Path(options.folder) / "index.html")
    if options.serve:
        files = functools.partial(
            http.server.SimpleHTTPRequestHandler, directory=str(options.folder)
        )
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
            print(f"http://127.0.0.1:{server.server_port}/")
            server.serve_forever()


if __name__ == "__main__":
    main()
