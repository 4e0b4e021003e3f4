"""Knowledge distillation: a small network learns from the soft answers of a large one."""

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.optim as optim
from weft.torch.utils.data import DataLoader, TensorDataset


class DeepNN(nn.Module):
    def __init__(self, num_classes=5):
        super(DeepNN, self).__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv1d(16, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool1d(kernel_size=2, stride=2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(16 * 10, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, num_classes)
        )

    def forward(self, x):
        x = self.features(x)
        x = torch.flatten(x, 1)
        return self.classifier(x)


class LightNN(nn.Module):
    def __init__(self, num_classes=5):
        super(LightNN, self).__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, num_classes)
        )

    def forward(self, x):
        return self.net(x)


def signals(count):
    """Waves of five frequencies, in noise."""
    labels = torch.randint(0, 5, (count,))
    time = torch.arange(20).float() / 20
    waves = torch.sin(2 * torch.pi * (labels.float().unsqueeze(1) + 1) * time)
    return TensorDataset((waves + 0.5 * torch.randn(count, 20)).unsqueeze(1), labels)


def train(model, loader, epochs, teacher=None, T=2, soft_target_loss_weight=0.25):
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=0.003)
    losses = []
    if teacher is not None:
        teacher.eval()
    model.train()
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            logits = model(inputs)
            loss = criterion(logits, labels)
            if teacher is not None:
                with torch.no_grad():
                    teacher_logits = teacher(inputs)
                soft_targets = nn.functional.softmax(teacher_logits / T, dim=-1)
                soft_prob = nn.functional.log_softmax(logits / T, dim=-1)
                difference = soft_targets * (soft_targets.log() - soft_prob)
                soft_loss = torch.sum(difference) / soft_prob.size()[0] * (T**2)
                loss = soft_target_loss_weight * soft_loss + (1 - soft_target_loss_weight) * loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def test(model, loader):
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, labels in loader:
            _, predicted = torch.max(model(inputs).data, 1)
            total += labels.size(0)
            correct += (predicted == labels).sum().item()
    return 100 * correct / total


def main(steps=60):
    torch.manual_seed(42)
    epochs = max(1, steps // 20)
    train_loader = DataLoader(signals(320), batch_size=32, shuffle=True)
    test_loader = DataLoader(signals(128), batch_size=64)
    teacher, student = DeepNN(), LightNN()
    losses = train(teacher, train_loader, 2 * epochs)
    losses += train(student, train_loader, 2 * epochs, teacher=teacher)
    total_params_deep = f"{sum(p.numel() for p in teacher.parameters()):,}"
    total_params_light = f"{sum(p.numel() for p in student.parameters()):,}"
    print(f"teacher {total_params_deep} parameters, {test(teacher, test_loader):.1f}%")
    print(f"student {total_params_light} parameters, {test(student, test_loader):.1f}%")
    return losses


if __name__ == "__main__":
    main()
