"""A variational autoencoder of small pictures."""

import numpy as np

import weft.torch as torch
from weft.torch import nn, optim
from weft.torch.nn import functional as F
from weft.torch.utils.data import DataLoader, TensorDataset


def blobs(count):
    """Pictures of 12 x 12 with one bright spot each."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:12, 0:12]
    centre = rng.uniform(3, 9, (count, 2, 1, 1))
    pictures = np.exp(-((y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2) / 4)
    return torch.from_numpy(pictures.astype(np.float32)).unsqueeze(1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(144, 64)
        self.fc21 = nn.Linear(64, 4)
        self.fc22 = nn.Linear(64, 4)
        self.fc3 = nn.Linear(4, 64)
        self.fc4 = nn.Linear(64, 144)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 144))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 144), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def main(steps=160):
    torch.manual_seed(0)
    device = torch.device("cpu")
    loader = DataLoader(TensorDataset(blobs(512)), batch_size=32, shuffle=True)
    model = VAE().to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    model.train()
    while len(losses) < steps:
        for batch_idx, (data,) in enumerate(loader):
            data = data.to(device)
            optimizer.zero_grad()
            recon_batch, mu, logvar = model(data)
            loss = loss_function(recon_batch, data, mu, logvar)
            loss.backward()
            optimizer.step()
            losses.append(loss.item() / len(data))
            if batch_idx % 10 == 0:
                print(f"[{batch_idx * len(data)}/{len(loader.dataset)}] {losses[-1]:.4f}")
            if len(losses) == steps:
                break
    model.eval()
    with torch.no_grad():
        sample = torch.randn(8, 4).to(device)
        sample = model.decode(sample).cpu()
        print(
            "samples between", round(sample.min().item(), 2), "and", round(sample.max().item(), 2)
        )
    return losses


if __name__ == "__main__":
    main()
