"""Expressions in `torch`, in which PyTorch and Weft's core differ, or could.

`f`, `g` are float matrices, `v` a float vector, `i` an integer matrix, `j` a positive integer
vector, `b` a boolean matrix, `c` a cube of floats.
"""

VALUES = {
    "f": [[1.5, -2.0, 0.25], [4.0, -2.0, 7.5]],
    "g": [[0.5, 3.0, 0.25], [-4.0, 2.0, 1.0]],
    "v": [3.0, 1.0, 2.0, 1.0],
    "i": [[3, -7, 0], [5, 2, -4]],
    "j": [2, 0, 1, 3],
    "b": [[True, False, True], [False, False, True]],
    "c": [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]],
}

EXPRESSIONS = """
f.max()
f.max(1)
f.max(dim=0, keepdim=True)
f.max(1)[1]
f.max(1).indices
f.max(-1).values
torch.max(f)
torch.max(f, 1)
torch.max(f, g)
torch.max(f, dim=1)
torch.min(f, 0)
f.min(dim=1)
i.min(0)
torch.min(i, j[:3])
v.sort()
v.sort(descending=True)
torch.sort(f, dim=0)
torch.sort(f, 1, True)
torch.sort(f, dim=0)[0]
torch.argsort(v, descending=True)
v.argsort()
f.std()
f.std(0)
f.std(dim=1, keepdim=True)
f.std(unbiased=False)
f.std(1, unbiased=False)
f.std(False)
f.var()
f.var(dim=(0, 1))
torch.var(f, 1)
torch.var(f, dim=1, correction=0)
torch.std_mean(f, dim=1)
torch.var_mean(f)
f.size()
f.size(0)
f.size(-1)
f.size()[1]
list(f.size())
f.shape
len(f.size())
f.numel()
f.type()
i.type()
b.type()
f.type(torch.int64)
f.type(torch.DoubleTensor)
f.type("torch.LongTensor")
f.repeat(2, 1)
f.repeat(2, 2, 1)
v.repeat(3)
v.repeat((2, 2))
torch.repeat_interleave(v, 2)
v.repeat_interleave(j)
f.repeat_interleave(2, dim=0)
torch.meshgrid(v, v[:2])
torch.meshgrid(v, v[:2], indexing="xy")
torch.meshgrid([v, v[:2]], indexing="ij")
b.nonzero()
i.nonzero()
torch.nonzero(b, as_tuple=True)
torch.nonzero(v - 1)
torch.where(b)
torch.where(b, f, g)
torch.where(f > 0, 1.0, 0.0)
torch.where(f > 0, f, 0.0)
f.where(b, g)
torch.equal(f, f)
torch.equal(f, g)
f.equal(f[0])
torch.eq(f, g)
i // 2
i // (j[:3] + 1)
-i // 2
i % 3
i / 2
i / j[1:]
f // 0.5
torch.div(i, 2, rounding_mode="floor")
torch.div(i, 2, rounding_mode="trunc")
torch.div(f, 0.3, rounding_mode="trunc")
i ** 2
j ** 3
2 ** j
i * 1.5
i + 0.5
b + 1
b * 2.0
b.sum()
b.sum(1)
b.float().mean()
f > g
~b
b & (f > 0)
f.mean(0)
f.sum(dim=(0, 1))
f.sum(1, keepdim=True)
f.prod(1)
f.argmax()
f.argmax(1)
f.argmax(dim=1, keepdim=True)
torch.argmin(f, dim=0)
f.view(-1)
f.view(3, 2)
f.view(-1, 2)
f.reshape((3, 2))
c.flatten(1)
torch.flatten(c, start_dim=1)
torch.flatten(c, 0, 1)
c.transpose(0, 2)
torch.transpose(f, 0, 1)
f.t()
f.T
c.permute(2, 0, 1)
c.permute((1, 0, 2))
torch.permute(c, (2, 1, 0))
f.unsqueeze(0).squeeze(0)
f.unsqueeze(0).squeeze(1)
f.unsqueeze(0).squeeze()
f.expand(2, 2, 3)
v.unsqueeze(1).expand(-1, 3)
v.flip(0)
f.flip([0, 1])
torch.flip(f, dims=(1,))
torch.flip(f, [1])
f.roll(1, 1)
torch.roll(v, shifts=2, dims=0)
torch.roll(f, 1)
c.diagonal()
c.diagonal(dim1=1, dim2=2)
torch.diagonal(f, 1)
f.tril()
torch.tril(f, diagonal=-1)
torch.triu(f, 1)
f.take(j)
torch.take(f, torch.tensor([[0, 5], [1, 2]]))
torch.unique(i)
torch.unique(v, return_inverse=True)
torch.unique(v, return_counts=True)
torch.cat([f, g], 1)
torch.cat((f, g))
torch.stack([f, g], dim=2)
f.to(torch.float64)
f.to(torch.long)
f.to("cpu")
f.to("cpu", torch.float64)
f.to(device="cpu", dtype=torch.int32)
f.to(i)
i.float()
f.long()
f.int()
f.double()
f.half()
f.bool()
f.device.type
f.is_cuda
torch.tensor([1, 2]).dtype
torch.tensor([1.0, 2]).dtype
torch.tensor([True]).dtype
torch.tensor(3).dtype
torch.tensor(3.5)
torch.tensor([[1, 2], [3, 4]], dtype=torch.float)
torch.tensor([f[0, 0], f[1, 1]])
torch.tensor(np.arange(3.0))
torch.tensor(np.float64(2.5))
torch.tensor(np.arange(3, dtype=np.int32))
torch.from_numpy(np.ones((2, 2)))
torch.as_tensor([1, 2])
torch.FloatTensor([1, 2])
torch.LongTensor([1, 2])
torch.Tensor([1, 2])
torch.Tensor([1, 2]).dtype
torch.arange(5)
torch.arange(1, 7, 2)
torch.arange(0, 1, 0.25)
torch.arange(0, 10, step=4)
torch.arange(3.0)
torch.arange(2, dtype=torch.float32)
torch.arange(end=3)
torch.linspace(0, 1, 5)
torch.linspace(0, 10, steps=3)
torch.zeros(2, 3)
torch.zeros((2, 3))
torch.zeros([2], dtype=torch.long)
torch.zeros(size=(2,))
torch.ones(2, 1).dtype
torch.full((2,), 3)
torch.full((2,), 3.0)
torch.full((), True)
torch.eye(2)
torch.eye(2, 3)
torch.zeros_like(i)
torch.ones_like(f, dtype=torch.int64)
torch.full_like(f, 2)
f.new_zeros(2, 3)
f.new_tensor([1, 2])
i.new_ones((2,))
f.new_full((2,), 7)
torch.Size([2, 3]).numel()
torch.is_tensor(f)
torch.softmax(f, dim=1)
torch.softmax(f, 1)
f.softmax(-1)
torch.log_softmax(f, dim=0)
torch.logsumexp(f, dim=1)
torch.clamp(f, min=0)
torch.clamp(f, -1, 1)
f.clamp(max=1.0)
torch.abs(f)
f.abs().sqrt()
torch.sigmoid(f)
torch.matmul(f, g.T)
f @ g.t()
f.item() if f.numel() == 1 else f[0, 0].item()
f.tolist()
f.detach()
f.clone()
f[0]
f[:, 1]
f[b]
f[j[1]]
f[..., None]
f[[0, 1], [1, 2]]
torch.finfo(torch.float32).eps
torch.iinfo(torch.int64).max
torch.cuda.is_available()
torch.linalg.inv(c)
torch.linalg.det(c)
torch.trace(f[:, :2])
torch.outer(v, v)
torch.bernoulli(torch.tensor([0.0, 1.0]))
torch.randn(2, 3).shape
torch.rand(4).shape
torch.randint(0, 5, (3,)).dtype
torch.randint(5, (2, 2)).shape
torch.randperm(6).sort()[0]
torch.normal(0.0, 1.0, size=(2, 3)).shape
torch.empty(2, 3).shape
f.topk(2)
torch.topk(f, 1, dim=0)
torch.topk(v, k=2, largest=False)
f.topk(2)[1]
torch.kthvalue(v, 2)
v.kthvalue(3)
f.median()
f.median(1)
torch.median(f, dim=0, keepdim=True)
torch.median(v)
v.mode()
torch.mode(i, 1)
torch.cummax(v, dim=0)
torch.cummin(v, 0)
v.logcumsumexp(0)
f.gather(1, torch.tensor([[0, 2], [1, 1]]))
torch.gather(f, 0, torch.tensor([[0, 1, 1]]))
torch.zeros(2, 3).scatter(1, torch.tensor([[0], [2]]), 5.0)
torch.zeros(2, 3).scatter_(1, torch.tensor([[0], [2]]), 1)
torch.zeros(2, 3).scatter_add(1, torch.tensor([[0, 0, 2], [1, 1, 1]]), f)
torch.zeros(2, 3).index_add(0, torch.tensor([1, 0]), f)
f.index_select(1, torch.tensor([2, 0]))
torch.index_select(f, 0, torch.tensor([1]))
f.index_fill(1, torch.tensor([0]), 9.0)
torch.quantile(v, 0.5)
torch.quantile(f, torch.tensor([0.25, 0.75]), dim=1)
torch.nanmedian(v)
torch.nanmedian(torch.tensor([[1.0, float("nan"), 3.0], [2.0, 5.0, 4.0]]), dim=1)
torch.median(torch.tensor([[1.0, float("nan"), 3.0], [2.0, 5.0, 4.0]]), dim=1)
torch.median(torch.tensor([1.0, float("nan"), 3.0]))
i.median(dim=1)
torch.digamma(v)
torch.lgamma(v)
torch.erfinv(torch.tensor([0.1, -0.5]))
torch.xlogy(v, v)
torch.sinc(v)
torch.msort(f)
nn.functional.one_hot(j, 4)
nn.functional.cross_entropy(f, torch.tensor([0, 2]))
nn.functional.softmax(f, dim=1)
nn.functional.relu(f)
nn.functional.mse_loss(f, g)
"""
ROWS = [line for line in EXPRESSIONS.splitlines() if line]
