"""Makers of random nodes (random_nodes.py): a function for each family of operators draws operands and attributes by the schema's names. TABLE has them by
operator; makers_network.py adds contractions, quantisation, windows, normalisation, recurrent layers and others. What a maker avoids is undefined in the
standard, or wrong in its reference implementation; the reasons stand at the places."""
import numpy as np

TABLE = {}
FLOATS = ('float', 'double', 'float16', 'bfloat16')


def maker(*names):
    def add(function):
        TABLE.update({name: function for name in names})
        return function
    return add


# Versions that are not drawn: {operator: (first, last, reason)}
EXCLUDED = {
    'BatchNormalization': (9, 9, 'the reference mixes statistics of the batch in'),
    'RNN': (7, 7, 'the reference exchanges steps and batch'),
    'RoiAlign': (10, 10, 'the reference takes coordinates as version 16 does'),
}


def is_excluded(schema):
    first, last, _ = EXCLUDED.get(schema.name, (0, -1, ''))
    return first <= schema.since_version <= last


# ---- maps ----------------------------------------------------------------------------------------------------------------

RANGES = {'Acos': (-1, 1), 'Asin': (-1, 1), 'Acosh': (1, 4), 'Atanh': (-0.9, 0.9), 'Log': (0.01, 4), 'Sqrt': (0, 4), 'Tan': (-1.3, 1.3)}


@maker('Abs', 'Acos', 'Acosh', 'Asin', 'Asinh', 'Atan', 'Atanh', 'Ceil', 'Cos', 'Cosh', 'Erf', 'Exp', 'Floor', 'Log', 'Neg', 'Not', 'Round', 'Sigmoid',
       'Sign', 'Sin', 'Sinh', 'Softplus', 'Softsign', 'Sqrt', 'Tan', 'Tanh', 'Relu', 'Identity', 'HardSwish', 'Mish', 'BitwiseNot', 'Elu', 'Selu',
       'HardSigmoid', 'LeakyRelu', 'ThresholdedRelu', 'Celu', 'Gelu', 'Swish')
def unary(c):
    first = c.schema.inputs[0].name
    c.x(first, c.shape(), *RANGES.get(c.schema.name, (-3, 3)))
    c.maybe(alpha=c.r.uniform(0.1, 2), gamma=c.r.uniform(0.5, 2), beta=c.r.uniform(0, 1), approximate=c.pick('none', 'tanh'))


@maker('Reciprocal')
def reciprocal(c):
    c.x('X', c.shape(), 0.25, 4)


@maker('Shrink')
def shrink(c):
    c.x('input', c.shape(), -3, 3, FLOATS)
    c.maybe(lambd=c.r.uniform(0, 2), bias=c.r.uniform(0, 1))


@maker('IsNaN', 'IsInf')
def is_special(c):
    x = c.x('X', c.shape(), -2, 2, FLOATS)
    x[c.r.random(x.shape) < 0.3] = np.nan
    x[c.r.random(x.shape) < 0.2] = np.inf
    x[c.r.random(x.shape) < 0.2] = -np.inf
    c.maybe(detect_positive=c.size(0, 1), detect_negative=c.size(0, 1))


@maker('Clip')
def clip(c):
    c.x(c.schema.inputs[0].name, c.shape(), -3, 3)
    if c.has('max') and 'max' in c.schema.attributes:
        c.maybe(min=c.r.uniform(-2, 0), max=c.r.uniform(0, 2))
    else:
        t = c.given['input'].dtype
        c.maybe(min=c.array(t, (), -2, 1), max=c.array(t, (), 1, 3))


@maker('Cast')
def cast(c):
    c.x('input', c.shape(), 0, 3)
    targets = {'bool': 9, 'float': 1, 'double': 11, 'float16': 10, 'int32': 6, 'int64': 7, 'uint8': 2, 'int8': 3, 'int16': 5, 'uint32': 12}
    if c.opset >= 13:
        targets['bfloat16'] = 16
    if c.opset >= 19:
        targets.update(f8a=17, f8b=18, f8c=19, f8d=20)
    if c.opset >= 21:
        targets.update(uint4=21, int4=22)
    if 'to' in c.schema.attributes and c.opset < 6:
        return c.set(to=c.pick('FLOAT', 'INT32', 'DOUBLE', 'INT64', 'BOOL'))
    return c.set(to=targets[c.pick(*targets)])


@maker('CastLike')
def cast_like(c):
    c.x('input', c.shape(), 0, 3)
    c.x('target_type', (1,))


@maker('BitCast')
def bit_cast(c):
    c.x('input', c.shape(), 0, 100, ('int32', 'uint32', 'float'))
    c.set(to=c.pick(1, 6, 12))


def broadcast_shapes(c, count=2):
    """Shapes that broadcast to one, which the first may have whole."""
    whole = c.shape()
    shapes = []
    for _ in range(count):
        part = [1 if c.chance(0.2) else d for d in whole]
        shapes.append(tuple(part[int(c.r.integers(len(part) + 1)) if c.chance(0.3) else 0:]))
    return shapes


@maker('Add', 'Sub', 'Mul', 'Div', 'Equal', 'Greater', 'Less', 'GreaterOrEqual', 'LessOrEqual', 'And', 'Or', 'Xor', 'BitwiseAnd', 'BitwiseOr',
       'BitwiseXor', 'Mod', 'Pow', 'BitShift')
def binary(c):
    name, (a, b) = c.schema.name, broadcast_shapes(c)
    left, right = (i.name for i in c.schema.inputs)
    if c.has('broadcast'):  # one-way, before version 7
        b = a
    low, high = {'Div': (1, 4), 'Mod': (1, 5), 'BitShift': (0, 7), 'Pow': (0, 3)}.get(name, (-3, 3))
    among = FLOATS + ('int32', 'int64', 'int8', 'uint8') if name == 'Pow' else ()
    x = c.x(left, a, 0.1 if name == 'Pow' else -5 if name in ('Div', 'Mod') else -3, 4, among)
    c.x(right, b, low, high, among)
    if name == 'Mod':
        c.set(fmod=1 if not np.issubdtype(x.dtype, np.integer) else c.size(0, 1))
    if name == 'BitShift':
        c.set(direction=c.pick('LEFT', 'RIGHT'))


@maker('PRelu')
def prelu(c):
    whole = c.shape(1)
    c.x('X', whole)
    # before version 7 a slope is one number or one for each channel
    c.x('slope', whole if c.opset >= 7 and c.chance(0.5) else (1,))


@maker('Max', 'Min', 'Sum', 'Mean')
def variadic(c):
    first = c.schema.inputs[0].name
    shapes = broadcast_shapes(c, c.size(1, 4))
    if c.opset < 8:
        shapes = [shapes[0]] * len(shapes)
    dtype = c.type_of(first)
    c.given[first] = [c.array(dtype, s) for s in shapes]


@maker('Where')
def where(c):
    a, b, d = broadcast_shapes(c, 3)
    c.x('condition', a), c.x('X', b), c.x('Y', d)


# ---- reductions ----------------------------------------------------------------------------------------------------------

@maker('ReduceL1', 'ReduceL2', 'ReduceLogSum', 'ReduceLogSumExp', 'ReduceMax', 'ReduceMean', 'ReduceMin', 'ReduceProd', 'ReduceSum', 'ReduceSumSquare')
def reduction(c):
    x = c.x('data', c.shape(1), 0.5 if c.schema.name == 'ReduceLogSum' else -2, 3)
    if c.chance(0.7):
        axes = sorted(c.r.permutation(x.ndim)[:c.size(1, x.ndim)].tolist())
        # negative axes since version 11
        c.set(axes=[a - x.ndim if c.opset >= 11 and c.chance(0.3) else a for a in axes])
    c.maybe(keepdims=c.size(0, 1), noop_with_empty_axes=c.size(0, 1))


@maker('ArgMax', 'ArgMin')
def arg(c):
    x = c.x('data', c.shape(1), -3, 3)
    c.set(axis=c.axis(x.ndim) if c.opset >= 11 else c.size(0, x.ndim - 1))
    c.maybe(keepdims=c.size(0, 1), select_last_index=c.size(0, 1))


@maker('CumSum', 'CumProd')
def cumulative(c):
    x = c.x('x', c.shape(1))
    c.type_of('axis')
    c.set(axis=np.array(c.axis(x.ndim), c.type_of('axis')))
    c.maybe(exclusive=c.size(0, 1), reverse=c.size(0, 1))


@maker('Softmax', 'LogSoftmax', 'Hardmax')
def softmax(c):
    x = c.x('input', c.shape(1), -3, 3)
    # before version 13 all axes from that one on are one; the reference knows the last one only
    c.set(axis=x.ndim - 1 if c.opset < 13 else c.axis(x.ndim))


@maker('TopK')
def top_k(c):
    name = c.schema.inputs[0].name
    dtype, shape = c.type_of(name), c.shape(1)
    # no two are equal: which of them is given is open
    c.given[name] = c.r.permutation(int(np.prod(shape))).reshape(shape).astype(dtype)
    axis = c.axis(len(shape)) if c.opset >= 11 else c.size(0, len(shape) - 1)
    k = c.size(1, shape[axis])
    c.set(axis=axis, **({'k': k} if 'k' in c.schema.attributes else {'K': [k]}))
    if c.has('largest'):
        c.maybe(largest=c.size(0, 1))
    c.outputs = 2


# ---- structure -----------------------------------------------------------------------------------------------------------

@maker('Reshape')
def reshape(c):
    x = c.x('data', c.shape(1, 4))
    to = [int(np.prod(x.shape[:c.size(0, 1)])), -1] if c.chance(0.4) else list(c.r.permutation(x.shape))
    if c.chance(0.3):
        to = [0] + list(c.r.permutation(x.shape[1:]))
    c.set(shape=[int(d) for d in to])


@maker('Squeeze')
def squeeze(c):
    shape = list(c.shape(1, 3, 2))
    places = sorted(int(c.r.integers(len(shape) + 1)) for _ in range(c.size(1, 2)))
    axes = []
    for k, p in enumerate(places):
        shape.insert(p + k, 1)
        axes.append(p + k)
    c.x('data', shape)
    if c.chance(0.7):
        c.set(axes=axes)


@maker('Unsqueeze')
def unsqueeze(c):
    x = c.x('data', c.shape(0, 3))
    rank = x.ndim + c.size(1, 2)
    axes = c.r.permutation(rank)[:rank - x.ndim]
    c.set(axes=sorted(int(a) for a in axes) if c.opset < 11 or c.chance(0.7) else [int(a) - rank for a in axes])


@maker('Flatten')
def flatten(c):
    x = c.x('input', c.shape(1))
    c.maybe(axis=c.axis(x.ndim) if c.opset >= 11 else c.size(0, x.ndim))


@maker('Transpose')
def transpose(c):
    x = c.x('data', c.shape(1))
    c.maybe(perm=c.r.permutation(x.ndim).tolist())


@maker('Concat')
def concat(c):
    shape, count = list(c.shape(1)), c.size(1, 4)
    axis = c.size(0, len(shape) - 1)
    dtype = c.type_of('inputs')
    c.given['inputs'] = [c.array(dtype, shape[:axis] + [c.size()] + shape[axis + 1:]) for _ in range(count)]
    # an attribute with a default, 1, before version 4
    c.set(axis=axis - len(shape) if c.opset >= 11 and c.chance(0.3) else axis)


@maker('Expand')
def expand(c):
    a, b = broadcast_shapes(c)
    c.x('input', a)
    c.set(shape=np.array(b, np.int64))


@maker('Tile')
def tile(c):
    x = c.x('input', c.shape(1), -2, 2)
    c.set(repeats=[c.size(1, 3) for _ in range(x.ndim)])


@maker('DepthToSpace', 'SpaceToDepth')
def blocks(c):
    b, deep = c.size(1, 3), c.schema.name == 'DepthToSpace'
    n, channels, h, w = (c.size(1, 3) for _ in range(4))
    c.x('input', (n, channels * b * b, h, w) if deep else (n, channels, h * b, w * b))
    c.set(blocksize=b)
    c.maybe(mode=c.pick('DCR', 'CRD'))


@maker('EyeLike')
def eye(c):
    c.x('input', (c.size(), c.size()))
    c.maybe(k=c.size(-2, 2), dtype=c.pick(1, 6, 7, 11))


@maker('Trilu')
def trilu(c):
    c.x('input', c.shape(2))
    c.maybe(k=np.array(c.size(-3, 3), np.int64), upper=c.size(0, 1))


@maker('CenterCropPad')
def crop(c):
    x = c.x('input_data', c.shape(1))
    axes = sorted(c.r.permutation(x.ndim)[:c.size(1, x.ndim)].tolist())
    if c.chance(0.5):
        c.set(axes=axes)
    else:
        axes = range(x.ndim)
    c.set(shape=[c.size(1, 6) for _ in axes])


@maker('OneHot')
def one_hot(c):
    depth, rank = c.size(1, 6), c.size(0, 3)
    indices = c.type_of('indices', 'int64', 'int32', 'float')
    c.given['indices'] = c.array(indices, tuple(c.size() for _ in range(rank)), -depth if np.dtype(indices).kind == 'i' else 0, depth - 1)
    if np.dtype(indices).kind == 'f':
        c.given['indices'] = np.floor(c.given['indices'])
    c.set(depth=np.array(depth, c.type_of('depth', 'int64', 'int32', 'float')))
    c.x('values', (2,))
    c.maybe(axis=int(c.r.integers(-rank - 1, rank + 1)))


@maker('ReverseSequence')
def reverse_sequence(c):
    x = c.x('input', c.shape(2))
    batch = c.size(0, 1)
    c.set(batch_axis=batch, time_axis=1 - batch, sequence_lens=[c.size(1, x.shape[1 - batch]) for _ in range(x.shape[batch])])


@maker('Slice')
def slices(c):
    x = c.x('data', c.shape(1, 4))
    axes = sorted(c.r.permutation(x.ndim)[:c.size(1, x.ndim)].tolist())
    steps = [c.pick(1, 1, 2, 3, -1, -2) if c.has('steps') else 1 for _ in axes]
    starts, ends = [], []
    for a, s in zip(axes, steps):
        d = x.shape[a]
        low, high = c.size(0, d), c.size(0, d + 1)
        starts.append(low if s > 0 else high)
        ends.append(high if s > 0 else low - 1 if low else -2**31)
        if c.chance(0.3) and ends[-1] > 0:
            starts[-1] -= d if starts[-1] <= d and starts[-1] > 0 else 0
    c.set(starts=starts, ends=ends)
    if c.chance(0.8) or len(axes) != x.ndim:
        c.set(axes=axes)
    if c.has('steps') and (any(s != 1 for s in steps) or c.chance(0.3)):
        c.set(steps=steps)
        if c.given.get('axes') is None:
            c.set(axes=axes)


@maker('Split')
def split(c):
    parts = [c.size(1, 4) for _ in range(c.size(1, 4))]
    if c.chance(0.4):
        parts = [parts[0]] * len(parts)
    shape = list(c.shape(1))
    axis = c.size(0, len(shape) - 1)
    shape[axis] = sum(parts)
    c.x('input', shape)
    c.outputs = len(parts)
    c.set(axis=axis - len(shape) if c.opset >= 11 and c.chance(0.3) else axis)
    if len(set(parts)) > 1 or (c.chance(0.5) and c.opset > 1):
        c.set(split=parts)
    elif c.has('num_outputs'):
        c.set(num_outputs=len(parts))


@maker('Range')
def ranges(c):
    t = c.type_of('start', 'float', 'double', 'int16', 'int32', 'int64')  # f16 and bf16 are not imported so far, see excluded.txt
    delta = c.pick(1, 2, 3, -1, -2)
    c.set(start=np.array(c.size(-3, 3), t), limit=np.array(c.size(-9, 9), t), delta=np.array(delta, t))


@maker('Pad')
def pad(c):
    mode = c.pick('constant', 'reflect', 'edge', *(['wrap'] if c.opset >= 19 else []))
    name = c.schema.inputs[0].name
    x = c.x(name, c.shape(1, 4, 2), -2, 2)
    most = [d - 1 if mode != 'constant' else 3 for d in x.shape]
    axes = list(range(x.ndim))
    if c.has('axes') and c.chance(0.4):
        axes = sorted(c.r.permutation(x.ndim)[:c.size(1, x.ndim)].tolist())
        c.set(axes=axes)
    low, high = [c.size(0, most[a]) for a in axes], [c.size(0, most[a]) for a in axes]
    if mode == 'constant' and c.chance(0.3) and x.shape[axes[0]] > 1:
        low[0] = -1
    c.set(mode=mode)
    c.set(**{'paddings' if 'paddings' in c.schema.attributes else 'pads': low + high})
    if 'value' in c.schema.attributes:
        c.maybe(value=c.r.uniform(-1, 1))
    elif mode == 'constant' and c.chance(0.5):
        c.set(constant_value=c.array(x.dtype, (), 0, 2))


@maker('Shape', 'Size')
def sizes(c):
    x = c.x('data', c.shape())
    if x.ndim:
        c.maybe(start=c.axis(x.ndim), end=c.axis(x.ndim))


@maker('ConstantOfShape')
def constant_of_shape(c):
    c.set(input=np.array(c.shape(1), np.int64))
    if c.chance(0.7):
        c.set(value=np.array([c.size(-2, 3)], c.pick(np.float32, np.int64, np.int32, np.float64, np.int8)))


# ---- indices -------------------------------------------------------------------------------------------------------------

def indices(c, name, shape, size, among=('int64', 'int32')):
    dtype = c.type_of(name, *among)
    c.given[name] = c.r.integers(-size if c.opset >= 11 else 0, size, shape).astype(dtype)
    return c.given[name]


@maker('Gather')
def gather(c):
    x = c.x('data', c.shape(1))
    axis = c.size(0, x.ndim - 1)
    indices(c, 'indices', c.shape(0, 2), x.shape[axis])
    c.set(axis=axis - x.ndim if c.opset >= 11 and c.chance(0.3) else axis)


@maker('GatherElements')
def gather_elements(c):
    x = c.x('data', c.shape(1))
    axis = c.axis(x.ndim)
    shape = [c.size(1, d) for d in x.shape]
    shape[axis] = c.size()
    indices(c, 'indices', shape, x.shape[axis])
    c.set(axis=axis)


def tuples(c, x, batch, last, count_shape):
    """Indices of x's axes behind the batch ones; [-size, size)."""
    parts = [c.r.integers(-x.shape[batch + k], x.shape[batch + k], count_shape) for k in range(last)]
    return np.stack(parts, -1).astype(np.int64)


@maker('GatherND')
def gather_nd(c):
    x = c.x('data', c.shape(1))
    batch = c.size(0, min(1, x.ndim - 1)) if c.has('batch_dims') else 0
    last = c.size(1, x.ndim - batch)
    c.set(indices=tuples(c, x, batch, last, x.shape[:batch] + c.shape(0 if batch else 1, 2)))
    if batch:
        c.set(batch_dims=batch)


@maker('ScatterElements')
def scatter_elements(c):
    x = c.x('data', c.shape(1))
    axis = c.axis(x.ndim)
    shape = [c.size(1, d) for d in x.shape]
    # no place twice: with a reduction the order of sums is open, without one the result is
    one = c.r.permuted(np.broadcast_to(np.arange(x.shape[axis]), shape[:axis % x.ndim] + shape[axis % x.ndim + 1:] + [x.shape[axis]]), axis=-1)
    where = np.moveaxis(one[..., :shape[axis]], -1, axis)
    c.set(indices=(where - (x.shape[axis] if c.chance(0.2) else 0)).astype(c.type_of('indices')), updates=c.array(x.dtype, shape), axis=axis)
    if c.has('reduction'):
        c.maybe(reduction=c.pick('none', 'add', 'mul', *(['max', 'min'] if c.opset >= 18 else [])))


@maker('ScatterND')
def scatter_nd(c):
    x = c.x('data', c.shape(1))
    last = c.size(1, x.ndim)
    total = int(np.prod(x.shape[:last]))
    count = c.size(1, min(total, 4))
    places = np.stack(np.unravel_index(c.r.permutation(total)[:count], x.shape[:last]), -1).astype(np.int64)
    c.set(indices=places, updates=c.array(x.dtype, (count,) + x.shape[last:]))
    if c.has('reduction'):
        c.maybe(reduction=c.pick('none', 'add', 'mul', *(['max', 'min'] if c.opset >= 18 else [])))


@maker('NonZero')
def non_zero(c):
    c.x('X', c.shape(1), 0, 2)


@maker('Compress')
def compress(c):
    x = c.x('input', c.shape(1))
    axis = c.axis(x.ndim) if c.opset >= 11 else c.size(0, x.ndim - 1)
    over = x.size
    if c.chance(0.7):
        c.set(axis=axis)
        over = x.shape[axis]
    c.set(condition=c.r.random(c.size(1, over)) < 0.6)


@maker('Unique')
def unique(c):
    x = c.x('X', c.shape(1, 3), 0, 3)
    c.maybe(axis=c.axis(x.ndim))
    c.maybe(sorted=1)
    c.outputs = 4


@maker('TensorScatter')
def tensor_scatter(c):
    batch, most, wide, part = c.size(1, 3), c.size(3, 6), c.size(), c.size(1, 3)
    c.x('past_cache', (batch, most, wide), among=FLOATS + ('int32', 'int64', 'int8', 'uint8', 'bool', 'float8e4m3fn'))
    c.x('update', (batch, part, wide))
    c.set(axis=1, mode=c.pick('linear', 'circular'))
    if c.chance(0.8):
        c.set(write_indices=np.array([c.size(0, most - part) for _ in range(batch)], np.int64))
