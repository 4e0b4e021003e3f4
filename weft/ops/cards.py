"""Names of cards, for code that is about one op: `node.op is MATMUL`.

A fact that holds for several ops is not a list of these names, but a trait or field of the cards.
"""

from weft.ir.op import OPS
from weft.ops import (  # noqa: F401  (they make the cards)
    activations,
    arithmetic,
    cast,
    comparison,
    control,
    conv,
    creation,
    effects,
    embedding,
    entropy,
    identity,
    index,
    index_cards,
    lists,
    matmul,
    neural,
    pool_cards,
    recurrent,
    reduce,
    select,
    shape,
    sizes,
    sorting,
    stacks,
    transcendental,
    update_rules,
)

ADD = OPS["add"]
ALL = OPS["all"]
ANY = OPS["any"]
ARANGE = OPS["arange"]
ARGMAX = OPS["argmax"]
ASSUME_SHAPE = OPS["assume_shape"]
ASTYPE = OPS["astype"]
BITWISE_AND = OPS["bitwise_and"]
BITWISE_RIGHT_SHIFT = OPS["bitwise_right_shift"]
BROADCAST_TO = OPS["broadcast_to"]
CEIL = OPS["ceil"]
CONCAT = OPS["concat"]
CONV = OPS["conv"]
CONV_BIAS = OPS["conv_bias"]
CROSS_ENTROPY = OPS["cross_entropy"]
DIM_SIZE = OPS["dim_size"]
DIVIDE = OPS["divide"]
EMBEDDING = OPS["embedding"]
EQUAL = OPS["equal"]
FENCE = OPS["fence"]
FIRST_TOKEN = OPS["token"]
FLOOR = OPS["floor"]
FLOOR_DIVIDE = OPS["floor_divide"]
FULL = OPS["full"]
GETITEM = OPS["getitem"]
GREATER = OPS["greater"]
GREATER_EQUAL = OPS["greater_equal"]
IDENTITY = OPS["identity"]
IF = OPS["if"]
LESS = OPS["less"]
LESS_EQUAL = OPS["less_equal"]
LINEAR = OPS["linear"]
LIST_OF = OPS["list_of"]
LIST_ONLY = OPS["list_only"]
LOGICAL_AND = OPS["logical_and"]
LOGICAL_NOT = OPS["logical_not"]
LOGICAL_OR = OPS["logical_or"]
MATMUL = OPS["matmul"]
MAX = OPS["max"]
MAX_POOL = OPS["max_pool"]
MIN = OPS["min"]
MULTIPLY = OPS["multiply"]
NLL = OPS["nll"]
ONLY_WHERE = OPS["only_where"]
PERMUTE_DIMS = OPS["permute_dims"]
POW = OPS["pow"]
PROD = OPS["prod"]
RECIPROCAL = OPS["reciprocal"]
REMAINDER = OPS["remainder"]
RESHAPE = OPS["reshape"]
ROUND = OPS["round"]
ROW_SUMS = OPS["row_sums"]
SCAN = OPS["scan"]
SCATTER_ADD = OPS["scatter_add"]
SETITEM = OPS["setitem"]
SOFTMAX = OPS["softmax"]
SQUARE = OPS["square"]
STACK_ADD = OPS["stack_add"]
STACK_NEW = OPS["stack_new"]
STACK_PUSH = OPS["stack_push"]
STACK_ZEROS = OPS["stack_zeros"]
STOP_GRADIENT = OPS["stop_gradient"]
SUBTRACT = OPS["subtract"]
SUM = OPS["sum"]
SUM_POOL = OPS["sum_pool"]
SWITCH = OPS["switch"]
TAKE = OPS["take"]
TO_DEVICE = OPS["to_device"]
TRUNC = OPS["trunc"]
UNIQUE_ALL = OPS["unique_all"]
WHERE = OPS["where"]
WHILE = OPS["while"]
WITH_GRADIENT_OF = OPS["with_gradient_of"]
