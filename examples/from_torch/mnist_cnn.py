"""The MNIST example, on digits drawn in the file."""

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F
import weft.torch.optim as optim
from weft.torch.optim.lr_scheduler import StepLR
from weft.torch.utils.data import DataLoader, TensorDataset

SEGMENTS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgecd", "abc", "abcdefg", "abcdfg"]
PLACES = {
    "a": (slice(2, 4), slice(4, 12)),
    "b": (slice(3, 8), slice(10, 12)),
    "c": (slice(8, 13), slice(10, 12)),
    "d": (slice(12, 14), slice(4, 12)),
    "e": (slice(8, 13), slice(4, 6)),
    "f": (slice(3, 8), slice(4, 6)),
    "g": (slice(7, 9), slice(4, 12)),
}


def digits(count):
    labels = torch.randint(0, 10, (count,))
    images = 0.3 * torch.randn(count, 1, 16, 16)
    for i, label in enumerate(labels.tolist()):
        for segment in SEGMENTS[label]:
            rows, columns = PLACES[segment]
            images[i, 0, rows, columns] += 1.0
    return TensorDataset(images, labels)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(16 * 6 * 6, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def test(model, device, test_loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    test_loss /= len(test_loader.dataset)
    print(
        f"Test set: Average loss: {test_loss:.4f}, Accuracy: {correct}/{len(test_loader.dataset)}"
    )


def main(steps=60):
    use_cuda = torch.cuda.is_available()
    torch.manual_seed(1)
    device = torch.device("cuda" if use_cuda else "cpu")
    kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
    train_loader = DataLoader(digits(320), batch_size=16, shuffle=True, **kwargs)
    test_loader = DataLoader(digits(64), batch_size=32, **kwargs)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    losses = []
    while len(losses) < steps:
        model.train()
        for data, target in train_loader:
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            output = model(data)
            loss = F.nll_loss(output, target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
        test(model, device, test_loader)
        scheduler.step()
    return losses


if __name__ == "__main__":
    main()
