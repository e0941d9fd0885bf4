#!/usr/bin/env python3
"""The canonical text of model_print.c, of what ONNX's own reader gives. Needs onnx and numpy.
Usage: oracle.py FILE...   a .onnx file is a model, others are a tensor
       oracle.py --list FOLDER   the models below the folder, and those files of their data sets that are a tensor"""
import os
import sys
import zlib

import numpy as np
import onnx


def quote(text):
    if isinstance(text, str):
        text = text.encode('utf-8', 'surrogateescape')
    return ' "' + ''.join(chr(c) if 32 <= c <= 126 and c not in b'"\\' else '\\x%02x' % c for c in text) + '"'


def data_of(t):
    """The bytes of a tensor's elements, packed as ONNX's raw data are."""
    kind = t.data_type
    if t.HasField('raw_data') and (t.raw_data or not any(
            (t.float_data, t.int32_data, t.int64_data, t.double_data, t.uint64_data))):
        return t.raw_data
    if kind in (1, 14):
        return np.array(t.float_data, np.float32).tobytes()
    if kind in (11, 15):
        return np.array(t.double_data, np.float64).tobytes()
    if kind == 7:
        return np.array(t.int64_data, np.int64).tobytes()
    if kind in (12, 13):
        return np.array(t.uint64_data, np.uint64).astype(np.uint32 if kind == 12 else np.uint64).tobytes()
    numbers = np.array(t.int32_data, np.int32)
    if kind == 9:
        return (numbers != 0).astype(np.uint8).tobytes()
    width = {6: np.uint32, 4: np.uint16, 5: np.uint16, 10: np.uint16, 16: np.uint16}.get(kind, np.uint8)
    return numbers.astype(width).tobytes()


def tensor(t, out):
    count = 1
    for d in t.dims:
        count *= d
    total = 0
    if count and t.data_type == 8:
        for s in t.string_data:
            total = zlib.crc32(s, zlib.crc32(len(s).to_bytes(8, 'little'), total))
    elif count and t.data_location != 1:
        total = zlib.crc32(data_of(t))
    out.append('tensor%s %d [%s ] %d %08x' % (quote(t.name), t.data_type, ''.join(' %d' % d for d in t.dims), count, total))
    entries('external', t.external_data, out)
    entries('metadata', getattr(t, 'metadata_props', []), out)


def entries(what, list_, out):
    for e in list_:
        out.append(what + quote(e.key) + quote(e.value))


def sparse(s, out):
    out.append('sparse [%s ]' % ''.join(' %d' % d for d in s.dims))
    tensor(s.values, out)
    tensor(s.indices, out)


def tensor_type(what, t):
    text = ' %s %d' % (what, t.elem_type)
    if not t.HasField('shape'):
        return text
    text += ' ['
    for d in t.shape.dim:
        which = d.WhichOneof('value')
        text += ' %d' % d.dim_value if which == 'dim_value' else quote(d.dim_param) if which == 'dim_param' else ' ?'
        if d.denotation:
            text += quote(d.denotation)
    return text + ' ]'


def type_(t):
    which = t.WhichOneof('value')
    text = ' none'
    if which == 'tensor_type':
        text = tensor_type('tensor', t.tensor_type)
    if which == 'sparse_tensor_type':
        text = tensor_type('sparse', t.sparse_tensor_type)
    if which == 'sequence_type':
        text = ' sequence' + type_or_none(t.sequence_type, 'elem_type')
    if which == 'optional_type':
        text = ' optional' + type_or_none(t.optional_type, 'elem_type')
    if which == 'map_type':
        text = ' map %d' % t.map_type.key_type + type_or_none(t.map_type, 'value_type')
    return text + (quote(t.denotation) if t.denotation else '')


def type_or_none(holder, field):
    return type_(getattr(holder, field)) if holder.HasField(field) else ' none'


def values(what, list_, out):
    for v in list_:
        out.append(what + quote(v.name) + type_or_none(v, 'type'))
        entries('metadata', getattr(v, 'metadata_props', []), out)


def bits(f):
    return ' %08x' % int(np.array([f], np.float32).view(np.uint32)[0])


def attribute(a, out):
    text = 'attribute%s %d' % (quote(a.name), a.type)
    if a.ref_attr_name:
        out.append(text + ' of' + quote(a.ref_attr_name))
        return
    if a.type == 1:
        text += bits(a.f)
    if a.type == 2:
        text += ' %d' % a.i
    if a.type == 3:
        text += quote(a.s)
    text += ''.join(bits(f) for f in a.floats) + ''.join(' %d' % i for i in a.ints) + ''.join(quote(s) for s in a.strings)
    if a.HasField('tp'):
        text += type_(a.tp)
    out.append(text + ''.join(type_(t) for t in a.type_protos))
    if a.HasField('t'):
        tensor(a.t, out)
    for t in a.tensors:
        tensor(t, out)
    if a.HasField('sparse_tensor'):
        sparse(a.sparse_tensor, out)
    for s in a.sparse_tensors:
        sparse(s, out)
    if a.HasField('g'):
        graph(a.g, out)
    for g in a.graphs:
        graph(g, out)


def nodes(list_, out):
    for n in list_:
        out.append('node%s%s%s%s :%s ->%s' % (quote(n.domain), quote(n.op_type), quote(getattr(n, 'overload', '')), quote(n.name),
                                              ''.join(map(quote, n.input)), ''.join(map(quote, n.output))))
        for a in n.attribute:
            attribute(a, out)
        entries('metadata', getattr(n, 'metadata_props', []), out)


def graph(g, out):
    out.append('graph' + quote(g.name))
    values('input', g.input, out)
    values('output', g.output, out)
    values('value', g.value_info, out)
    for t in g.initializer:
        tensor(t, out)
    for s in g.sparse_initializer:
        sparse(s, out)
    nodes(g.node, out)
    for a in g.quantization_annotation:
        out.append('annotation' + quote(a.tensor_name))
        entries('parameter', a.quant_parameter_tensor_names, out)
    entries('metadata', getattr(g, 'metadata_props', []), out)
    out.append('end')


def model(m, out):
    out.append('model %d %d%s%s%s' % (m.ir_version, m.model_version, quote(m.producer_name), quote(m.producer_version), quote(m.domain)))
    for o in m.opset_import:
        out.append('opset%s %d' % (quote(o.domain), o.version))
    entries('metadata', m.metadata_props, out)
    graph(m.graph, out)
    for f in m.functions:
        out.append('function%s%s%s :%s ->%s with%s' % (quote(f.domain), quote(f.name), quote(getattr(f, 'overload', '')),
                                                       ''.join(map(quote, f.input)), ''.join(map(quote, f.output)),
                                                       ''.join(map(quote, f.attribute))))
        for o in f.opset_import:
            out.append('opset%s %d' % (quote(o.domain), o.version))
        for a in getattr(f, 'attribute_proto', []):
            attribute(a, out)
        values('value', getattr(f, 'value_info', []), out)
        nodes(f.node, out)
        entries('metadata', getattr(f, 'metadata_props', []), out)
        out.append('end')
    for t in m.training_info:
        out.append('training')
        if t.HasField('initialization'):
            graph(t.initialization, out)
        if t.HasField('algorithm'):
            graph(t.algorithm, out)
        entries('initialize', t.initialization_binding, out)
        entries('update', t.update_binding, out)


def list_files(folder):
    for where, _, names in sorted(os.walk(folder)):
        if 'model.onnx' not in names:
            continue
        path = os.path.join(where, 'model.onnx')
        print(path)
        g = onnx.load(path, load_external_data=False).graph
        for data in sorted(d for d in os.listdir(where) if d.startswith('test_data_set_')):
            for what, ports in (('input', g.input), ('output', g.output)):
                for k, port in enumerate(ports):
                    file = os.path.join(where, data, '%s_%d.pb' % (what, k))
                    if port.type.WhichOneof('value') == 'tensor_type' and os.path.exists(file):
                        print(file)


def main():
    if sys.argv[1:2] == ['--list']:
        list_files(sys.argv[2])
        return
    for path in sys.argv[1:]:
        out = ['file ' + path]
        with open(path, 'rb') as file:
            data = file.read()
        if path.endswith('.onnx'):
            m = onnx.ModelProto()
            m.ParseFromString(data)
            model(m, out)
        else:
            t = onnx.TensorProto()
            t.ParseFromString(data)
            tensor(t, out)
        print('\n'.join(out))


main()
