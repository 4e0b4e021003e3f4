"""A transformer learns the next word of a small text."""

import math

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F

TEXT = (
    """the loom holds the warp still and the weft moves over and under and the weaver counts
the threads and the shuttle goes and comes and the cloth grows and the weaver rests"""
    * 6
)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=200):
        super(PositionalEncoding, self).__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        pe = pe.unsqueeze(0).transpose(0, 1)
        self.register_buffer("pe", pe)

    def forward(self, x):
        x = x + self.pe[: x.size(0), :]
        return self.dropout(x)


class TransformerModel(nn.Module):
    def __init__(self, ntoken, ninp, nhead, nhid, nlayers, dropout=0.1):
        super().__init__()
        self.pos_encoder = PositionalEncoding(ninp, dropout)
        encoder_layers = nn.TransformerEncoderLayer(ninp, nhead, nhid, dropout)
        self.transformer_encoder = nn.TransformerEncoder(encoder_layers, nlayers)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.ninp = ninp
        self.decoder = nn.Linear(ninp, ntoken)
        self.init_weights()

    def init_weights(self):
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -initrange, initrange)

    def forward(self, src):
        mask = torch.triu(torch.full((len(src), len(src)), float("-inf")), diagonal=1)
        src = self.encoder(src) * math.sqrt(self.ninp)
        src = self.pos_encoder(src)
        output = self.transformer_encoder(src, mask=mask)
        output = self.decoder(output)
        return F.log_softmax(output, dim=-1)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous()


def main(steps=60, bptt=10):
    torch.manual_seed(1111)
    words = TEXT.split()
    vocabulary = sorted(set(words))
    ids = torch.tensor([vocabulary.index(w) for w in words]).type(torch.int64)
    train_data = batchify(ids, 8)
    ntokens = len(vocabulary)
    model = TransformerModel(ntokens, 32, 2, 32, 1)
    criterion = nn.NLLLoss()
    lr = 0.5
    losses = []
    model.train()
    while len(losses) < steps:
        for i in range(0, train_data.size(0) - 1, bptt):
            seq_len = min(bptt, len(train_data) - 1 - i)
            data = train_data[i : i + seq_len]
            targets = train_data[i + 1 : i + 1 + seq_len].view(-1)
            model.zero_grad()
            output = model(data).view(-1, ntokens)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
            losses.append(loss.item())
            if len(losses) == steps:
                break
    print(f"loss {losses[-1]:5.2f} | ppl {math.exp(losses[-1]):8.2f}")
    return losses


if __name__ == "__main__":
    main()
