"""Beam search over a recurrent language model; the search ends when every beam has ended."""

import re
from pathlib import Path

import numpy as np
from gallery import show

import weft
from weft import nn, optim
from weft.nn import functional as F

TEXT = (Path(__file__).resolve().parents[1] / "LICENSE").read_text().lower()
WORDS = sorted({word for word in re.findall("[a-z]+", TEXT) if 3 < len(word) < 12})
LETTERS, END, LONGEST = 27, 26, 12  # 26 letters, and the end, which also starts a word


class Speller(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.letter, self.cell = nn.Embedding(LETTERS, 16), nn.GRUCell(16, width)
        self.out = nn.Linear(width, LETTERS)
        self.width = width

    def forward(self, letters, state):
        state = self.cell(self.letter(letters), state)
        return F.log_softmax(self.out(state), dim=-1), state


def build():
    weft.manual_seed(0)
    spelled = np.full((len(WORDS), LONGEST + 1), END)
    for row, word in zip(spelled, WORDS):
        row[1 : len(word) + 1] = [ord(letter) - 97 for letter in word]
    words, model = weft.tensor(spelled), Speller()
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    @weft.compile
    def train(batch):
        optimizer.zero_grad()
        state, loss = weft.zeros((len(batch), model.width)), 0.0
        alive = weft.ones(len(batch))
        for i in range(LONGEST):
            scores, state = model(batch[:, i], state)
            missed = F.nll_loss(scores, batch[:, i + 1], reduction="none")
            loss = loss + (missed * alive).mean()
            alive = alive * weft.where(batch[:, i + 1] == END, 0.0, 1.0)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def step():
        return train(words[weft.randint(0, len(WORDS), (64,))])

    return step, model


def searcher(model, beams):
    @weft.compile
    def search(first):
        """The likeliest words that begin with a letter: `while` some beam has not ended."""
        state = weft.zeros((beams, model.width))
        scores, state = model(weft.full((beams,), END), state)
        total = weft.where(weft.arange(beams) == 0, 0.0, -1e9)
        last = weft.full((beams,), 0) + first
        words = weft.full((beams, LONGEST), END)
        words[:, 0] = last
        i = 1
        while (last != END).any() and i < LONGEST:
            scores, new = model(last, state)
            ended = (last == END)[:, None]
            stay = weft.where(weft.arange(LETTERS) == END, 0.0, -1e9)
            options = (total[:, None] + weft.where(ended, stay, scores)).reshape(-1)
            best = weft.argsort(options, descending=True)[:beams]
            beam, last = best // LETTERS, best % LETTERS
            total, words, state = options[best], words[beam], new[beam]
            words[:, i] = last
            i = i + 1
        return words, total

    return search


def run(steps=1000, beams=8):
    step, model = build()
    losses = [step().item() for _ in range(steps)]
    search, found = searcher(model, beams), {}
    with weft.no_grad():
        for letter in "acdl":
            words, total = search(weft.tensor(ord(letter) - 97))
            found[letter] = [
                ("".join(chr(97 + c) for c in word if c != END), np.exp(score))
                for word, score in zip(words.numpy(), total.numpy())
            ]
    best = ", ".join(rows[0][0] for rows in found.values())
    return {"summary": f"loss {losses[-1]:.2f}; likeliest: {best}", "found": found}


def draw(figure, result):
    for axes, (letter, rows) in zip(figure.subplots(1, 4), result["found"].items()):
        names, values = zip(*rows[::-1])
        axes.barh(range(len(names)), values)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.set(title=f"{letter}…", xticks=[])


if __name__ == "__main__":
    show(run, draw, (8, 2.4))
