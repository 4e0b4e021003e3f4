"""LoRA: a trained network learns a new task by matrices of low rank beside its frozen weights."""

import math

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad = False
        self.lora_A = nn.Parameter(base.weight.new_empty(rank, base.in_features))
        self.lora_B = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        self.scaling = alpha / rank
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.lora_B @ self.lora_A * self.scaling
        self.lora_B.zero_()


def inject(module, rank):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, LoRALinear(child, rank))
        else:
            inject(child, rank)


def fit(model, x, y, steps, lr):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=lr)
    losses = []
    for _ in range(steps):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(steps=100):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)
    )
    x = torch.randn(256, 8)
    losses = fit(model, x, x[:, :2].prod(1, keepdim=True), steps, 1e-2)
    inject(model, rank=2)
    total = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trainable: {trainable} of {total} ({100 * trainable / total:.1f}%)")
    frozen = model[0].base.weight.clone()
    losses += fit(model, x, x[:, 2:4].prod(1, keepdim=True), steps, 1e-2)
    assert torch.equal(frozen, model[0].base.weight)
    before = model(x)
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.merge()
    print("merged, largest change", (model(x) - before).abs().max().item())
    return losses


if __name__ == "__main__":
    main()
