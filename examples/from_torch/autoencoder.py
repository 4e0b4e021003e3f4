"""An autoencoder presses pictures into three numbers, and noise out of them."""

import weft.torch as torch
from weft.torch import nn
from weft.torch.utils.data import DataLoader


class AutoEncoder(nn.Module):
    def __init__(self):
        super(AutoEncoder, self).__init__()
        self.encoder = nn.Sequential(
            nn.Linear(10 * 10, 64), nn.Tanh(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 3)
        )
        self.decoder = nn.Sequential(
            nn.Linear(3, 16),
            nn.Tanh(),
            nn.Linear(16, 64),
            nn.Tanh(),
            nn.Linear(64, 100),
            nn.Sigmoid(),
        )

    def forward(self, x):
        encoded = self.encoder(x)
        decoded = self.decoder(encoded)
        return encoded, decoded


def rings(count):
    """Rings of all sizes in pictures of 10 x 10."""
    axis = torch.arange(10.0) - 4.5
    distance = (axis[:, None] ** 2 + axis[None, :] ** 2).sqrt()
    radius = torch.rand(count, 1, 1) * 3 + 1
    return torch.exp(-((distance - radius) ** 2))


def main(steps=100):
    torch.manual_seed(1)
    pictures = rings(256)
    loader = DataLoader(dataset=pictures, batch_size=32, shuffle=True)
    autoencoder = AutoEncoder()
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=0.005)
    loss_func = nn.MSELoss()
    losses = []
    while len(losses) < steps:
        for step, x in enumerate(loader):
            b_y = x.view(-1, 100)
            b_x = (b_y + 0.1 * torch.randn_like(b_y)).clamp(0, 1)
            _, decoded = autoencoder(b_x)
            loss = loss_func(decoded, b_y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    encoded, _ = autoencoder(pictures[:5].view(-1, 100))
    print("codes of", encoded.data.numpy().round(1).tolist()[0], "loss", round(losses[-1], 4))
    return losses


if __name__ == "__main__":
    main()
