"""Rows of layers that change the size of images: padding, resizing, sliding blocks, sampling."""

from __future__ import annotations

import numpy as np

from nn_samples.table import Row, function, row, values

V = values(2, 4, 7, seed=1)  # batch, channels, length
I = values(2, 4, 6, 5, seed=2)  # noqa: E741
D = values(1, 4, 4, 3, 5, seed=3)
BY_AXES = {1: V, 2: I, 3: D}
POSITIVE = np.abs(I) + 0.1
GRID = values(2, 3, 4, 2, seed=4, low=-1.3, high=1.3)
GRID3 = values(1, 2, 3, 2, 3, seed=5, low=-1.3, high=1.3)
PLACES = np.array([[[0, 3, 5], [1, 2, 4]]])  # of max pooling

CHANCES = values(2, 4, 2, seed=6, low=0, high=1)

ROWS: list[Row] = [
    *(
        row(f"{kind}Pad{axes}d", amount, *more, to=BY_AXES[axes], label=label)
        for kind, more in {
            "Constant": (2.5,),
            "Zero": (),
            "Reflection": (),
            "Replication": (),
            "Circular": (),
        }.items()
        for axes in (1, 2, 3)
        for amount, label in ((1, ""), ((2, 1, 0, 2, 1, 0)[: 2 * axes], "uneven"))
    ),
    row("ReflectionPad2d", 2, to=I[0], label="single"),
    row("ZeroPad2d", (-1, 1, 2, -2), to=I, label="negative"),
    # --- resizing
    row("Upsample", (9, 4), to=I),
    row("Upsample", to=V, make={"scale_factor": 2}, label="double"),
    row("Upsample", to=D, make={"size": 4, "mode": "nearest-exact"}, label="exact"),
    row("Upsample", to=V, make={"scale_factor": 1.7, "mode": "linear"}, label="linear"),
    row("Upsample", to=I, make={"scale_factor": (1.7, 0.6), "mode": "bilinear"}, label="bilinear"),
    row(
        "Upsample",
        to=I,
        make={"size": 8, "mode": "bicubic", "align_corners": True},
        label="bicubic_corners",
    ),
    row("Upsample", to=I, make={"scale_factor": 2, "mode": "bicubic"}, label="bicubic"),
    row("Upsample", to=D, make={"size": (3, 5, 2), "mode": "trilinear"}, label="trilinear"),
    row("UpsamplingNearest2d", to=I, make={"scale_factor": 3}),
    row("UpsamplingBilinear2d", to=I, make={"size": (11, 3)}),
    function("interpolate", I, size=(4, 3), mode="area", label="area"),
    function("interpolate", I, size=(3, 8), mode="bicubic", label="cubic"),
    function("interpolate", I, size=(1, 1), mode="bicubic", align_corners=True, label="one"),
    function("interpolate", I, size=(3, 2), mode="bilinear", antialias=True, label="smooth"),
    function("interpolate", I, size=(3, 8), mode="bicubic", antialias=True, label="smooth_cubic"),
    function(
        "interpolate",
        I,
        scale_factor=0.7,
        mode="bilinear",
        recompute_scale_factor=True,
        label="recomputed",
    ),
    function("upsample", I, scale_factor=2, mode="bilinear"),
    row("PixelShuffle", 2, to=I),
    row("PixelShuffle", 2, to=values(2, 3, 8, 2, 3), label="more_axes"),
    row("PixelUnshuffle", 2, to=values(2, 3, 4, 6)),
    row("ChannelShuffle", 2, to=I),
    # --- sliding blocks
    row("Unfold", 3, to=I),
    row("Unfold", (2, 3), (2, 1), (1, 2), (2, 1), to=I, label="all"),
    row("Unfold", 2, to=I[0], label="single"),
    row("Fold", (6, 5), 3, to=values(2, 18, 12)),
    row("Fold", (6, 5), (2, 3), (2, 1), (1, 2), (2, 1), to=values(2, 12, 21), label="all"),
    row("Fold", 4, 2, to=values(8, 9), label="single"),
    row("MaxUnpool1d", 2, to=(values(1, 2, 3), PLACES)),
    row("MaxUnpool1d", 2, to=(values(1, 2, 3), PLACES), call={"output_size": (7,)}, label="size"),
    row("MaxUnpool2d", (2, 1), to=(values(1, 2, 3), PLACES), label="single"),
    row("MaxUnpool2d", 2, 2, to=(values(1, 1, 2, 3), PLACES[None])),
    row("MaxUnpool3d", (1, 2, 1), to=(values(1, 1, 2, 3), PLACES[None])),
    row("LPPool1d", 3, 2, to=np.abs(V) + 0.1),
    row("LPPool2d", 2, (3, 2), 2, True, to=POSITIVE),
    row("LPPool3d", 1.5, 2, to=np.abs(D) + 0.1),
    function("fractional_max_pool2d", I, 2, (4, 3), _random_samples=CHANCES, return_indices=True),
    function(
        "fractional_max_pool2d", I, (3, 2), None, (0.6, 0.6), _random_samples=CHANCES, label="ratio"
    ),
    function(
        "fractional_max_pool3d",
        D,
        (2, 1, 2),
        output_size=(2, 2, 2),
        _random_samples=values(1, 4, 3, low=0, high=1),
    ),
    row("FractionalMaxPool2d", 2, to=I, make={"output_size": 3, "_random_samples": CHANCES}),
    row(
        "FractionalMaxPool3d",
        2,
        to=D,
        make={"output_size": (2, 1, 3), "_random_samples": values(1, 4, 3, low=0, high=1)},
    ),
    row("LocalResponseNorm", 3, to=I),
    row("LocalResponseNorm", 2, 0.3, 0.5, 2.0, to=V, label="options"),
    # --- sampling
    *(
        function(
            "grid_sample",
            I,
            GRID,
            mode=mode,
            padding_mode=edge,
            align_corners=corners,
            label=f"{mode}_{edge}{'_corners' * corners}",
        )
        for mode in ("bilinear", "bicubic")
        for edge, corners in (("zeros", False), ("border", True), ("reflection", False))
    ),
    function("grid_sample", I, grid=GRID, mode="nearest", align_corners=False, label="nearest"),
    function("grid_sample", D, GRID3, align_corners=True, label="volume"),
    function("affine_grid", values(2, 2, 3), (2, 1, 3, 4), align_corners=False),
    function("affine_grid", values(1, 3, 4), (1, 1, 1, 3, 2), align_corners=True, label="volume"),
]
