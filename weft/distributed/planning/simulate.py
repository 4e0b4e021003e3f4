"""`weft.distributed.simulate`: what a training step costs on a cluster that need not be there."""

from __future__ import annotations

from weft.distributed.planning.cluster import Cluster
from weft.distributed.planning.costs import Costs
from weft.distributed.planning.outline import Outline
from weft.distributed.planning.parallel_plan import ParallelPlan
from weft.distributed.planning.prediction import Prediction, predict
from weft.distributed.planning.search import Planned
from weft.distributed.planning.search import plan as search

__all__ = ["simulate"]


def simulate(
    step: Outline, cluster: Cluster, plan: ParallelPlan | Planned | None = None
) -> Prediction:
    """Predict the time and memory of one training step on a cluster.

    step      what `weft.distributed.outline` returned
    cluster   the devices and links: `Cluster.a100(gpus=64)`, or one of your own
    plan      how the step is laid out; by default the one that `weft.distributed.plan` chooses

    >>> from weft import distributed, nn, optim
    >>> def build():
    ...     model = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(8)])
    ...     optimizer = optim.SGD(model.parameters(), lr=0.1)
    ...     def step(x):
    ...         with weft.autocast(dtype="bfloat16"):
    ...             loss = model(x).sum()
    ...         loss.backward()
    ...         optimizer.step()
    ...     return step
    >>> step = distributed.outline(build, weft.spec((4096, 8192)))
    >>> found = distributed.simulate(
    ...     step, distributed.Cluster.a100(2), distributed.ParallelPlan(tensor=2, micro_batch=4096)
    ... )
    >>> print(f"{found.seconds * 1e3:.0f} ms, {found.flops_per_device / 1e12:.0f} TF/s on each")
    41 ms, 202 TF/s on each
    """
    if plan is None:
        plan = search(step, cluster)
    if isinstance(plan, Planned):
        if plan.prediction.cluster == cluster:
            return plan.prediction
        plan = plan.plan
    return predict(Costs(step, cluster), plan, keep_tasks=True)
