"""Training on several ranks that can be killed at any moment, and goes on as if nothing was.

    weft run -n 2 examples/resume.py FOLDER

Kill a rank (kill -9), start it again: the weights that it prints at the end have the same bits.
"""

import os
import sys
import zlib

import weft
from weft import distributed, nn, optim
from weft.data import DataLoader, TensorDataset

folder, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200

weft.manual_seed(0)
x = weft.randn(960, 16)
y = weft.sin(x.sum(axis=1, keepdims=True))
model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.1), nn.Tanh(), nn.Linear(64, 1))
distributed.data_parallel(model)
optimizer = optim.Adam(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(x, y), 48, shuffle=True, part=distributed.part())
progress = {"step": 0}


@weft.compile
def train(x, y):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss


with weft.Checkpoint(
    folder, model=model, optimizer=optimizer, loader=loader, progress=progress
) as checkpoint:
    begun = checkpoint.restore()
    rank = f"rank {distributed.rank()}"
    sys.stdout.write(f"{rank}, process {os.getpid()}: goes on from step {begun or 0}\n")
    sys.stdout.flush()
    while progress["step"] < steps:
        for batch in loader:
            loss = train(*batch)
            progress["step"] += 1
            if progress["step"] % 10 == 0:
                checkpoint.save(progress["step"])
            if progress["step"] == steps:
                break

bits = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
sys.stdout.write(f"{rank}: weights {zlib.crc32(bits):08x}\n")
