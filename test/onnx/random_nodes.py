#!/usr/bin/env python3
"""Random nodes of ONNX's operators, in all versions that the schemas have - attributes, element types, shapes, omitted operands -, computed by
the standard's reference implementation in Python and by libdlc, through the program conformance.

    random_nodes.py SEED COUNT [--keep FOLDER] [--only OPERATOR]      COUNT nodes; needs onnx 1.22 and numpy; status 77 without them

What a version takes as an attribute and what as an operand is decided by its schema: a maker (makers.py, makers_network.py) names values, and those that the version
does not have are left out. Nodes that the reference cannot compute are drawn again. OUT names the build whose conformance is run."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
    good = tuple(map(int, onnx.__version__.split('.')[:2])) >= (1, 22)
except (ImportError, ValueError):
    good = False
if not good:  # older references have other faults than makers.py knows
    print('no Python with onnx 1.22')
    sys.exit(77)

import makers
import makers_network  # noqa: F401 (adds to the table)

OPSET_LAST = 27
# By element type of a result: relative and absolute tolerance. The reference rounds after each step of narrow floats.
TOLERANCES = {'float16': (1e-2, 2e-3), 'bfloat16': (4e-2, 2e-2)}
USUAL = (1e-3, 1e-5)


def type_number(text):
    word = text[len('tensor('):-1]
    return TensorProto.DataType.Value({'float': 'FLOAT', 'double': 'DOUBLE'}.get(word, word.upper()))


class Case:
    """One node: its maker draws values by name."""

    def __init__(self, r, schema, opset):
        self.r, self.schema, self.opset = r, schema, opset
        self.types, self.given, self.outputs = {}, {}, 1
        self.compute = None  # the results, of what the reference does not have
        self.rtol = self.atol = 0

    # ---- for makers
    def has(self, name):
        """Does this version have an operand or attribute of that name?"""
        return name in self.schema.attributes or any(i.name == name for i in self.schema.inputs)

    def chance(self, p):
        return self.r.random() < p

    def pick(self, *among):
        return among[int(self.r.integers(len(among)))]

    def size(self, low=1, high=5):
        return int(self.r.integers(low, high + 1))

    def shape(self, low=0, high=4, least=1):
        return tuple(self.size(least) for _ in range(self.size(low, high)))

    def type_of(self, name, *among):
        """The element type of an operand, drawn from those that the schema allows (and `among`), as numpy's."""
        text = next(i.type_str for i in self.schema.inputs if i.name == name)
        if text not in self.types:
            rows = [c.allowed_type_strs for c in self.schema.type_constraints if c.type_param_str == text]
            allowed = [t for t in (rows[0] if rows else [text])
                       if t.startswith('tensor(') and 'string' not in t and 'complex' not in t and (not among or t[7:-1] in among)]
            floats = 'tensor(float)' in allowed and self.chance(0.5)
            self.types[text] = 'tensor(float)' if floats else self.pick(*allowed)
        return helper.tensor_dtype_to_np_dtype(type_number(self.types[text]))

    def array(self, dtype, shape, low=-2, high=2):
        if dtype == np.bool_:
            return self.r.random(shape) < 0.5
        name = np.dtype(dtype).name
        if np.issubdtype(dtype, np.integer) or name.startswith(('int', 'uint')):
            if name.startswith('uint'):
                low = max(low, 0)
            return np.asarray(self.r.integers(int(np.ceil(low)), int(max(high, low)) + 1, shape)).astype(dtype)
        return np.asarray(self.r.uniform(low, high, shape)).astype(np.float32 if name not in ('float64',) else dtype).astype(dtype)

    def x(self, name, shape, low=-2, high=2, among=()):
        """Draws an operand."""
        self.given[name] = self.array(self.type_of(name, *among), shape, low, high)
        return self.given[name]

    def set(self, **values):
        self.given.update(values)

    def maybe(self, p=0.5, **values):
        """Each of the values with that chance: the others keep their defaults."""
        self.given.update({k: v for k, v in values.items() if self.chance(p)})

    def axis(self, rank):
        return int(self.r.integers(-rank, rank))

    # ---- the model
    def attribute(self, name, value):
        kind = self.schema.attributes[name].type
        if isinstance(value, np.ndarray) and kind != onnx.defs.OpSchema.AttrType.TENSOR:
            value = value.tolist()
        if kind == onnx.defs.OpSchema.AttrType.TENSOR:
            value = numpy_helper.from_array(np.asarray(value))
        if kind == onnx.defs.OpSchema.AttrType.FLOAT:
            value = float(value)
        return helper.make_attribute(name, value, attr_type=getattr(onnx.AttributeProto, kind.name))

    def operands(self):
        """Pairs of name and array, in the schema's order; None: omitted."""
        made = []
        for formal in self.schema.inputs:
            value = self.given.get(formal.name)
            if formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic:
                made += [('%s_%d' % (formal.name, i), v) for i, v in enumerate(value or [])]
            elif value is None:
                made.append((formal.name, None))
            else:
                made.append((formal.name, np.asarray(value, None if isinstance(value, np.ndarray) else
                                                     helper.tensor_dtype_to_np_dtype(type_number(self.fixed(formal))))))
        while made and made[-1][1] is None:
            made.pop()
        return made

    def fixed(self, formal):
        """The type of an operand that a maker gave as a list."""
        rows = [c.allowed_type_strs for c in self.schema.type_constraints if c.type_param_str == formal.type_str]
        allowed = rows[0] if rows else [formal.type_str]
        return self.types.setdefault(formal.type_str, 'tensor(int64)' if 'tensor(int64)' in allowed else allowed[0])

    def model(self):
        made = self.operands()
        attributes = {k: v for k, v in self.given.items() if k in self.schema.attributes and v is not None}
        node = helper.make_node(self.schema.name, [n if v is not None else '' for n, v in made], ['y%d' % i for i in range(self.outputs)])
        node.attribute.extend(self.attribute(k, v) for k, v in attributes.items())
        arrays = {n: v for n, v in made if v is not None}
        stored = {n for n, v in arrays.items() if v.dtype == np.int64 and v.size <= 16 and v.ndim <= 1 and self.chance(0.5)}
        inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in arrays.items() if n not in stored]
        graph = helper.make_graph([node], 'random', inputs, [onnx.ValueInfoProto(name='y%d' % i) for i in range(self.outputs)],
                                  [numpy_helper.from_array(arrays[n], n) for n in sorted(stored)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', self.opset)], ir_version=13 if self.opset > 23 else 10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True), {n: v for n, v in arrays.items() if n not in stored}


def results_of(case, model, inputs):
    """The reference's, or the maker's, in the element types that the standard gives them."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        results = case.compute() if case.compute else ReferenceEvaluator(model).run(None, inputs)
    arrays = []
    for result, output in zip(map(np.asarray, results), model.graph.output):
        of = output.type.tensor_type
        if not of.elem_type:  # where inference does not know it
            of.elem_type = helper.np_dtype_to_tensor_dtype(result.dtype)
        arrays.append(result.astype(helper.tensor_dtype_to_np_dtype(of.elem_type)))
    return arrays


def write(folder, case, model, inputs, results):
    data = os.path.join(folder, 'test_data_set_0')
    os.makedirs(data)
    onnx.save(model, os.path.join(folder, 'model.onnx'))
    for kind, arrays in (('input', inputs.values()), ('output', results)):
        for k, array in enumerate(arrays):
            with open(os.path.join(data, '%s_%d.pb' % (kind, k)), 'wb') as file:
                file.write(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape)).SerializeToString())
    of = [TOLERANCES.get(np.dtype(a.dtype).name, USUAL) for a in list(inputs.values()) + results]
    with open(os.path.join(folder, 'data.json'), 'w') as file:
        json.dump({'rtol': max([case.rtol] + [t[0] for t in of]), 'atol': max([case.atol] + [t[1] for t in of])}, file)


def versions(only):
    """All schemas that have a maker, with the operator sets in which each is the current one."""
    by_name = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == '' and schema.name in makers.TABLE and (not only or schema.name == only):
            by_name.setdefault(schema.name, []).append(schema)
    for name in sorted(by_name):
        history = sorted(by_name[name], key=lambda s: s.since_version)
        for schema, until in zip(history, [s.since_version for s in history[1:]] + [OPSET_LAST + 1]):
            if not schema.deprecated and not makers.is_excluded(schema):
                yield schema, until


def draw(r, schema, until):
    """A case, its model, inputs and results; None: the reference or the checker refuses it."""
    case = Case(r, schema, int(r.integers(schema.since_version, until)))
    makers.TABLE[schema.name](case)
    try:
        model, inputs = case.model()
        results = results_of(case, model, inputs)
    except Exception as why:  # whatever the reference raises
        return None, '%s %d: %s' % (schema.name, schema.since_version, str(why).replace('\n', ' ')[:150])
    return (case, model, inputs, results), None


def make(folder, seed, count, only):
    r = np.random.default_rng(seed)
    np.seterr(all='ignore')
    table = list(versions(only))
    refused, made, turn = {}, 0, 0
    while made < count and turn < 20 * count:
        schema, until = table[turn % len(table)]
        turn += 1
        drawn, why = draw(r, schema, until)
        if drawn is None:
            refused.setdefault((schema.name, schema.since_version), []).append(why)
            continue
        write(os.path.join(folder, '%05d_%s_%d' % (made, schema.name, drawn[0].opset)), *drawn)
        made += 1
    return made, refused, len(table)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('seed', type=int)
    parser.add_argument('count', type=int)
    parser.add_argument('--keep')
    parser.add_argument('--only')
    parser.add_argument('--verbose', action='store_true')
    how = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = how.keep or work
        made, refused, schemas = make(folder, how.seed, how.count, how.only)
        if how.verbose:
            for (name, since), whys in sorted(refused.items()):
                print('%4d refused %s' % (len(whys), whys[0]))
        program = os.path.join(os.environ.get('OUT', 'build/release'), 'test/onnx/conformance')
        print('%d nodes of %d operators and versions; drawn again: %d' % (made, schemas, sum(map(len, refused.values()))), flush=True)
        return subprocess.run([program, folder]).returncode


if __name__ == '__main__':
    sys.exit(main())
