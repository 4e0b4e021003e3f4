"""Super-resolution with sub-pixel convolution: small pictures become large."""

from math import log10

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.init as init
import weft.torch.optim as optim


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super(Net, self).__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 16, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(16, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.pixel_shuffle(self.conv3(x))

    def _initialize_weights(self):
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv2.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv3.weight)


def pictures(count):
    """Smooth random pictures of 16 x 16."""
    grid = torch.linspace(0, 6.28, 16)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    phase = torch.rand(count, 2, 1, 1) * 6.28
    speed = torch.randint(1, 3, (count, 2, 1, 1)).float()
    waves = torch.sin(speed[:, :1] * x + phase[:, :1]) * torch.cos(speed[:, 1:] * y + phase[:, 1:])
    return 0.5 + 0.5 * waves


def main(steps=60):
    torch.manual_seed(123)
    model = Net(upscale_factor=2)
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=0.003)
    losses = []
    for step in range(steps):
        target = pictures(8)
        input = nn.functional.interpolate(target, scale_factor=0.5, mode="bilinear")
        optimizer.zero_grad()
        loss = criterion(model(input), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0:
            print(f"[{step}] Loss: {loss.item():.4f}")
    with torch.no_grad():
        psnr = 10 * log10(1 / criterion(model(input), target).item())
    print(f"PSNR: {psnr:.2f} dB")
    return losses


if __name__ == "__main__":
    main()
