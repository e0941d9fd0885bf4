#!/usr/bin/env python3
"""Cases of operators of the domain com.microsoft, with results of ONNX Runtime, or of NumPy where its CPU has no kernel.
Usage: microsoft.py FOLDER [TEXT]   FOLDER/cases: a folder for each case (of those whose name contains TEXT): model.onnx, test_data_set_0,
data.json; FOLDER/refused: the same of operators that are refused by name
Needs onnx, onnxruntime and numpy."""
import json
import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

folder, wanted = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ''
onnxruntime.set_default_logger_severity(4)
random = np.random.default_rng(7)
written = {}
DOMAINS = [helper.make_opsetid('', 21), helper.make_opsetid('com.microsoft', 1)]


def f32(*shape):
    return random.standard_normal(shape).astype(np.float32)


def f16(*shape):
    return random.standard_normal(shape).astype(np.float16)


def ints(low, high, shape, dtype=np.int32):
    return random.integers(low, high, shape).astype(dtype)


def ort(op, inputs, outputs=(TensorProto.FLOAT,), domain='com.microsoft', opset=21, **attributes):
    """Results of ONNX Runtime for one node: a reference for a form of the operator that its CPU does not have."""
    names = ['x%d' % i if a is not None else '' for i, a in enumerate(inputs)]
    results = ['y%d' % i for i in range(len(outputs))]
    given = {'x%d' % i: a for i, a in enumerate(inputs) if a is not None}
    graph = helper.make_graph([helper.make_node(op, names, results, domain=domain, **attributes)], op,
                              [helper.make_tensor_value_info(n, kind(a), a.shape) for n, a in given.items()],
                              [helper.make_tensor_value_info(y, t, None) for y, t in zip(results, outputs)])
    return run(helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset), DOMAINS[1]], ir_version=10), given)


def kind(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def write_tensor(array, path):
    with open(path, 'wb') as file:
        file.write(numpy_helper.from_array(np.array(array, order='C')).SerializeToString())


def run(model, feed):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=['CPUExecutionProvider'])
    return session.run(None, feed)


def case(name, op, inputs, outputs=(TensorProto.FLOAT,), const=(), free=None, steps=None, reference=None, rtol=1e-3, atol=1e-6,
         domain='com.microsoft', keep=None, before=None, **attributes):
    """inputs: arrays, None where omitted; outputs: element types, None where omitted; const: indices of inputs that are initializers;
    free: names of dimensions of inputs; steps: scale and zero point of a result that may be off by one step; reference: results by NumPy;
    keep: how results are cut to the elements that have a meaning, Slice's starts and ends for each result; before: nodes, the names of
    their results that are inputs, by index, and how many inputs are the operator's."""
    if wanted not in name:
        return
    number = written[name] = written.get(name, -1) + 1
    tensors = [(i, a) for i, a in enumerate(inputs) if a is not None]
    names = ['x%d' % i if a is not None else '' for i, a in enumerate(inputs)]
    results = ['y%d' % i if t else '' for i, t in enumerate(outputs)]
    nodes, computed, own = before or ([], {}, len(names))
    names = [computed.get(i, n) for i, n in enumerate(names)][:own]
    nodes = nodes + [helper.make_node(op, names, results, domain=domain, name=name, **attributes)]
    constants = [numpy_helper.from_array(a, 'x%d' % i) for i, a in tensors if i in const]
    given = [(y, t) for y, t in zip(results, outputs) if t]
    if outputs[0] == TensorProto.FLOAT16:
        atol = 2e-3
    if steps:
        dtype = np.int8 if outputs[0] == TensorProto.INT8 else np.uint8
        constants += [numpy_helper.from_array(np.array(steps[0], np.float32), 'scale'),
                      numpy_helper.from_array(np.array(steps[1], dtype), 'zero')]
        nodes.append(helper.make_node('DequantizeLinear', ['y0', 'scale', 'zero'], ['z0']))
        given, atol = [('z0', TensorProto.FLOAT)], steps[0] * 1.01
    for y, (starts, ends) in (keep or {}).items():
        constants += [numpy_helper.from_array(np.array(starts), y + 'from'), numpy_helper.from_array(np.array(ends), y + 'to')]
        nodes.append(helper.make_node('Slice', [y, y + 'from', y + 'to'], [y + 'cut']))
        given = [(y + 'cut' if y == g else g, t) for g, t in given]
    shapes = {i: (free or {}).get(i) or a.shape for i, a in tensors}
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info('x%d' % i, kind(a), shapes[i]) for i, a in tensors if i not in const],
                              [helper.make_tensor_value_info(y, t, None) for y, t in given], constants)
    model = helper.make_model(graph, opset_imports=DOMAINS, ir_version=10)
    if reference is None:
        values = run(model, {'x%d' % i: a for i, a in tensors if i not in const})
    else:
        values = reference
    path = os.path.join(folder, 'cases', '%s_%d' % (name, number))
    os.makedirs(os.path.join(path, 'test_data_set_0'))
    onnx.save(model, os.path.join(path, 'model.onnx'))
    with open(os.path.join(path, 'data.json'), 'w') as file:
        json.dump({'rtol': rtol, 'atol': atol}, file)
    for n, (i, a) in enumerate([t for t in tensors if t[0] not in const]):
        write_tensor(a, os.path.join(path, 'test_data_set_0/input_%d.pb' % n))
    for n, value in enumerate(values):
        write_tensor(value, os.path.join(path, 'test_data_set_0/output_%d.pb' % n))


FLOAT, HALF, I8, U8, I32, I64 = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32,
                                 TensorProto.INT64)


def erf(x):
    return np.vectorize(__import__('math').erf)(x.astype(np.float64))


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def products():
    case('FusedMatMul', 'FusedMatMul', [f32(5, 7), f32(7, 3)])
    case('FusedMatMul', 'FusedMatMul', [f32(7, 5), f32(3, 7)], transA=1, transB=1, alpha=0.25)
    case('FusedMatMul', 'FusedMatMul', [f32(2, 3, 5, 7), f32(3, 11, 7)], transB=1, alpha=0.125, free={0: ('b', 3, 'n', 7)})
    case('FusedMatMul', 'FusedMatMul', [f32(5, 2, 7), f32(2, 7, 3)], transBatchA=1, alpha=2.0)
    case('FusedMatMul', 'FusedMatMul', [f32(5, 2, 3, 7), f32(7, 2, 3, 4)], transBatchA=1, transBatchB=1)
    case('FusedMatMul', 'FusedMatMul', [f32(7, 2, 5), f32(3, 2, 7)], transBatchA=1, transA=1, transBatchB=1, transB=1)
    case('FusedMatMul', 'FusedMatMul', [f32(7), f32(7, 3)], alpha=3.0, transA=1)
    case('TransposeMatMul', 'TransposeMatMul', [f32(2, 7, 5), f32(2, 7, 3)], transA=1, alpha=0.5)
    for activation, more in (('Relu', {}), ('Tanh', {}), ('Sigmoid', {}), ('LeakyRelu', {'activation_alpha': 0.2}),
                             ('Elu', {'activation_alpha': 0.7}), ('HardSigmoid', {'activation_alpha': 0.3, 'activation_beta': 0.4}),
                             ('ThresholdedRelu', {'activation_alpha': 0.5}), ('Softplus', {'activation_alpha': 1.0}), ('Softsign', {})):
        case('FusedGemm', 'FusedGemm', [f32(5, 7), f32(3, 7), f32(3)], transB=1, alpha=0.5, beta=0.3, activation=activation, **more)
    case('FusedGemm', 'FusedGemm', [f32(7, 5), f32(7, 3)], transA=1, activation='Relu')
    for activation, params in (('Relu', None), ('LeakyRelu', [0.1]), ('Clip', [-0.5, 0.75]), ('HardSigmoid', [0.3, 0.4]), ('Tanh', None),
                               ('Sigmoid', None)):
        more = {} if params is None else {'activation_params': params}
        case('FusedConv', 'FusedConv', [f32(2, 4, 7, 9), f32(6, 2, 3, 3), f32(6)], group=2, pads=[1, 0, 1, 2], strides=[2, 1],
             activation=activation, kernel_shape=[3, 3], **more)
    case('FusedConv', 'FusedConv', [f32(1, 3, 5, 6), f32(4, 3, 1, 1), f32(4), f32(1, 4, 5, 6)], activation='Relu')
    case('FusedConv', 'FusedConv', [f32(1, 3, 5, 6), f32(4, 3, 3, 3)], auto_pad='SAME_UPPER', activation='Relu')


def activations():
    case('Gelu', 'Gelu', [f32(5, 7)], free={0: ('n', 7)})
    case('FastGelu', 'FastGelu', [f32(5, 7)], rtol=2e-3)
    case('FastGelu', 'FastGelu', [f32(2, 5, 7), f32(7)], rtol=2e-3)
    case('FastGelu', 'FastGelu', [f16(2, 5, 7), f16(7)], (HALF,), rtol=5e-3)
    case('BiasGelu', 'BiasGelu', [f32(2, 5, 7), f32(7)], free={0: ('b', 'n', 7)})
    case('QuickGelu', 'QuickGelu', [f32(5, 7)])
    case('QuickGelu', 'QuickGelu', [f32(5, 7)], alpha=1.3)
    x, b, s = f32(2, 5, 8), f32(8), f32(2, 5, 8)
    case('BiasAdd', 'BiasAdd', [x, b, s], reference=[x + b + s])
    case('BiasSplitGelu', 'BiasSplitGelu', [x, b], reference=[((x + b)[..., :4] * gelu((x + b)[..., 4:])).astype(np.float32)])


def norms():
    x, skip, scale, bias, more = f32(2, 5, 16), f32(2, 5, 16), f32(16), f32(16), f32(16)
    case('SkipLayerNormalization', 'SkipLayerNormalization', [x, skip, scale, bias, more], (FLOAT, None, None, FLOAT), epsilon=1e-5)
    case('SkipLayerNormalization', 'SkipLayerNormalization', [x, skip, scale], free={0: ('b', 'n', 16), 1: ('b', 'n', 16)})
    case('SkipLayerNormalization', 'SkipLayerNormalization', [x, f32(1, 5, 16), scale, bias])
    case('SkipLayerNormalization', 'SkipLayerNormalization', [x, f32(5, 16), scale, bias, more])
    h = [a.astype(np.float16) for a in (x, skip, scale, bias, more)]
    case('SkipLayerNormalization', 'SkipLayerNormalization', h, (HALF, None, None, HALF), epsilon=1e-5, rtol=4e-3)
    case('SkipSimplifiedLayerNormalization', 'SkipSimplifiedLayerNormalization', [x, skip, scale, more], (FLOAT, None, None, FLOAT), epsilon=1e-6)
    case('SkipSimplifiedLayerNormalization', 'SkipSimplifiedLayerNormalization', [x, skip, scale])
    case('SkipSimplifiedLayerNormalization', 'SkipSimplifiedLayerNormalization', h[:3], (HALF, None, None, HALF), rtol=4e-3)
    case('SkipSimplifiedLayerNormalization', 'SkipSimplifiedLayerNormalization', [f32(6, 16), f32(6, 16), scale])
    case('SimplifiedLayerNormalization', 'SimplifiedLayerNormalization', [x, scale], domain='', epsilon=1e-6, stash_type=1)
    case('SimplifiedLayerNormalization', 'SimplifiedLayerNormalization', [x, scale], (FLOAT, FLOAT), domain='', axis=-1)
    case('SimplifiedLayerNormalization', 'SimplifiedLayerNormalization', [x, f32(5, 16)], domain='', axis=1)
    case('SimplifiedLayerNormalization', 'SimplifiedLayerNormalization', h[:1] + [h[2]], (HALF,), domain='', rtol=4e-3)
    case('GatedRMSNorm', 'GatedRMSNorm', [x, scale, skip])
    case('GatedRMSNorm', 'GatedRMSNorm', [x, f32(4), skip], free={0: ('b', 'n', 16), 2: ('b', 'n', 16)}, activation='sigmoid', epsilon=1e-3)
    case('GatedRMSNorm', 'GatedRMSNorm', [x[0], f32(8), skip[0]], free={0: ('n', 'c'), 2: ('n', 'c')}, activation='swish')
    case('GatedRMSNorm', 'GatedRMSNorm', [h[0], h[2], h[1]], (HALF,), activation='silu', rtol=4e-3)
    ids, segments = ints(0, 11, (2, 5)), ints(0, 2, (2, 5))
    tables = [f32(11, 16), f32(8, 16), f32(2, 16)]
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    case('EmbedLayerNormalization', 'EmbedLayerNormalization', [ids, segments] + tables + [scale, bias, mask], (FLOAT, I32), epsilon=1e-5)
    case('EmbedLayerNormalization', 'EmbedLayerNormalization', [ids, None] + tables[:2] + [None, scale, bias], (FLOAT, I32))
    case('EmbedLayerNormalization', 'EmbedLayerNormalization', [ids, segments] + tables + [scale, bias, None, ints(0, 8, (2, 5))],
         (FLOAT, I32, FLOAT))
    small = [ints(0, 256, a.shape, np.uint8) for a in tables + [scale, bias]]
    scales, zeros = [np.array(0.01 * (i + 1), np.float32) for i in range(5)], [np.array(100 + i, np.uint8) for i in range(5)]
    case('QEmbedLayerNormalization', 'QEmbedLayerNormalization', [ids, segments] + small + [mask] + scales + zeros, (FLOAT, I32), epsilon=1e-5,
         const=range(2, 7))
    small[2] = scales[2] = zeros[2] = None
    case('QEmbedLayerNormalization', 'QEmbedLayerNormalization', [ids, None] + small + [None] + scales + zeros, (FLOAT, I32))
    x, skip = f32(2, 3, 5, 8), f32(2, 3, 5, 8)
    scale, bias, more = f32(8), f32(8), f32(8)

    def group(x, groups, epsilon=1e-5):
        y = x.astype(np.float64).reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
        mean, variance = y.mean((1, 3), keepdims=True), y.var((1, 3), keepdims=True)
        return ((y - mean) / np.sqrt(variance + epsilon)).reshape(x.shape) * scale + bias

    y = group(x, 4)
    case('GroupNorm', 'GroupNorm', [x, scale, bias], reference=[y.astype(np.float32)], groups=4, activation=0)
    case('GroupNorm', 'GroupNorm', [x, scale, bias], reference=[(y * sigmoid(y)).astype(np.float32)], groups=4, activation=1)
    case('GroupNorm', 'GroupNorm', [x.transpose(0, 3, 1, 2), scale, bias], reference=[y.transpose(0, 3, 1, 2).astype(np.float32)], groups=4,
         activation=0, channels_last=0)
    y = group(x.astype(np.float16), 2)
    case('GroupNorm', 'GroupNorm', [x.astype(np.float16), scale, bias], (HALF,), reference=[y.astype(np.float16)], groups=2, activation=0, rtol=4e-3)
    s = x + skip + more
    case('SkipGroupNorm', 'SkipGroupNorm', [x, scale, bias, skip, more], (FLOAT, FLOAT), reference=[group(s, 2, 1e-3).astype(np.float32), s],
         groups=2, activation=0, epsilon=1e-3)
    by = f32(2, 8)
    s = x + by[:, None, None, :]
    case('SkipGroupNorm', 'SkipGroupNorm', [x, scale, bias, by], (FLOAT, FLOAT), reference=[group(s, 2).astype(np.float32), s], groups=2,
         activation=0)


def attention():
    x, w, b = f32(2, 5, 12), f32(12, 48) * 0.3, f32(48)
    shape = {0: ('b', 'n', 12)}
    case('Attention', 'Attention', [x, w, b], num_heads=4, free=shape)
    case('Attention', 'Attention', [x, w, b], num_heads=2, unidirectional=1, scale=0.3)
    case('Attention', 'Attention', [x, w], num_heads=2)
    lengths, mask = np.array([3, 5], np.int32), np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], np.int32)
    case('Attention', 'Attention', [x, w, b, lengths], num_heads=4)
    case('Attention', 'Attention', [x, w, b, np.array([5, 4, 1, 2], np.int32)], num_heads=4)
    case('Attention', 'Attention', [x, w, b, mask], num_heads=4, free={0: ('b', 'n', 12), 3: ('b', 'n')})
    case('Attention', 'Attention', [x, w, b, mask], num_heads=4, mask_filter_value=-3.0)
    case('Attention', 'Attention', [x, w, b, mask], num_heads=4, unidirectional=1)
    case('Attention', 'Attention', [x, w, b, ints(0, 2, (2, 5, 5))], num_heads=4)
    past = f32(2, 2, 4, 3, 4)
    case('Attention', 'Attention', [x, w, b, None, past], (FLOAT, FLOAT), num_heads=4, unidirectional=1,
         free={0: ('b', 'n', 12), 4: (2, 'b', 4, 'p', 4)})
    case('Attention', 'Attention', [x, w, b, ints(0, 2, (2, 8)), past], (FLOAT, FLOAT), num_heads=4)
    case('Attention', 'Attention', [x, w, b, None, None, f32(2, 4, 5, 5)], num_heads=4)
    case('Attention', 'Attention', [x, w, b, mask, None, f32(1, 4, 5, 5)], num_heads=4, unidirectional=1)
    case('Attention', 'Attention', [x, f32(12, 40) * 0.3, f32(40)], num_heads=4, qkv_hidden_sizes=[12, 12, 16])

    xq, wq = ints(0, 256, (2, 5, 12), np.uint8), ints(-128, 128, (12, 48), np.int8)
    head = [xq, wq, b, np.array(0.01, np.float32), np.array(0.02, np.float32)]
    case('QAttention', 'QAttention', head + [mask, np.array(120, np.uint8), np.array(3, np.int8)], num_heads=4)
    case('QAttention', 'QAttention', head + [None, np.array(120, np.uint8), None, past], (FLOAT, FLOAT), num_heads=4, unidirectional=1)
    head[4] = random.uniform(0.01, 0.02, 48).astype(np.float32)
    case('QAttention', 'QAttention', head + [lengths, np.array(120, np.uint8), np.zeros(48, np.int8)], num_heads=4, const=(1, 4, 6, 7))

    q, k, v, b = f32(2, 5, 16), f32(2, 7, 16), f32(2, 7, 24), f32(56)
    op = 'MultiHeadAttention'
    case(op, op, [q, k, v], num_heads=4, free={0: ('b', 'n', 16), 1: ('b', 'm', 16), 2: ('b', 'm', 24)})
    case(op, op, [q, k, v, b], num_heads=2, scale=0.4)
    case(op, op, [q, k, v, None, np.array([3, 7], np.int32)], num_heads=4)
    case(op, op, [q, k, v, None, ints(0, 2, (2, 7))], num_heads=4)
    case(op, op, [q, k, v, None, ints(0, 2, (2, 5, 7)), f32(1, 4, 5, 7)], num_heads=4, mask_filter_value=-2.0)
    case(op, op, [q, k, v, None, None, f32(2, 1, 5, 7)], num_heads=4)
    case(op, op, [q, f32(2, 5, 16), f32(2, 5, 24), None, None, f32(2, 1, 5, 5)], num_heads=4, unidirectional=1)
    packed = f32(2, 5, 4, 3, 6)
    case(op, op, [packed], num_heads=4, reference=ort(op, [packed[..., i, :].reshape(2, 5, 24) for i in range(3)], num_heads=4))
    packed = f32(2, 7, 4, 2, 4)
    case(op, op, [q, packed], num_heads=4, reference=ort(op, [q] + [packed[..., i, :].reshape(2, 7, 16) for i in range(2)], num_heads=4))
    case(op, op, [q, f32(2, 4, 7, 4), f32(2, 4, 7, 4)], num_heads=4)
    case(op, op, [q, f32(2, 4, 7, 4), f32(2, 4, 7, 4), f32(48)], num_heads=4)
    k, v, pk, pv = f32(2, 5, 16), f32(2, 5, 16), f32(2, 4, 3, 4), f32(2, 4, 3, 4)
    case(op, op, [q, k, v, None, None, None, pk, pv], (FLOAT, FLOAT, FLOAT), num_heads=4,
         free={0: ('b', 'n', 16), 1: ('b', 'n', 16), 2: ('b', 'n', 16), 6: ('b', 4, 'p', 4), 7: ('b', 4, 'p', 4)})
    case(op, op, [q, k, v, f32(48), ints(0, 2, (2, 8)), f32(1, 4, 5, 8), pk, pv], (FLOAT, FLOAT, FLOAT), num_heads=4, unidirectional=1)
    case(op, op, [q, k, v, None, None, None, pk, pv], (FLOAT, FLOAT, FLOAT, FLOAT), num_heads=4, unidirectional=1)
    case(op, op, [q, k, v], (FLOAT, None, None, FLOAT), num_heads=4)
    case(op, op, [q, k, v, None, ints(0, 2, (2, 5))], (FLOAT, None, None, FLOAT), num_heads=4)

    op = 'DecoderMaskedMultiHeadAttention'
    q, k, v, pk, pv = f32(2, 1, 16), f32(2, 1, 16), f32(2, 1, 16), f32(2, 4, 6, 4), f32(2, 4, 6, 4)
    three, mask, bias = (FLOAT, FLOAT, FLOAT), ints(0, 2, (2, 7)), f32(1, 4, 1, 7)
    case(op, op, [q, k, v, None, None, pk, pv], three, num_heads=4,
         reference=ort('MultiHeadAttention', [q, k, v, None, None, None, pk, pv], three, num_heads=4))
    case(op, op, [q, k, v, mask, bias, pk, pv], three, num_heads=4,
         reference=ort('MultiHeadAttention', [q, k, v, None, mask, bias, pk, pv], three, num_heads=4))
    case(op, op, [q, f32(2, 4, 7, 4), f32(2, 4, 7, 4)], num_heads=4)
    keep = {'y1': ([0, 0, 0, 0], [2, 4, 4, 4]), 'y2': ([0, 0, 0, 0], [2, 4, 4, 4])}
    past = [np.array([3], np.int32), None, None, f32(48)]
    case(op, op, [q, k, v, None, None, pk, pv] + past, (FLOAT, FLOAT, FLOAT), num_heads=4, past_present_share_buffer=1, keep=keep)
    case(op, op, [q, k, v, ints(0, 2, (2, 4)), None, pk, pv] + past[:1], (FLOAT, FLOAT, FLOAT), num_heads=4, past_present_share_buffer=1,
         keep=keep, const=(7,))


def group_query():
    op = 'GroupQueryAttention'
    outputs = (FLOAT, FLOAT, FLOAT)
    heads = {'num_heads': 4, 'kv_num_heads': 2}

    def packed(b, n, size, maker=f32):
        return [maker(b, n, 4 * size), maker(b, n, 2 * size), maker(b, n, 2 * size)]

    def prompt(b, n):
        return [None, None, np.full(b, n - 1, np.int32), np.array(n, np.int32)]

    def step(b, past, n, size=16, maker=f32):
        return [maker(b, 2, past, size), maker(b, 2, past, size), np.full(b, past + n - 1, np.int32), np.array(past + n, np.int32)]

    angle = random.uniform(-3, 3, (32, 8)).astype(np.float32)
    tables = [np.cos(angle), np.sin(angle)]
    symbols = {0: ('b', 5, 64), 1: ('b', 5, 32), 2: ('b', 5, 32)}
    case(op, op, packed(2, 5, 16) + prompt(2, 5), outputs, const=(6,), free=symbols, **heads)
    case(op, op, packed(1, 5, 16) + prompt(1, 5), outputs, const=(6,), scale=0.2, softcap=2.0, **heads)
    case(op, op, packed(1, 7, 16) + prompt(1, 7), outputs, const=(6,), local_window_size=3, **heads)
    case(op, op, packed(1, 7, 16) + prompt(1, 7), outputs, const=(6,), smooth_softmax=1, **heads)
    case(op, op, packed(1, 7, 16) + prompt(1, 7) + [None] * 4 + [f32(4)], outputs, const=(6,), **heads)
    case(op, op, [f32(2, 5, 128), None, None] + prompt(2, 5), outputs, const=(6,), **heads)
    case(op, op, packed(2, 5, 16) + prompt(2, 5) + tables, outputs, const=(6, 7, 16), do_rotary=1, **heads)
    case(op, op, packed(2, 5, 16) + prompt(2, 5) + tables, outputs, const=(6,), do_rotary=1, rotary_interleaved=1, **heads)
    case(op, op, packed(1, 5, 32) + prompt(1, 5) + tables, outputs, const=(6,), do_rotary=1, **heads)
    case(op, op, packed(1, 1, 16) + step(1, 6, 1), outputs, const=(6,), **heads)
    case(op, op, packed(1, 1, 16) + step(1, 6, 1) + tables, outputs, const=(6,), do_rotary=1, **heads)
    case(op, op, packed(2, 1, 16) + step(2, 6, 1) + tables, outputs, const=(6,), do_rotary=1, local_window_size=4, **heads)
    case(op, op, packed(1, 3, 16) + step(1, 6, 3) + tables, outputs, const=(6,), do_rotary=1, softcap=1.5, **heads)
    case(op, op, packed(2, 1, 16) + step(2, 6, 1) + tables + [np.array([[6], [6]])], outputs, const=(6,), do_rotary=1, **heads)
    case(op, op, packed(2, 1, 16) + step(2, 6, 1) + [None, None, None, f32(1, 4, 1, 7)], outputs, const=(6,), **heads)
    # a buffer with more room than is used, and batch elements of different length
    more = [f32(2, 2, 12, 16), f32(2, 2, 12, 16), np.array([6, 4], np.int32), np.array(7, np.int32)]
    keep = {'y1': ([0, 0, 0, 0], [2, 2, 5, 16]), 'y2': ([0, 0, 0, 0], [2, 2, 5, 16])}
    case(op, op, packed(2, 1, 16) + more + tables, outputs, const=(6,), do_rotary=1, keep=keep, **heads)
    # a prompt with padding: its rows count to its length
    ragged = [None, None, np.array([2, 3], np.int32), np.array(4, np.int32)]
    keep = {'y0': ([0, 0, 0], [2, 3, 64]), 'y1': ([0, 0, 0, 0], [2, 2, 3, 16]), 'y2': ([0, 0, 0, 0], [2, 2, 3, 16])}
    case(op, op, packed(2, 4, 16) + ragged + tables, outputs, const=(6,), do_rotary=1, keep=keep, **heads)
    q, k, v = packed(1, 5, 16)
    norm = [f32(16), f32(16)]

    def normed(x, scale):
        y = x.reshape(1, 5, -1, 16)
        return (y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-6) * scale).reshape(x.shape).astype(np.float32)

    case(op, op, [q, k, v] + prompt(1, 5) + [None] * 7 + norm, outputs, const=(6,), **heads,
         reference=ort(op, [normed(q, norm[0]), normed(k, norm[1]), v] + prompt(1, 5), outputs, **heads))
    case(op, op, packed(1, 5, 16) + prompt(1, 5), outputs, const=(6,), causal=0, **heads)
    # lengths as exporters compute them, from a mask
    for past, n, lengths in ((0, 5, [5, 5]), (6, 1, [7, 7]), (6, 1, [7, 5])):
        mask = (np.arange(past + n)[None] < np.array(lengths)[:, None]).astype(np.int64)
        nodes = [helper.make_node('ReduceSum', ['x9', 'axis'], ['sum'], keepdims=0), helper.make_node('Sub', ['sum', 'one'], ['less']),
                 helper.make_node('Cast', ['less'], ['lengths'], to=I32), helper.make_node('Shape', ['x9'], ['shape']),
                 helper.make_node('Gather', ['shape', 'one'], ['length']), helper.make_node('Cast', ['length'], ['total'], to=I32),
                 helper.make_node('Constant', [], ['one'], value=numpy_helper.from_array(np.array(1))),
                 helper.make_node('Constant', [], ['axis'], value=numpy_helper.from_array(np.array([1])))]
        cache = [f32(2, 2, past, 16), f32(2, 2, past, 16)]
        keep = {y: ([0, 0, 0, 0], [2, 2, min(lengths), 16]) for y in ('y1', 'y2')}
        case(op, op, packed(2, n, 16) + cache + [None, None] + tables + [mask], outputs, do_rotary=1, keep=keep, **heads,
             before=(nodes, {5: 'lengths', 6: 'total'}, 9),
             free={0: ('b', 'n', 64), 1: ('b', 'n', 32), 2: ('b', 'n', 32), 3: ('b', 2, 'p', 16), 4: ('b', 2, 'p', 16), 9: ('b', 't')})
    half = (HALF, HALF, HALF)
    tables = [t.astype(np.float16) for t in tables]
    case(op, op, packed(1, 5, 16, f16) + prompt(1, 5) + tables, half, const=(6,), do_rotary=1, rtol=5e-3, **heads)
    case(op, op, packed(1, 1, 16, f16) + step(1, 6, 1, maker=f16) + tables, half, const=(6,), do_rotary=1, rtol=5e-3, **heads)


def buckets_of(n, buckets, most, both):
    """T5's buckets of the distances of n positions."""
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    first = 0
    if both:
        buckets //= 2
        first, distance = np.where(distance < 0, buckets, 0), np.abs(distance)
    distance = np.maximum(distance, 0)
    exact = buckets // 2
    steps = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact)) / np.log(np.float32(most) / np.float32(exact))
    far = exact + (steps * np.float32(buckets - exact)).astype(np.int64)
    return first + np.where(distance < exact, distance, np.minimum(far, buckets - 1))


def positions():
    angle = random.uniform(-3, 3, (16, 4)).astype(np.float32)
    cos, sin = np.cos(angle), np.sin(angle)
    op, ids = 'RotaryEmbedding', ints(0, 16, (2, 5), np.int64)
    case(op, op, [f32(2, 5, 24), ids, cos, sin], free={0: ('b', 'n', 24), 1: ('b', 'n')})
    case(op, op, [f32(2, 3, 5, 8), ids, cos, sin], interleaved=1)
    case(op, op, [f32(2, 5, 24), np.array([4]), cos, sin], interleaved=1)
    case(op, op, [f32(2, 5, 30), ids, cos, sin], num_heads=3, rotary_embedding_dim=8)
    case(op, op, [f16(2, 5, 24), ids, cos.astype(np.float16), sin.astype(np.float16)], (HALF,), rtol=3e-3)
    op = 'RelativePositionBias'
    for buckets, most, both, n in ((32, 128, 1, 300), (32, 128, 0, 300), (8, 20, 1, 61), (10, 37, 0, 61)):
        table = f32(buckets, 3)
        case(op, op, [table, np.array(n), np.array(n)], const=(1, 2), max_distance=most, is_bidirectional=both,
             reference=[table[buckets_of(n, buckets, most, both)].transpose(2, 0, 1)[None]])
    op, (b, n, heads, size, d) = 'GatedRelativePositionBias', (2, 5, 3, 4, 8)
    x, xb, rel, w, wb, eco = f32(b, n, heads * size), f32(heads * size), f32(1, heads, n, n), f32(size, d), f32(d), f32(1, heads, 1, 1)
    q = (x + xb).reshape(b, n, heads, size).transpose(0, 2, 1, 3)
    gates = sigmoid((q @ w + wb).reshape(b, heads, n, 2, d // 2).sum(-1))
    y = (gates[..., :1] * (gates[..., 1:] * eco - 1) + 2) * rel
    case(op, op, [x, xb, rel, w, wb, eco], reference=[y.astype(np.float32)], num_heads=heads)


def weights():
    op = 'MatMulNBits'
    for bits, k, n, block, zero, bias, const in ((4, 32, 5, 16, None, False, True), (4, 64, 7, 32, 'packed', False, True),
                                                 (4, 48, 7, 16, 'packed', True, True), (4, 40, 3, 16, 'packed', False, True),
                                                 (4, 48, 5, 16, 'float', False, True), (8, 48, 7, 16, None, False, True),
                                                 (8, 64, 7, 32, 'packed', True, True), (4, 48, 7, 16, 'packed', False, False),
                                                 (4, 512, 300, 32, 'packed', False, True), (4, 512, 300, 128, None, False, True),
                                                 (2, 48, 5, 16, None, False, True), (2, 40, 7, 32, 'packed', True, True),
                                                 (2, 64, 7, 16, 'packed', False, False)):
        count = -(-k // block)
        w = ints(0, 256, (n, count, block * bits // 8), np.uint8)
        scales = (random.uniform(0.01, 0.05, (n, count))).astype(np.float32)
        zeros = None if not zero else scales * 0 + random.uniform(5, 9, (n, count)).astype(np.float32) if zero == 'float' else \
            ints(0, 256, (n, -(-count * bits // 8)), np.uint8)
        inputs = [f32(2, 3, k), w, scales, zeros, None, f32(n) if bias else None]
        places = tuple(i for i in (1, 2, 3, 5) if inputs[i] is not None) if const else ()
        case(op, op, inputs, const=places, bits=bits, block_size=block, K=k, N=n, free={0: ('b', 'n', k)})
    w, scales = ints(0, 256, (5, 2, 8), np.uint8), random.uniform(0.01, 0.05, (5, 2)).astype(np.float16)
    case(op, op, [f16(3, 32), w, scales], (HALF,), const=(1, 2), bits=4, block_size=16, K=32, N=5, rtol=5e-3)

    def nibbles(bytes, columns):
        return np.stack([bytes & 15, bytes >> 4], -1).reshape(columns, -1).astype(np.float32)

    for zeros in None, ints(0, 256, (5, 2), np.uint8):  # which ONNX Runtime ignores if rows are in another order
        x, w, groups = f32(3, 64), ints(0, 256, (5, 4, 8), np.uint8), random.permutation(np.arange(64, dtype=np.int32) // 16)
        scales = random.uniform(0.01, 0.05, (5, 4)).astype(np.float32)
        shift = nibbles(zeros, 5)[:, groups] if zeros is not None else 8
        case(op, op, [x, w, scales, zeros, groups], const=(1, 2, 3, 4) if zeros is not None else (1, 2, 4), bits=4, block_size=16, K=64, N=5,
             reference=[x @ ((nibbles(w, 5) - shift) * scales[:, groups]).T] if zeros is not None else None)

    op = 'MatMulBnb4'
    for kind4, k, n, block in (0, 32, 5, 16), (1, 48, 7, 32), (1, 24, 5, 16):
        inputs = [f32(2, 3, k), ints(0, 256, (n * k + 1) // 2, np.uint8), random.uniform(0.5, 2, -(-n * k // block)).astype(np.float32)]
        case(op, op, inputs, const=(1, 2), K=k, N=n, block_size=block, quant_type=kind4)
    op = 'DynamicQuantizeLSTM'
    for directions, dtype in (1, np.uint8), (2, np.int8):
        bounds = (0, 256) if dtype == np.uint8 else (-128, 128)
        w, r = ints(*bounds, (directions, 6, 20), dtype), ints(*bounds, (directions, 5, 20), dtype)
        for columns in (), (20,):
            scale = [random.uniform(0.002, 0.004, (directions,) + columns).astype(np.float32) for _ in range(2)]
            zero = [np.full((directions,) + columns, 128 if dtype == np.uint8 else 0, dtype) for _ in range(2)]
            case(op, op, [f32(4, 2, 6), w, r, f32(directions, 40), None, f32(directions, 2, 5), f32(directions, 2, 5), None, scale[0], zero[0],
                          scale[1], zero[1]], (FLOAT, FLOAT, FLOAT), const=(1, 2, 3, 8, 9, 10, 11), atol=0.02, hidden_size=5,
                 direction=('forward', 'bidirectional')[directions - 1])
    op = 'GatherBlockQuantized'
    ids = ints(0, 9, (2, 3), np.int64)
    case(op, op, [ints(0, 256, (9, 16), np.uint8), ids, f32(9, 2)], const=(0, 2), bits=4, block_size=16)
    case(op, op, [ints(0, 256, (9, 24), np.uint8), ids, f32(9, 3), ints(0, 256, (9, 2), np.uint8)], const=(0, 2, 3), bits=4, block_size=16)
    case(op, op, [ints(0, 256, (9, 32), np.uint8), ids - 9, f32(9, 2), ints(0, 256, (9, 2), np.uint8)], const=(0, 2, 3), bits=8, block_size=16)
    case(op, op, [ints(0, 256, (9, 32), np.uint8), ids, f32(9, 2)], const=(0, 2), bits=8, block_size=16)
    from ml_dtypes import int4, uint4
    data, zero = ints(0, 16, (9, 32)).astype(uint4), ints(0, 16, (9, 2)).astype(uint4)
    case(op, op, [data, ids, f32(9, 2), zero], const=(0, 2, 3), block_size=16)
    case(op, op, [ints(-8, 8, (33, 5)).astype(int4), ints(0, 33, (4,), np.int32), f32(3, 5)], const=(0, 2), block_size=16, quantize_axis=0)
    case(op, op, [ints(-8, 8, (3, 33, 5)).astype(int4), ints(0, 3, (2, 2), np.int32), f32(3, 3, 5)], const=(0, 2), block_size=16, quantize_axis=1)


def integers():
    def number(value, dtype=np.float32):
        return np.array(value, dtype)

    for dtype, low, high in ((np.uint8, 0, 256), (np.int8, -128, 128)):
        a, b = ints(low, high, (2, 5, 33), dtype), ints(low, high, (33, 7), dtype)
        scales, zeros = random.uniform(0.01, 0.02, 7).astype(np.float32), ints(low, high, 7, dtype)
        one = number(3, dtype)
        op = 'MatMulIntegerToFloat'
        case(op, op, [a, b, number(0.02), number(0.03)])
        case(op, op, [a, b, number(0.02), scales, one, zeros, f32(7)])
        case(op, op, [a, b, number(0.02), number(0.01), one, number(5, dtype)])
        op = 'DynamicQuantizeMatMul'
        case(op, op, [f32(2, 5, 33), b, number(0.03)], const=(1,), free={0: ('b', 'n', 33)})
        case(op, op, [f32(2, 5, 33), b, scales, zeros, f32(7)], const=(1, 2, 3))
        kind8 = U8 if dtype == np.uint8 else I8
        op, a2 = 'QGemm', ints(low, high, (5, 33), dtype)
        case(op, op, [a2, number(0.02), one, b, number(0.03), number(4, dtype)])
        case(op, op, [a2.T.copy(), number(0.02), one, b.T.copy(), scales, zeros, ints(-999, 999, 7)], transA=1, transB=1, alpha=0.5)
        case(op, op, [a2, number(0.02), one, b, scales, zeros, ints(-999, 999, (5, 7)), number(0.7), number(9, dtype)], (kind8,),
             steps=(0.7, 9))
        x, y, s = ints(low, high, (2, 3, 5), dtype), ints(low, high, (3, 1), dtype), (0.04, 7)
        result = [number(s[0]), number(s[1], dtype)]
        for op in ('QLinearAdd', 'QLinearMul'):
            case(op, op, [x, number(0.02), one, y, number(0.03), number(5, dtype)] + result, (kind8,), steps=s)
        exact = np.clip(np.round((x * np.float32(0.02) + y * np.float32(0.03)) / np.float32(0.03)), low, high - 1) * np.float32(0.03)
        case('QLinearAdd', 'QLinearAdd', [x, number(0.02), None, y, number(0.03), None, number(0.03)], (kind8,), steps=(0.03, 0),
             reference=[exact.astype(np.float32)])
        mapped = [x, number(0.02), one]
        for op, more, scale in (('QLinearSigmoid', {}, (0.004, 1)), ('QLinearLeakyRelu', {'alpha': 0.2}, (0.02, 3)),
                                ('QLinearSoftmax', {'opset': 13, 'axis': -1}, (0.004, 0)),
                                ('QLinearSoftmax', {'opset': 12, 'axis': 1}, (0.004, 0)),
                                ('QLinearSoftmax', {'opset': 13, 'axis': 1}, (0.004, 0))):
            case(op, op, mapped + [number(scale[0]), number(scale[1], dtype)], (kind8,), const=(1, 2, 3, 4), steps=scale, **more)
        op = 'QLinearReduceMean'
        for axes, keepdims in ((0, 2), 0), ((-1,), 1):
            mean = np.clip(np.round((x.astype(np.float32) - 3).mean(axes, keepdims=bool(keepdims)) * 2) + 2, low, high - 1)
            case(op, op, mapped + [number(0.01), number(2, dtype)], (kind8,), const=(1, 2, 3, 4), steps=(0.01, 2), axes=list(axes),
                 keepdims=keepdims, reference=[((mean - 2) * 0.01).astype(np.float32)])
        op = 'QLinearConcat'
        case(op, op, [number(0.03), number(4, dtype), x, number(0.02), one, ints(low, high, (2, 4, 5), dtype), number(0.03), number(4, dtype)],
             (kind8,), const=(0, 1, 3, 4, 6, 7), steps=(0.03, 4), axis=1)
        op = 'QLinearWhere'
        case(op, op, [random.integers(0, 2, (2, 3, 5)).astype(bool), x, number(0.02), one, y, number(0.03), number(5, dtype), number(0.03),
                      number(4, dtype)], (kind8,), steps=(0.03, 4))
        image, s = ints(low, high, (2, 3, 7, 9), dtype), (0.03, 5)
        params = [number(0.02), one, number(s[0]), number(s[1], dtype)]
        op = 'QLinearAveragePool'
        case(op, op, [image] + params, (kind8,), steps=s, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
        case(op, op, [image] + params, (kind8,), steps=s, kernel_shape=[3, 2], count_include_pad=1, pads=[1, 0, 1, 1])
        last = image.transpose(0, 2, 3, 1).copy()
        case(op, op, [last] + params, (kind8,), steps=s, kernel_shape=[3, 2], channels_last=1, strides=[2, 2], ceil_mode=1)
        op = 'QLinearGlobalAveragePool'
        case(op, op, [image] + params, (kind8,), steps=s)
        case(op, op, [last] + params, (kind8,), steps=s, channels_last=1)
        case('NhwcMaxPool', 'NhwcMaxPool', [last], (kind8,), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
        op, w = 'QLinearConv', ints(-128, 128, (4, 3, 3, 3), np.int8)
        ws, bias = random.uniform(0.001, 0.002, 4).astype(np.float32), ints(-999, 999, 4)
        tail = [w, ws, np.zeros(4, np.int8), number(0.2), number(9, dtype), bias]
        case(op, op, [image, number(0.02), one] + tail, (kind8,), const=range(1, 9), steps=(0.2, 9), pads=[1, 1, 1, 1])
        case(op, op, [last, number(0.02), one] + tail, (kind8,), const=range(1, 9), steps=(0.2, 9), strides=[2, 1], channels_last=1)
        case('QuantizeLinear', 'QuantizeLinear', [f32(5, 7), number(0.02), one], (kind8,), steps=(0.02, 3))
        case('DequantizeLinear', 'DequantizeLinear', [a2, number(0.02), one])
        case('DequantizeLinear', 'DequantizeLinear', [b, scales, zeros], axis=1)
    case('QuantizeLinear', 'QuantizeLinear', [f32(5, 7), np.array(0.001, np.float32), np.array(300, np.uint16)], (TensorProto.UINT16,))
    case('QuantizeLinear', 'QuantizeLinear', [f32(5, 7), np.full(5, 0.02, np.float32), np.full(5, 9, np.uint8)], (U8,), steps=(0.02, 9), axis=0)
    case('DequantizeLinear', 'DequantizeLinear', [ints(-30000, 30000, (5, 7), np.int16), np.array(0.001, np.float32), np.array(30, np.int16)])


def moves():
    x = f32(2, 3, 5)
    case('Pad', 'Pad', [x, np.array([0, 1, 2, 1, 0, 3]), np.array([0.5], np.float32)], const=(1, 2))
    case('Pad', 'Pad', [x, np.array([[0, 1, 2, 1, 0, 3]])], const=(1,), mode='edge')
    case('Pad', 'Pad', [x, np.array([0, 1, 2, 0, 0, 3])], const=(1,), mode='reflect')
    image, grid = f32(1, 2, 5, 6), random.uniform(-1.2, 1.2, (1, 3, 4, 2)).astype(np.float32)
    for mode in 'bilinear', 'nearest', 'bicubic':
        more = {'mode': mode, 'padding_mode': 'border', 'align_corners': 1}
        case('GridSample', 'GridSample', [image, grid], reference=ort('GridSample', [image, grid], domain='', opset=16, **more), **more)
    case('Trilu', 'Trilu', [x])
    case('Trilu', 'Trilu', [x, np.array(-1)], const=(1,), upper=0)
    case('ExpandDims', 'ExpandDims', [x, np.array([1], np.int32)], const=(1,))
    case('ExpandDims', 'ExpandDims', [x, np.array([-1], np.int32)], const=(1,), reference=[x[..., None]])
    case('Range', 'Range', [np.array(1.5, np.float32), np.array(7, np.float32), np.array(2, np.float32)], const=(0, 1, 2))
    case('Range', 'Range', [np.array([3]), np.array([12]), np.array([4])], (I64,), const=(0, 1, 2))
    case('Range', 'Range', [np.array(2, np.int32), np.array(9, np.int32)], (I32,), const=(0, 1))
    case('GatherND', 'GatherND', [x, np.array([[0, 1], [1, 2]])])
    case('GatherND', 'GatherND', [x, np.array([[[0], [1]], [[1], [0]]], np.int32)])
    case('Unique', 'Unique', [np.array([2, 1, 1, 3, 4, 3], np.float32)], (FLOAT, I64, I64))
    case('Inverse', 'Inverse', [f32(3, 4, 4)], rtol=2e-3)
    case('Inverse', 'Inverse', [(f32(3, 3) + 3 * np.eye(3)).astype(np.float16)], (HALF,), rtol=5e-3)
    y = np.fft.rfft(x[..., :4])
    pairs = np.stack([y.real, y.imag], -1).astype(np.float32)
    case('Rfft', 'Rfft', [x[..., :4]], reference=[pairs], signal_ndim=1, onesided=1, normalized=0)
    case('Irfft', 'Irfft', [pairs], reference=[x[..., :4]], signal_ndim=1, onesided=1, normalized=0)
    a, b = f32(3, 5, 2), f32(5, 2)

    def pair(z):
        return np.stack([z.real, z.imag], -1).astype(np.float32)

    p, q = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    case('ComplexMul', 'ComplexMul', [a, b], reference=[pair(p * q)])
    case('ComplexMulConj', 'ComplexMulConj', [a, b], reference=[pair(p * q.conj())])


def recurrences():
    op = 'CausalConvWithState'
    case(op, op, [f32(2, 4, 7), f32(4, 1, 3), f32(4), f32(2, 4, 2)], (FLOAT, FLOAT), activation='silu')
    case(op, op, [f32(2, 4, 1), f32(4, 1, 3), None, f32(2, 4, 2)], (FLOAT, FLOAT))
    op = 'LinearAttention'
    q, k, v = f32(2, 5, 16), f32(2, 5, 8) * 0.3, f32(2, 5, 12)
    state, decay, beta = f32(2, 2, 4, 6), -np.abs(f32(2, 5, 2)), np.abs(f32(2, 5, 2)) * 0.3
    heads = {'q_num_heads': 4, 'kv_num_heads': 2}
    case(op, op, [q, k, v, state], (FLOAT, FLOAT), update_rule='linear', **heads)
    case(op, op, [q, k, v, state, decay], (FLOAT, FLOAT), update_rule='gated', scale=0.3, **heads)
    case(op, op, [q, k, v, None, decay, beta], (FLOAT, FLOAT), update_rule='gated_delta', **heads)
    case(op, op, [q, k, v, state, None, beta], (FLOAT, FLOAT), update_rule='delta', **heads)
    op = 'LinearAttentionGate'
    a, bias, scale, b = f32(2, 5, 4) * 4, f32(4), -np.abs(f32(4)), f32(2, 5, 4)
    case(op, op, [a, bias, scale, b], (FLOAT, FLOAT), const=(1, 2), free={0: ('b', 'n', 4), 3: ('b', 'n', 4)})
    case(op, op, [a, bias, scale])
    case(op, op, [a.astype(np.float16), bias, scale, b.astype(np.float16)], (HALF, HALF), rtol=4e-3)


def refused():
    for op in 'BeamSearch', 'GreedySearch', 'Sampling':
        graph = helper.make_graph([helper.make_node(op, ['x'], ['y'], domain='com.microsoft')], op,
                                  [helper.make_tensor_value_info('x', TensorProto.INT32, [1, 3])],
                                  [helper.make_tensor_value_info('y', TensorProto.INT32, None)])
        os.makedirs(os.path.join(folder, 'refused', op))
        onnx.save(helper.make_model(graph, opset_imports=DOMAINS, ir_version=10), os.path.join(folder, 'refused', op, 'model.onnx'))


for family in (products, activations, norms, attention, group_query, positions, weights, integers, moves, recurrences, refused):
    family()
