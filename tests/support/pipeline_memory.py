"""Two stages train on a batch of 16 micro-batches, with the schedule that is the argument: each
rank prints by how much the most memory that it had grew."""

import resource
import sys

import weft
from weft import distributed, nn

weft.manual_seed(0)
with distributed.Mesh({"pipe": 2}):
    layers = nn.Sequential(
        nn.Linear(8, 8), nn.Linear(8, 40_000), nn.Sigmoid(), nn.Linear(40_000, 8)
    )
    model = distributed.pipeline(layers, "pipe", micro_batches=16, schedule=sys.argv[1], cuts=[3])


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


x = weft.ones((16 * 20, 8))
model.backward(nn.functional.mse_loss, x[:16], x[:16])
before = peak()
loss = model.backward(nn.functional.mse_loss, x, x)
sys.stdout.write(
    f"rank {distributed.rank()} grew by {peak() - before} MB, loss {loss.item():.5f}\n"
)
