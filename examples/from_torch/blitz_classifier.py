"""The 60-minute blitz: a small convolutional network learns to tell ten kinds of pictures apart."""

import numpy as np

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F
import weft.torch.optim as optim
from weft.torch.utils.data import DataLoader, TensorDataset


def pictures(count, seed):
    """Ten classes: stripes of ten directions in colour, with noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    angle = labels * np.pi / 10
    y, x = np.mgrid[0:32, 0:32] / 32
    phase = rng.uniform(0, 6.28, (count, 1, 1))
    waves = np.sin(
        20 * (np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y) + phase
    )
    images = waves[:, None] * rng.uniform(0.5, 1.0, (count, 3, 1, 1))
    images = images + 0.3 * rng.standard_normal((count, 3, 32, 32))
    return TensorDataset(torch.tensor(images, dtype=torch.float32), torch.tensor(labels))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def main(steps=160):
    torch.manual_seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    trainloader = DataLoader(pictures(512, 0), batch_size=16, shuffle=True, num_workers=0)
    testloader = DataLoader(pictures(128, 1), batch_size=16, shuffle=False)
    net = Net().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    losses = []
    running_loss = 0.0
    while len(losses) < steps:
        for i, data in enumerate(trainloader, 0):
            inputs, labels = data[0].to(device), data[1].to(device)
            optimizer.zero_grad()
            outputs = net(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()

            losses.append(loss.item())
            running_loss += loss.item()
            if i % 20 == 19:
                print(f"[{len(losses):5d}] loss: {running_loss / 20:.3f}")
                running_loss = 0.0
            if len(losses) == steps:
                break

    correct, total = 0, 0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images)
            _, predicted = torch.max(outputs.data, 1)
            total += labels.size(0)
            correct += (predicted == labels).sum().item()
    print(f"Accuracy of the network on the test images: {100 * correct // total} %")
    return losses


if __name__ == "__main__":
    main()
