"""Many processes: meshes, collectives, and ways to train on them."""

from weft.distributed.collectives import added as added
from weft.distributed.collectives import all_gather as all_gather
from weft.distributed.collectives import all_reduce as all_reduce
from weft.distributed.collectives import all_to_all as all_to_all
from weft.distributed.collectives import broadcast as broadcast
from weft.distributed.collectives import copied as copied
from weft.distributed.collectives import reduce_scatter as reduce_scatter
from weft.distributed.collectives import send as send
from weft.distributed.data_parallel import data_parallel as data_parallel
from weft.distributed.layouts import from_local as from_local
from weft.distributed.layouts import full as full
from weft.distributed.layouts import layout as layout
from weft.distributed.layouts import local as local
from weft.distributed.layouts import split as split
from weft.distributed.mesh import Mesh as Mesh
from weft.distributed.mesh import barrier as barrier
from weft.distributed.mesh import rank as rank
from weft.distributed.mesh import world_size as world_size
from weft.distributed.parallel import fully_sharded as fully_sharded
from weft.distributed.parallel import shard as shard
from weft.distributed.parallel import tensor_parallel as tensor_parallel
from weft.distributed.part import part as part
from weft.distributed.pipeline import pipeline as pipeline
from weft.distributed.start import init as init
from weft.distributed.virtual import run_virtual as run_virtual
