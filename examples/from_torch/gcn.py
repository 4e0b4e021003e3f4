"""A graph convolutional network by hand: few known members of two clubs, all others to tell."""

import math

import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F
import weft.torch.optim as optim
from weft.torch.nn.parameter import Parameter


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super(GraphConvolution, self).__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.mm(adj, support)
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return f"{self.__class__.__name__} ({self.in_features} -> {self.out_features})"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super(GCN, self).__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        x = self.gc2(x, adj)
        return F.log_softmax(x, dim=1)


def clubs(count=40):
    """Members of one club know each other five times as often."""
    labels = torch.arange(count) % 2
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    chance = torch.where(same, torch.tensor(0.25), torch.tensor(0.05))
    upper = torch.triu(torch.bernoulli(chance), diagonal=1)
    adj = upper + upper.t() + torch.eye(count)
    degree = adj.sum(1).pow(-0.5)
    adj = degree.unsqueeze(1) * adj * degree.unsqueeze(0)
    return torch.eye(count), adj, labels


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    correct = preds.eq(labels).double()
    return correct.sum() / len(labels)


def main(steps=80):
    torch.manual_seed(42)
    features, adj, labels = clubs()
    idx_train = torch.LongTensor(range(8))
    idx_test = torch.LongTensor(range(8, 40))
    model = GCN(nfeat=features.shape[1], nhid=16, nclass=labels.max().item() + 1, dropout=0.5)
    optimizer = optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    losses = []
    for _ in range(steps):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        losses.append(loss_train.item())
    model.eval()
    output = model(features, adj)
    acc_test = accuracy(output[idx_test], labels[idx_test])
    print(f"Test set results: accuracy= {acc_test.item():.4f}", model.gc1)
    return losses


if __name__ == "__main__":
    main()
