"""Makers of random nodes, see makers.py: contractions, quantisation, windows, normalisation, recurrent layers and others."""
import numpy as np

from makers import FLOATS, maker


# ---- contractions --------------------------------------------------------------------------------------------------------

@maker('MatMul')
def matmul(c):
    n, k, m = c.size(), c.size(), c.size()
    a, b = c.pick(((n, k), (k, m)), ((k,), (k, m)), ((n, k), (k,)), ((k,), (k,)), ((2, n, k), (k, m)), ((3, 1, n, k), (2, k, m)))
    c.x('A', a), c.x('B', b)


@maker('MatMulInteger')
def matmul_integer(c):
    n, k, m = c.size(), c.size(), c.size()
    a, b = c.x('A', (n, k), -9, 9), c.x('B', (k, m), -9, 9)
    c.maybe(a_zero_point=c.array(a.dtype, (), 0, 5), b_zero_point=c.array(b.dtype, c.pick((), (m,)), 0, 5))


@maker('Gemm')
def gemm(c):
    n, k, m = c.size(), c.size(), c.size()
    ta, tb = c.size(0, 1), c.size(0, 1)
    c.x('A', (k, n) if ta else (n, k)), c.x('B', (m, k) if tb else (k, m))
    whole = np.issubdtype(c.given['A'].dtype, np.integer)
    if c.opset < 11 or c.chance(0.7):
        c.x('C', (n, m) if c.opset < 7 else c.pick((), (1,), (m,), (n, 1), (1, m), (n, m)))
    c.set(transA=ta, transB=tb)
    # version 6 of the reference has no beta
    c.maybe(0 if c.opset < 7 else 0.5, beta=float(c.size(0, 3)) if whole else c.r.uniform(0.3, 2))
    c.maybe(alpha=float(c.size(1, 3)) if whole else c.r.uniform(0.3, 2))


@maker('Einsum')
def einsum(c):
    sizes_of = {k: c.size(1, 4) for k in 'bijkl'}
    equation = c.pick('ij,jk->ik', 'bij,bjk->bik', 'ij->ji', 'ii->i', 'bij->bi', 'i,j->ij', '...ij,...jk->...ik', 'bijk,bijl->bkl', 'ij,ij->', 'ij,jk')
    shapes = [[sizes_of[k] for k in part.replace('...', 'b')] for part in equation.split('->')[0].split(',')]
    dtype = c.type_of('Inputs', *FLOATS, 'int32', 'int64')
    c.given['Inputs'] = [c.array(dtype, s) for s in shapes]
    c.set(equation=equation)


def window(c, spatial, dilated=True):
    """Kernel, strides, dilations and pads that fit into these sizes."""
    kernel = [c.size(1, min(3, s)) for s in spatial]
    dilation = [c.size(1, 2) if dilated and c.chance(0.4) and 2 * (k - 1) < s else 1 for k, s in zip(kernel, spatial)]
    stride = [c.size(1, 3) for _ in spatial]
    values = {'kernel_shape': kernel, 'strides': stride}
    if any(d > 1 for d in dilation) and c.has('dilations'):
        values['dilations'] = dilation
    if c.chance(0.4):
        values['pads'] = [c.size(0, k - 1) for k in kernel * 2]
    elif c.chance(0.3):
        values['auto_pad'] = c.pick('VALID', 'SAME_UPPER', 'SAME_LOWER')
    if c.chance(0.2) and 'pads' not in values:
        values['strides'] = [1] * len(stride)
    return values


@maker('Conv')
def conv(c):
    groups, out, deep, rank = c.size(1, 2), c.size(1, 3), c.size(1, 3), c.size(1, 3)
    spatial = [c.size(3, 7) for _ in range(rank)]
    values = window(c, spatial)
    if 'auto_pad' in values:  # with VALID or steps the reference's sizes are not those of the standard
        values.pop('dilations', None)
        values['auto_pad'] = c.pick('SAME_UPPER', 'SAME_LOWER')
        values['strides'] = [1] * rank
    c.x('X', [c.size(1, 2), groups * deep] + spatial, among=FLOATS)
    c.x('W', [groups * out, deep] + values['kernel_shape'], among=FLOATS)
    if c.chance(0.5):
        c.x('B', (groups * out,), among=FLOATS)
    c.set(**values)
    if groups > 1 or c.chance(0.3):
        c.set(group=groups)


@maker('ConvInteger')
def conv_integer(c):
    spatial, deep, out = [c.size(3, 6) for _ in range(2)], c.size(1, 3), c.size(1, 3)
    values = window(c, spatial, False)
    values.pop('auto_pad', None)
    x = c.x('x', [1, deep] + spatial, 0, 9)
    w = c.x('w', [out, deep] + values['kernel_shape'], 0, 9)
    c.set(**values)
    c.maybe(x_zero_point=c.array(x.dtype, (), 0, 5))
    if 'x_zero_point' in c.given:
        c.maybe(w_zero_point=c.array(w.dtype, (), 0, 5))


@maker('ConvTranspose')
def conv_transpose(c):
    rank, deep, out = c.size(1, 2), c.size(1, 3), c.size(1, 3)
    spatial = [c.size(2, 4) for _ in range(rank)]
    kernel, stride = [c.size(1, 3) for _ in spatial], [c.size(1, 3) for _ in spatial]
    c.x('X', [1, deep] + spatial, among=FLOATS)
    c.x('W', [deep, out] + kernel, among=FLOATS)
    if c.chance(0.4):
        c.x('B', (out,), among=FLOATS)
    c.set(kernel_shape=kernel, strides=stride)
    if c.chance(0.4):
        c.set(pads=[c.size(0, (k - 1) // 2) for k in kernel * 2])
    if c.chance(0.3):
        c.set(output_padding=[c.size(0, s - 1) for s in stride])


@maker('DeformConv')
def deform_conv(c):
    deep, out, h, w, k = c.size(1, 3), c.size(1, 2), c.size(3, 5), c.size(3, 5), c.size(1, 2)
    c.x('X', (1, deep, h, w), among=FLOATS)
    c.atol = 0.1 if c.given['X'].dtype.itemsize == 2 else 0  # the reference sums in the narrow type
    c.x('W', (out, deep, k, k))
    high, wide = h - k + 1, w - k + 1
    c.x('offset', (1, 2 * k * k, high, wide), -0.9, 0.9)
    c.set(kernel_shape=[k, k], pads=[0, 0, 0, 0])
    if c.chance(0.4):
        c.x('B', (out,))
    if c.chance(0.4):
        c.x('mask', (1, k * k, high, wide), 0, 1)


# ---- quantisation --------------------------------------------------------------------------------------------------------

def blocked(c, x, scale, zero, dtype, factor):
    """Scales for blocks along an axis, since version 21."""
    axis = c.axis(x.ndim)
    block = c.pick(*[b for b in range(1, x.shape[axis] + 1) if x.shape[axis] % b == 0])
    shape = list(x.shape)
    shape[axis] //= block
    c.given[scale] = np.exp2(c.r.integers(-6, 0, shape)).astype(np.float32) * np.float32(factor)
    if c.chance(0.7):
        c.given[zero] = c.array(dtype, shape, 0, 7)
    c.set(axis=axis, block_size=block)


@maker('QuantizeLinear')
def quantize(c):
    if c.opset >= 21 and c.chance(0.3):
        x = c.x('x', c.shape(1, 3), -3, 3, ('float',))
        c.type_of('y_scale', 'float')
        return blocked(c, x, 'y_scale', 'y_zero_point', c.type_of('y_zero_point', 'uint8', 'int8', 'int4', 'uint4'), 1)
    x = c.x('x', c.shape(1, 3), -3, 3, ('float', 'float16'))
    scales(c, x, 'y_scale', 'y_zero_point', ('uint8', 'int8', 'uint16', 'int16'))


def scales(c, x, scale, zero, types):
    per_axis = c.opset >= 13 and c.chance(0.5)
    axis = c.axis(x.ndim)
    shape = (x.shape[axis],) if per_axis else ()
    # factors of two: a quotient between two integers is none
    text = next(i.type_str for i in c.schema.inputs if i.name == scale)
    dtype = np.float32 if text.startswith('tensor(') else c.type_of(scale, 'float', 'float16')
    c.given[scale] = np.exp2(c.r.integers(-6, 0, shape)).astype(dtype)
    if per_axis:
        c.set(axis=axis)
    if c.chance(0.7):
        c.given[zero] = c.array(c.type_of(zero, *types), shape, 0, 20)


@maker('DequantizeLinear')
def dequantize(c):
    if c.opset >= 21 and c.chance(0.3):
        x = c.x('x', c.shape(1, 3), 0, 7, ('uint8', 'int8', 'int4', 'uint4', 'int16'))
        c.type_of('x_scale', 'float')
        return blocked(c, x, 'x_scale', 'x_zero_point', x.dtype, 0.7)
    x = c.x('x', c.shape(1, 3), -100, 100, ('uint8', 'int8', 'uint16', 'int16'))
    per_axis = c.opset >= 13 and c.chance(0.5)
    axis = c.axis(x.ndim)
    shape = (x.shape[axis],) if per_axis else ()
    text = next(i.type_str for i in c.schema.inputs if i.name == 'x_scale')
    dtype = np.float32 if text.startswith('tensor(') else c.type_of('x_scale', 'float')
    c.given['x_scale'] = c.r.uniform(0.01, 1, shape).astype(dtype)
    if per_axis:
        c.set(axis=axis)
    if c.chance(0.7):
        c.given['x_zero_point'] = c.array(x.dtype, shape, 0, 20)


@maker('DynamicQuantizeLinear')
def dynamic_quantize(c):
    c.x('x', c.shape(1), -3, 3)
    c.outputs = 3


@maker('QLinearMatMul')
def qlinear_matmul(c):
    n, k, m = c.size(), c.size(), c.size()
    types = ('uint8', 'int8')
    a, b = c.x('a', (n, k), 0, 20, types), c.x('b', (k, m), 0, 20, types)
    t = np.float32 if c.opset < 21 else c.type_of('a_scale', 'float')
    c.set(a_scale=np.array(0.25, t), b_scale=np.array(0.5, t), y_scale=np.array(1.0, t), a_zero_point=c.array(a.dtype, (), 0, 5),
          b_zero_point=c.array(b.dtype, (), 0, 5), y_zero_point=np.array(2 * c.size(0, 5), c.type_of('y_zero_point', *types)))  # even: the reference rounds with it


@maker('QLinearConv')
def qlinear_conv(c):
    spatial, deep, out = [c.size(3, 6) for _ in range(2)], c.size(1, 3), c.size(1, 3)
    values = window(c, spatial, False)
    values.pop('auto_pad', None)
    x = c.x('x', [1, deep] + spatial, 0, 20)
    w = c.x('w', [out, deep] + values['kernel_shape'], 0, 20)
    y = c.type_of('y_zero_point')
    c.set(x_scale=np.float32(0.25), w_scale=np.float32(0.5), y_scale=np.float32(1), x_zero_point=c.array(x.dtype, (), 0, 5),
          w_zero_point=c.array(w.dtype, (), 0, 5), y_zero_point=np.array(2 * c.size(0, 5), y), **values)
    if c.chance(0.5):
        c.set(B=c.r.integers(-50, 50, (out,)).astype(np.int32))


# ---- windows -------------------------------------------------------------------------------------------------------------

def overrun(values, spatial):
    """By how many elements the last window may be beyond the padding, with ceil_mode."""
    axes = len(spatial)
    most = 0
    for d, size in enumerate(spatial):
        window = (values['kernel_shape'][d] - 1) * values.get('dilations', [1] * axes)[d] + 1
        padded = size + sum(values.get('pads', [0] * 2 * axes)[d::axes])
        most = max(most, (window - padded) % values.get('strides', [1] * axes)[d])
    return most


@maker('AveragePool', 'MaxPool', 'LpPool')
def pool(c):
    rank = 2 if c.schema.name == 'LpPool' and c.opset < 2 else c.size(1, 3)
    spatial = [c.size(3, 7) for _ in range(rank)]
    values = window(c, spatial)
    if 'auto_pad' in values:
        values.pop('dilations', None)
    c.x('X', [c.size(1, 2), c.size(1, 3)] + spatial, among=FLOATS)
    if c.schema.name == 'MaxPool' and max(values['strides']) > 1 and values.get('auto_pad', '').startswith('SAME'):
        values.pop('auto_pad')  # the reference's sizes are not those of the standard
    if c.schema.name == 'MaxPool' and 'pads' in values:
        values['pads'] = values['pads'][:1] * 2 * rank  # the reference pads all sides alike
        if values['pads'][0] >= min(values['kernel_shape']):
            values.pop('pads')
    if c.schema.name == 'AveragePool' and c.opset < 7:
        values.pop('pads', None), values.pop('auto_pad', None)  # the reference counts padding
    c.set(**values)
    # a window of LpPool beyond the end is scaled by the reference, which has other windows than the standard with three axes and in MaxPool with padding;
    # SAME has none
    whole = c.schema.name == 'LpPool' or 'auto_pad' in values or rank == 3 or (c.schema.name == 'MaxPool' and 'pads' in values)
    # of two and more elements beyond the end the reference of AveragePool moves half before the beginning
    whole = whole or (c.schema.name == 'AveragePool' and overrun(values, spatial) > 1)
    c.maybe(0.4, count_include_pad=c.size(0, 1), ceil_mode=0 if whole else c.size(0, 1))
    if 'p' in c.schema.attributes:
        c.set(p=c.size(1, 3) if c.opset >= 2 else 2.0)
    if c.schema.name == 'MaxPool' and c.opset >= 8 and c.chance(0.3) and c.given['X'].shape[:2] == (1, 1) and 'auto_pad' not in values:
        c.outputs = 2  # the reference's places are those in a channel


@maker('GlobalAveragePool', 'GlobalMaxPool', 'GlobalLpPool')
def global_pool(c):
    # GlobalMaxPool of the reference knows two spatial axes
    c.x('X', [c.size(1, 2), c.size(1, 3)] + [c.size(2, 5) for _ in range(2 if c.schema.name == 'GlobalMaxPool' else c.size(1, 3))])
    if 'p' in c.schema.attributes:
        c.set(p=c.size(1, 3) if c.opset >= 2 else 2.0)


@maker('LRN')
def lrn(c):
    n = c.size(2, 5)  # the reference takes the number of images for that of channels
    c.x('X', [n, n] + [c.size(1, 4) for _ in range(2)])
    c.set(size=c.pick(1, 3, 5))
    c.maybe(alpha=c.r.uniform(0.01, 1), beta=c.r.uniform(0.3, 1), bias=c.r.uniform(0.5, 2))


def rounded(at, how):
    return {'round_prefer_floor': np.ceil(at - 0.5), 'round_prefer_ceil': np.floor(at + 0.5), 'floor': np.floor(at), 'ceil': np.ceil(at)}[how]


def shifted(x, sizes, scales, mode, rounding):
    """Resize with tf_half_pixel_for_nn, which the reference no longer has: element i of each axis is at (i + 0.5) / scale."""
    y = x.astype(np.float64)
    for axis, n in enumerate(x.shape):
        out = sizes[axis] if sizes else int(n * np.float64(scales[axis]))
        at = (np.arange(out) + 0.5) / np.float64(scales[axis]) if sizes is None else (np.arange(out) + 0.5) * n / out
        low = np.floor(at) if mode == 'linear' else rounded(at, rounding)
        share = (at - low).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
        taken = [y.take(np.clip(low + k, 0, n - 1).astype(int), axis) for k in (0, 1)]
        y = taken[0] * (1 - share) + taken[1] * share if mode == 'linear' else taken[0]
    return y


@maker('Resize')
def resize(c):
    spatial = [c.size(2, 6) for _ in range(2)]
    c.x('X', [1, c.size(1, 2)] + spatial, -2, 2, ('float',))
    modes = ['nearest', 'linear', 'cubic'] if c.opset >= 11 else ['nearest', 'linear']
    mode = c.pick(*modes)
    factor = [1.0, 1.0] + [c.pick(0.5, 0.75, 1.0, 1.5, 2.0, 3.0) for _ in spatial]
    c.set(mode=mode)
    if c.opset >= 18 and mode != 'nearest':
        c.maybe(0.4, antialias=1)
    if c.opset >= 18 and c.chance(0.3):
        c.set(axes=[2, 3])
        factor = factor[2:]
        if c.chance(0.5):
            c.set(sizes=[c.size(1, 9) for _ in spatial], keep_aspect_ratio_policy=c.pick('stretch', 'not_larger', 'not_smaller'))
        else:
            c.set(scales=np.array(factor, np.float32))
    elif c.opset >= 11 and c.chance(0.4):
        c.set(sizes=[1, c.given['X'].shape[1]] + [c.size(1, 9) for _ in spatial])
    else:
        c.set(scales=np.array(factor, np.float32))
    if c.opset >= 11:
        c.maybe(coordinate_transformation_mode=c.pick('half_pixel', 'pytorch_half_pixel', 'align_corners', 'asymmetric'),
                nearest_mode=c.pick('round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil'), cubic_coeff_a=-0.5, exclude_outside=c.size(0, 1))
        if 'keep_aspect_ratio_policy' in c.given and c.given.get('coordinate_transformation_mode') == 'align_corners':
            c.given.pop('coordinate_transformation_mode')  # the reference's sizes are fractions there
        if mode != 'cubic':
            c.given.pop('exclude_outside', None)
        single = mode == 'cubic' or any(int(n * f) == 1 for n, f in zip(spatial, factor[-2:]))
        if single and c.given.get('coordinate_transformation_mode') == 'pytorch_half_pixel':
            c.given.pop('coordinate_transformation_mode')  # for a size of one the reference has -0.5, or a fraction's place, in place of 0
    if c.opset in (11, 12) and mode != 'cubic' and c.chance(0.4):
        c.set(coordinate_transformation_mode='tf_half_pixel_for_nn')
        c.compute = lambda: [shifted(c.given['X'], c.given.get('sizes'), c.given.get('scales'), mode, c.given.get('nearest_mode', 'round_prefer_floor'))]


def pooled(x, rois, scale, cells):
    """MaxRoiPool, which the reference does not have: cells of whole elements, rounded outwards; 0 where none is in the image."""
    y = np.zeros((len(rois), x.shape[1]) + tuple(cells))
    for r, roi in enumerate(rois.astype(np.float64)):
        ends = [int(np.sign(v) * np.floor(abs(v) + 0.5)) for v in roi[1:] * np.float64(np.float32(scale))]
        for at in np.ndindex(*cells):
            window = []
            for axis, (i, p) in enumerate(zip(at, cells)):
                start, n = ends[1 - axis], max(ends[3 - axis] - ends[1 - axis] + 1, 1)
                window.append(slice(*np.clip((start + i * n // p, start - (-(i + 1) * n // p)), 0, x.shape[2 + axis])))
            part = x[int(roi[0]), :, window[0], window[1]].astype(np.float64)
            y[(r, slice(None)) + at] = part.max((1, 2)) if part.size else 0
    return y


@maker('MaxRoiPool')
def max_roi_pool(c):
    n, rows, columns = c.size(1, 2), c.size(2, 7), c.size(2, 7)
    x = c.x('X', (n, c.size(1, 3), rows, columns))
    rois = c.x('rois', (c.size(1, 4), 5), -2, 9)
    rois[:, 0] = c.r.integers(0, n, len(rois))
    c.set(pooled_shape=[c.size(1, 4), c.size(1, 4)])
    c.maybe(spatial_scale=c.pick(0.5, 1.0, 2.0))
    c.compute = lambda: [pooled(x, rois, c.given.get('spatial_scale', 1.0), c.given['pooled_shape'])]


@maker('Upsample')
def upsample(c):
    c.x('X', [1, c.size(1, 2), c.size(2, 4), c.size(2, 4)], among=('float',))
    c.set(mode='nearest')  # the reference has no other
    factor = [1.0, 1.0, c.pick(1.0, 2.0, 3.0), c.pick(1.0, 2.0)]
    c.set(scales=factor if 'scales' in c.schema.attributes else np.array(factor, np.float32))


@maker('GridSample')
def grid_sample(c):
    n = c.size(1, 2)
    c.x('X', (n, c.size(1, 2), c.size(2, 5), c.size(2, 5)), among=FLOATS)
    c.x('grid', (n, c.size(1, 4), c.size(1, 4), 2), -1.2, 1.2, ('float',))
    modes = ('linear', 'nearest', 'cubic') if c.opset >= 20 else ('bilinear', 'nearest', 'bicubic')
    c.maybe(mode=c.pick(*modes), padding_mode=c.pick('zeros', 'border', 'reflection'), align_corners=c.size(0, 1))
    if c.given.get('mode') == modes[2] and c.given.get('padding_mode') == 'border':
        c.given.pop('padding_mode')  # the reference moves places inside first, as neither ONNX Runtime nor PyTorch does


@maker('AffineGrid')
def affine_grid(c):
    n, spatial = c.size(1, 2), [c.size(1, 4) for _ in range(c.size(2, 3))]
    c.x('theta', (n, len(spatial), len(spatial) + 1), among=('float', 'double'))
    c.set(size=[n, 2] + spatial)
    c.maybe(align_corners=c.size(0, 1))


@maker('Col2Im')
def col2im(c):
    image, block = [c.size(3, 6) for _ in range(2)], [c.size(1, 2) for _ in range(2)]
    steps = [c.size(1, 2) for _ in range(2)]
    count = int(np.prod([(i - b) // s + 1 for i, b, s in zip(image, block, steps)]))
    c.x('input', (1, c.size(1, 2) * int(np.prod(block)), count), among=FLOATS)
    c.set(image_shape=image, block_shape=block, strides=steps)


@maker('RoiAlign')
def roi_align(c):
    n, rois = c.size(1, 2), c.size(1, 3)
    c.x('X', (n, c.size(1, 2), c.size(4, 7), c.size(4, 7)), among=('float',))
    low = c.r.uniform(0, 2, (rois, 2))
    c.set(rois=np.concatenate([low, low + c.r.uniform(1, 3, (rois, 2))], 1).astype(np.float32), batch_indices=c.r.integers(0, n, (rois,)).astype(np.int64),
          output_height=c.size(1, 3), output_width=c.size(1, 3), sampling_ratio=c.size(1, 2))
    c.maybe(spatial_scale=c.r.uniform(0.5, 1), mode=c.pick('avg', 'max'), coordinate_transformation_mode=c.pick('half_pixel', 'output_half_pixel'))


# ---- normalisation -------------------------------------------------------------------------------------------------------

def features(c, name='X'):
    return c.x(name, [c.size(1, 3), c.size(1, 4)] + [c.size(1, 4) for _ in range(c.size(1, 3))], -2, 2, FLOATS)


@maker('BatchNormalization')
def batch_norm(c):
    x = features(c)
    deep = (x.shape[1],)
    c.x('scale', deep), c.x('B', deep)
    names = [i.name for i in c.schema.inputs]
    c.x(names[3], deep), c.x(names[4], deep, 0.5, 2)
    c.maybe(epsilon=c.r.uniform(1e-5, 1e-2))
    if c.opset < 7:
        c.set(is_test=1)
    if c.opset == 1:
        c.set(consumed_inputs=[0, 0])


@maker('InstanceNormalization')
def instance_norm(c):
    x = features(c, 'input')
    c.x('scale', (x.shape[1],)), c.x('B', (x.shape[1],))
    c.maybe(epsilon=c.r.uniform(1e-3, 1e-2))


@maker('GroupNormalization')
def group_norm(c):
    groups, per = c.size(1, 3), c.size(1, 3)
    c.x('X', [c.size(1, 2), groups * per] + [c.size(2, 4) for _ in range(c.size(1, 2))], among=FLOATS)
    c.x('scale', (groups * per,)), c.x('bias', (groups * per,))
    c.set(num_groups=groups)
    c.maybe(epsilon=c.r.uniform(1e-3, 1e-2))


@maker('LayerNormalization')
def layer_norm(c):
    x = c.x('X', c.shape(1, 4, 2), among=('float', 'double'))
    axis = c.axis(x.ndim)
    c.x('Scale', x.shape[axis:])
    if c.chance(0.6):
        c.x('B', x.shape[axis:])
    c.set(axis=axis)
    c.maybe(epsilon=c.r.uniform(1e-3, 1e-2))


@maker('RMSNormalization')
def rms_norm(c):
    # with another type of the scale the reference keeps that of X
    x = c.x('X', c.shape(1, 4, 2), among=('float',))
    axis = c.axis(x.ndim)
    c.x('scale', x.shape[axis:], among=('float',))
    c.set(axis=axis)
    c.maybe(epsilon=c.r.uniform(1e-3, 1e-2))


@maker('LpNormalization')
def lp_norm(c):
    x = c.x('input', c.shape(1), among=FLOATS)
    c.maybe(axis=c.axis(x.ndim), p=c.size(1, 2))


@maker('MeanVarianceNormalization')
def mvn(c):
    x = c.x('X', [c.size(2, 3) for _ in range(4)], among=('float', 'double'))
    c.maybe(axes=sorted(c.r.permutation(x.ndim)[:c.size(1, 3)].tolist()))


@maker('Dropout')
def dropout(c):
    c.x('data', c.shape())
    if c.opset >= 12:
        c.maybe(ratio=np.array(0.3, c.type_of('ratio')))
    else:
        c.maybe(ratio=0.3)
    if c.opset < 7:
        c.set(is_test=1)


# ---- recurrent -----------------------------------------------------------------------------------------------------------

@maker('RNN', 'GRU', 'LSTM')
def recurrent(c):
    gates = {'RNN': 1, 'GRU': 3, 'LSTM': 4}[c.schema.name]
    # the reference takes a batch of one for no batch
    steps, batch, deep, hidden = c.size(1, 4), c.size(2, 3), c.size(1, 4), c.size(1, 4)
    # layout 1 of the reference takes the state as layout 0 does
    c.x('X', (steps, batch, deep), among=('float',))
    c.x('W', (1, gates * hidden, deep)), c.x('R', (1, gates * hidden, hidden))
    c.set(hidden_size=hidden)
    if c.chance(0.6):
        c.x('B', (1, 2 * gates * hidden))
    if c.chance(0.5):
        c.x('initial_h', (1, batch, hidden))
    if c.schema.name == 'LSTM' and 'initial_h' in c.given:
        c.x('initial_c', (1, batch, hidden))
        if c.chance(0.4) and 'B' in c.given:
            c.x('P', (1, 3 * hidden))
    if c.schema.name == 'GRU' and c.has('linear_before_reset'):
        c.maybe(linear_before_reset=c.size(0, 1))
    c.outputs = 2


# ---- others --------------------------------------------------------------------------------------------------------------

@maker('Attention')
def attention(c):
    batch, heads, groups, q, k, deep, wide = c.size(1, 2), c.size(1, 2), c.size(1, 2), c.size(1, 4), c.size(1, 4), 2 * c.size(1, 2), c.size(1, 4)
    among = ('float',)
    if c.chance(0.3):  # heads and sizes in one axis
        c.x('Q', (batch, q, heads * groups * deep), among=among)
        c.x('K', (batch, k, heads * deep), among=among), c.x('V', (batch, k, heads * wide), among=among)
        c.set(q_num_heads=heads * groups, kv_num_heads=heads)
    else:
        c.x('Q', (batch, heads * groups, q, deep), among=among)
        c.x('K', (batch, heads, k, deep), among=among), c.x('V', (batch, heads, k, wide), among=among)
    past = c.size(1, 3) if c.chance(0.3) else 0
    if past:
        c.x('past_key', (batch, heads, past, deep)), c.x('past_value', (batch, heads, past, wide))
        c.outputs = 3
    c.maybe(0.4, scale=c.r.uniform(0.2, 1), softcap=c.r.uniform(1, 3))
    if q <= k and not past:
        c.maybe(0.4, is_causal=1)
    if c.chance(0.4) and not c.given.get('is_causal'):
        c.given['attn_mask'] = c.array(c.type_of('attn_mask', 'float'), c.pick((q, past + k), (batch, 1, q, past + k), (1, heads * groups, q, past + k)))


@maker('RotaryEmbedding')
def rotary(c):
    batch, heads, steps, deep = c.size(1, 2), c.size(1, 3), c.size(1, 4), 2 * c.size(1, 3)
    c.x('X', (batch, heads, steps, deep), among=('float',))
    c.x('cos_cache', (9, deep // 2), -1, 1), c.x('sin_cache', (9, deep // 2), -1, 1)
    c.set(position_ids=c.r.integers(0, 9, (batch, steps)).astype(np.int64))
    c.maybe(interleaved=c.size(0, 1))


@maker('NegativeLogLikelihoodLoss')
def nll(c):
    n, classes, spatial = c.size(1, 3), c.size(2, 5), [c.size(1, 3) for _ in range(c.size(0, 2))]
    x = c.x('input', [n, classes] + spatial, -3, 0, ('float', 'double'))
    c.set(target=c.r.integers(0, classes, [n] + spatial).astype(c.type_of('target')))
    if c.chance(0.5):
        c.given['weight'] = c.array(x.dtype, (classes,), 0.5, 2)
    c.maybe(reduction=c.pick('none', 'sum', 'mean'))
    if c.chance(0.3):
        c.set(ignore_index=c.size(0, classes - 1))


@maker('SoftmaxCrossEntropyLoss')
def cross_entropy(c):
    n, classes, spatial = c.size(1, 3), c.size(2, 5), [c.size(1, 3) for _ in range(c.size(0, 2))]
    x = c.x('scores', [n, classes] + spatial, -3, 3, ('float', 'double'))
    c.set(labels=c.r.integers(0, classes, [n] + spatial).astype(c.type_of('labels')))
    if c.chance(0.5):
        c.given['weights'] = c.array(x.dtype, (classes,), 0.5, 2)
    c.maybe(reduction=c.pick('none', 'sum', 'mean'))
    c.outputs = c.size(1, 2)


@maker('Det')
def det(c):
    n = c.size(1, 4)
    c.x('X', c.shape(0, 2) + (n, n), among=('float', 'double'))


@maker('HannWindow', 'HammingWindow', 'BlackmanWindow')
def windows(c):
    c.set(size=np.array(c.size(2, 12), c.type_of('size')))
    c.maybe(periodic=c.size(0, 1), output_datatype=c.pick(1, 11))


@maker('DFT')
def dft(c):
    n = c.size(2, 6)
    c.x('input', (c.size(1, 3), n, c.size(1, 2)), among=('float', 'double'))
    whole = c.given['input'].shape[-1]
    if c.opset >= 20:
        c.set(axis=np.array(c.pick(1, -2), np.int64))
    else:
        c.set(axis=1)
    c.maybe(inverse=1 if whole == 2 else 0)
    if whole == 1 and c.chance(0.4):
        c.set(onesided=1)
    c.atol = 1e-4


@maker('STFT')
def stft(c):
    length, frame = c.size(10, 20), c.size(4, 8)
    c.x('signal', (c.size(1, 2), length, 1), among=('float',))
    c.set(frame_step=np.array(c.size(1, 4), c.type_of('frame_step')), frame_length=np.array(frame, c.type_of('frame_step')))
    c.set(window=c.array(np.dtype(np.float32), (frame,), 0, 1))
    c.maybe(onesided=c.size(0, 1))
    c.atol = 1e-4


@maker('MelWeightMatrix')
def mel(c):
    t = c.type_of('num_mel_bins')
    c.set(num_mel_bins=np.array(c.size(2, 6), t), dft_length=np.array(c.pick(16, 32), t), sample_rate=np.array(8192, t), lower_edge_hertz=np.float32(0),
          upper_edge_hertz=np.float32(4096))


@maker('NonMaxSuppression')
def nms(c):
    batch, boxes, classes = c.size(1, 2), c.size(1, 6), c.size(1, 2)
    low = c.r.uniform(0, 3, (batch, boxes, 2))
    c.set(boxes=np.concatenate([low, low + c.r.uniform(1, 3, (batch, boxes, 2))], 2).astype(np.float32),
          scores=c.r.uniform(0, 1, (batch, classes, boxes)).astype(np.float32), max_output_boxes_per_class=np.array([c.size(1, 4)], np.int64))
    c.maybe(iou_threshold=np.array([c.r.uniform(0.2, 0.8)], np.float32))


@maker('MaxUnpool')
def max_unpool(c):
    n, h, w = c.size(1, 2), c.size(1, 3), c.size(1, 3)
    x = c.x('X', (1, n, h, w), among=('float',))
    # each window of 2 by 2 keeps one place
    rows, columns = np.meshgrid(np.arange(h), np.arange(w), indexing='ij')
    flat = (2 * rows + c.r.integers(0, 2, x.shape)) * 2 * w + 2 * columns + c.r.integers(0, 2, x.shape)
    flat += (np.arange(n) * 4 * h * w).reshape(1, n, 1, 1)
    c.set(I=flat.astype(np.int64), kernel_shape=[2, 2], strides=[2, 2])
