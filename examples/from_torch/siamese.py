"""A Siamese network learns whether two pictures show the same shape."""

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F
import weft.torch.optim as optim
from weft.torch.optim.lr_scheduler import StepLR
from weft.torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, count):
        self.prototypes = (torch.rand(5, 1, 12, 12) > 0.5).float()
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        first = index % 5
        second = first if index % 2 == 0 else (first + 1 + index % 4) % 5
        noise = 0.3 * torch.randn(2, 1, 12, 12)
        same = torch.tensor(1.0 if first == second else 0.0)
        return self.prototypes[first] + noise[0], self.prototypes[second] + noise[1], same


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.fc = nn.Sequential(
            nn.Linear(2 * 8 * 6 * 6, 64), nn.ReLU(inplace=True), nn.Linear(64, 1)
        )
        self.sigmoid = nn.Sigmoid()
        self.fc.apply(self.init_weights)

    def init_weights(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.xavier_uniform_(m.weight)
            m.bias.data.fill_(0.01)

    def forward_once(self, x):
        output = self.features(x)
        return output.view(output.size()[0], -1)

    def forward(self, input1, input2):
        output = torch.cat((self.forward_once(input1), self.forward_once(input2)), 1)
        return self.sigmoid(self.fc(output))


def main(steps=60):
    torch.manual_seed(0)
    loader = DataLoader(Pairs(320), batch_size=16, shuffle=True)
    model = SiameseNetwork()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    losses = []
    model.train()
    while len(losses) < steps:
        for images_1, images_2, targets in loader:
            optimizer.zero_grad()
            outputs = model(images_1, images_2).squeeze()
            loss = F.binary_cross_entropy(outputs, targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
        scheduler.step()
    correct = torch.where(outputs > 0.5, 1, 0).eq(targets.view_as(outputs)).sum().item()
    print(f"Train loss: {loss.item():.4f} correct: {correct}/{len(targets)}")
    return losses


if __name__ == "__main__":
    main()
