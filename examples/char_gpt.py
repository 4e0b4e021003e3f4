"""A character-level GPT learns the text of the license, then writes some of its own."""

from pathlib import Path
from textwrap import wrap

import numpy as np
from gallery import show

import weft
from weft import nn, optim
from weft.nn import functional as F

TEXT = (Path(__file__).resolve().parents[1] / "LICENSE").read_text()
LETTERS = sorted(set(TEXT))
CONTEXT, WIDTH, HEADS, LAYERS = 64, 64, 4, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        heads = self.qkv(self.norm1(x)).reshape(b, t, 3 * HEADS, c // HEADS).swapaxes(1, 2)
        q, k, v = heads[:, :HEADS], heads[:, HEADS : 2 * HEADS], heads[:, 2 * HEADS :]
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.swapaxes(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter = nn.Embedding(len(LETTERS), WIDTH)
        self.place = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))

    def forward(self, letters):
        x = self.letter(letters) + self.place(weft.arange(letters.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def build(batch=16):
    weft.manual_seed(0)
    text = weft.tensor(np.array([LETTERS.index(letter) for letter in TEXT]))
    model = GPT()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)

    @weft.compile
    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).reshape(-1, len(LETTERS)), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    def step():
        starts = weft.randint(0, len(TEXT) - CONTEXT - 1, (batch, 1))
        places = starts + weft.arange(CONTEXT)
        return train(text[places], text[places + 1])

    return step, model


def write(model, letters=200, temperature=0.7):
    """Sample text: the last CONTEXT letters go in, one letter comes out."""

    @weft.compile
    def extend(window):
        logits = model(window[None, :])[0, -1] / temperature
        gumbel = -weft.log(-weft.log(weft.rand(len(LETTERS))))
        letter = (logits + gumbel).argmax(axis=0)
        return weft.concat([window[1:], letter.reshape(1)])

    window, text = weft.tensor([LETTERS.index(letter) for letter in TEXT[:CONTEXT]]), ""
    with weft.no_grad():
        for _ in range(letters):
            window = extend(window)
            text += LETTERS[int(window[-1])]
    return text


def run(steps=1500):
    step, model = build()
    losses = [step().item() for _ in range(steps)]
    text = write(model, 400 if steps > 10 else 5)
    return {"summary": f"loss {losses[-1]:.2f}", "losses": losses, "text": text}


def draw(figure, result):
    curve, page = figure.subplots(1, 2)
    curve.plot(result["losses"])
    curve.set(xlabel="step", ylabel="loss per letter")
    lines = wrap(" ".join(result["text"].split()), 46)
    page.text(0, 1, "\n".join(lines), va="top", family="monospace", fontsize=8)
    page.axis("off")


if __name__ == "__main__":
    show(run, draw, (8, 3))
