"""A character-level RNN says from which language a name comes."""

import random

import weft.torch as torch
import weft.torch.nn as nn

NAMES = {
    "Italian": "rossi bianchi ferrari esposito romano colombo ricci marino greco bruno".split(),
    "German": "schmidt schneider fischer weber wagner becker schulz hoffmann koch bauer".split(),
    "Japanese": "sato suzuki takahashi tanaka watanabe ito yamamoto nakamura kato".split(),
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def line_to_tensor(line):
    tensor = torch.zeros(len(line), 1, len(LETTERS))
    for li, letter in enumerate(line):
        tensor[li, 0, LETTERS.index(letter)] = 1
    return tensor


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        combined = torch.cat((input, hidden), 1)
        hidden = torch.tanh(self.i2h(combined))
        output = self.softmax(self.h2o(hidden))
        return output, hidden

    def init_hidden(self):
        return torch.zeros(1, self.hidden_size)


def main(steps=400):
    random.seed(0)
    torch.manual_seed(0)
    categories = list(NAMES)
    rnn = RNN(len(LETTERS), 32, len(categories))
    criterion = nn.NLLLoss()
    learning_rate = 0.02
    losses = []
    for step in range(steps):
        category = random.choice(categories)
        line = random.choice(NAMES[category])
        category_tensor = torch.tensor([categories.index(category)], dtype=torch.long)
        hidden = rnn.init_hidden()
        rnn.zero_grad()
        for letter in line_to_tensor(line):
            output, hidden = rnn(letter, hidden)
        loss = criterion(output, category_tensor)
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-learning_rate)
        losses.append(loss.item())
        if step % 100 == 0:
            top_n, top_i = output.topk(1)
            print(step, f"{loss.item():.4f}", line, "/", categories[top_i[0].item()])
    return losses


if __name__ == "__main__":
    main()
