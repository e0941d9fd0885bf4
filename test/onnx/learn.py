#!/usr/bin/env python3
"""Random models of ai.onnx.ml, of strings and n-grams, of recurrent layers with all activations, and Scan of opset 8, with what ONNX Runtime
computes, and of optimizers (ai.onnx.preview.training), with what their pseudo code gives, as folders of cases for the program conformance.
Needs onnx, onnxruntime and numpy. Usage: learn.py FOLDER SEED COUNT   (COUNT cases of each kind)

ONNX Runtime departs from the standard, or from its reference, in places that the models avoid: scores of a linear or support vector
classifier that are made of one (1 - s in place of -s), post_transform of a single score, PROBIT (an approximation: such cases
have a wide tolerance), labels of linear SVMs of two classes, SOFTMAX_ZERO of zeros, SOFTMAX and LOGISTIC of
TreeEnsemble, whose numbers are exchanged, two classes of which trees vote for the second alone, base values of
targets for which no leaf votes; Gather of strings along another axis than the last, StringSplit of an empty string by a
delimiter (the reference has one piece)."""
import json
import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ML, TRAINING = 'ai.onnx.ml', 'ai.onnx.preview.training'
ONNX_TYPES = {'float32': TensorProto.FLOAT, 'float64': TensorProto.DOUBLE, 'int64': TensorProto.INT64, 'int32': TensorProto.INT32,
              'int16': TensorProto.INT16, 'float16': TensorProto.FLOAT16, 'object': TensorProto.STRING}
TRANSFORMS = ['NONE', 'SOFTMAX', 'LOGISTIC', 'SOFTMAX_ZERO', 'PROBIT']


class Writer:
    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def case(self, name, nodes, inputs, outputs, ml=3, opset=17, rtol=None, atol=1e-6, results=None, free=True):
        """Writes a case: inputs are arrays by name, outputs pairs of name and element type, results those of ONNX Runtime if not given;
        free: the first dimension of matrices is a symbol."""
        graph = helper.make_graph(
            nodes, name,
            [helper.make_tensor_value_info(k, ONNX_TYPES[str(v.dtype)], ['n' if free and d == 0 and v.ndim > 1 else s for d, s in enumerate(v.shape)])
             for k, v in inputs.items()],
            [helper.make_tensor_value_info(k, t, None) for k, t in outputs])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset), helper.make_opsetid(ML, ml), helper.make_opsetid(TRAINING, 1)])
        model.ir_version = 8
        if results is None:
            results = self.run(model, [k for k, _ in outputs], inputs)
        path = os.path.join(self.folder, 'learn_%04d_%s' % (self.count, name))
        data = os.path.join(path, 'test_data_set_0')
        self.count += 1
        os.makedirs(data)
        onnx.save(model, os.path.join(path, 'model.onnx'))
        for kind, arrays in (('input', inputs.values()), ('output', results)):
            for k, array in enumerate(arrays):
                with open(os.path.join(data, '%s_%d.pb' % (kind, k)), 'wb') as file:
                    file.write(numpy_helper.from_array(np.asarray(array)).SerializeToString())
        with open(os.path.join(path, 'data.json'), 'w') as file:
            json.dump({'rtol': rtol or 1e-3, 'atol': atol}, file)


    @staticmethod
    def run(model, outputs, inputs):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=['CPUExecutionProvider'])
        return session.run(outputs, inputs)


def node(operator, inputs, outputs, **attributes):
    domain = TRAINING if operator in ('Adagrad', 'Adam', 'Momentum') else ML
    return helper.make_node(operator, inputs, outputs, domain=domain, **{k: v for k, v in attributes.items() if v is not None})


def samples(r, features, dtype=None, holes=False):
    dtype = dtype or r.choice(['float32', 'float64', 'int64', 'int32'])
    x = np.round(r.normal(size=(int(r.integers(1, 9)), features)) * 4) / 2
    if holes and dtype.startswith('float'):
        x[r.random(x.shape) < 0.15] = np.nan
    return x.astype(dtype)


def floats(r, *shape):
    return r.normal(size=shape).astype(np.float32)


# ---- trees ---------------------------------------------------------------------------------------------------------------

class Trees:
    """Random trees as lists of nodes: (tree, node, feature, mode, value, true, false, missing)."""
    MODES = ['BRANCH_LEQ', 'BRANCH_LT', 'BRANCH_GTE', 'BRANCH_GT', 'BRANCH_EQ', 'BRANCH_NEQ']

    def __init__(self, r, features):
        self.r, self.features, self.nodes, self.leaves = r, features, [], []
        self.modes = [r.choice(self.MODES)] if r.random() < 0.5 else self.MODES
        self.trees = int(r.integers(1, 12))
        for tree in range(self.trees):
            self.numbers = 0
            self.grow(tree, int(r.integers(0, 6)))

    def grow(self, tree, depth):
        number, at = self.numbers, len(self.nodes)
        self.numbers += 1
        self.nodes.append(None)
        if depth == 0 or self.r.random() < 0.15:
            self.nodes[at] = (tree, number, 0, 'LEAF', 0.0, 0, 0, 0)
            self.leaves.append((tree, number))
            return number
        value, mode = np.round(self.r.normal() * 4) / 2, self.r.choice(self.modes)
        true, false = self.grow(tree, depth - 1), self.grow(tree, depth - 1)
        self.nodes[at] = (tree, number, int(self.r.integers(self.features)), mode, value, true, false, int(self.r.integers(2)))
        return number

    def attributes(self, double):
        column = list(zip(*self.nodes))
        a = dict(nodes_treeids=column[0], nodes_nodeids=column[1], nodes_featureids=column[2], nodes_modes=column[3],
                 nodes_truenodeids=column[5], nodes_falsenodeids=column[6])
        if self.r.random() < 0.7:
            a['nodes_missing_value_tracks_true'] = column[7]
        self.numbers_of(a, 'nodes_values', column[4], double)
        return a

    @staticmethod
    def numbers_of(attributes, name, numbers, double):
        if double:
            attributes[name + '_as_tensor'] = helper.make_tensor(name, TensorProto.DOUBLE, [len(numbers)], numbers)
        else:
            attributes[name] = [float(x) for x in numbers]


def votes(trees, r, a, what, targets, double, positive=False, every=False, only=None):
    rows = []
    for tree, number in trees.leaves:
        chosen = range(targets) if every else [int(r.integers(targets))] if only is None else [only]
        for target in chosen:
            weight = np.float32(r.random() / trees.trees if positive else r.normal())
            rows.append((tree, number, target, float(weight)))
    column = list(zip(*rows))
    a[what + '_treeids'], a[what + '_nodeids'], a[what + '_ids'] = column[:3]
    Trees.numbers_of(a, what + '_weights', column[3], double)


def tree_regressor(w, r):
    features, targets = int(r.integers(1, 6)), int(r.integers(1, 5))
    x = samples(r, features, str(r.choice(['float32', 'float64'])), holes=True)
    double = x.dtype == np.float64
    trees = Trees(r, features)
    a = trees.attributes(double)
    how = str(r.choice(['SUM', 'AVERAGE', 'MIN', 'MAX']))
    every = targets == 1 or r.random() < 0.5
    votes(trees, r, a, 'target', targets, double, every=every)
    if every and r.random() < 0.5:
        Trees.numbers_of(a, 'base_values', [float(v) for v in floats(r, targets)], double)
    transform = str(r.choice(TRANSFORMS[:3])) if targets > 1 else 'NONE'
    w.case('tree_regressor', [node('TreeEnsembleRegressor', ['x'], ['y'], n_targets=targets, aggregate_function=how,
                                   post_transform=transform, **a)], {'x': x}, [('y', TensorProto.FLOAT)])


def tree_classifier(w, r):
    features, classes = int(r.integers(1, 6)), int(r.integers(2, 6))
    x = samples(r, features, holes=True)
    double = x.dtype == np.float64
    trees = Trees(r, features)
    a = trees.attributes(double)
    transform = str(r.choice(TRANSFORMS[:3]))
    strings = r.random() < 0.3
    if classes == 2 and r.random() < 0.8:
        positive = r.random() < 0.5
        transform = 'NONE' if positive else str(r.choice(['NONE', 'LOGISTIC']))
        votes(trees, r, a, 'class', classes, double, positive=positive, only=0)
        if not positive and not any(v < 0 for v in a.get('class_weights', [-1])):
            return
        if not positive and double:  # at least one negative weight, so that the sums are margins
            Trees.numbers_of(a, 'class_weights', [-abs(float(r.normal()))] + [float(r.normal()) for _ in a['class_ids'][1:]], True)
    else:
        classes = max(classes, 3)
        votes(trees, r, a, 'class', classes, double, every=True)
        if r.random() < 0.5:
            Trees.numbers_of(a, 'base_values', [float(v) for v in floats(r, classes)], double)
    if strings:
        a['classlabels_strings'] = ['label %d' % i for i in range(classes)]
    else:
        a['classlabels_int64s'] = [int(v) for v in r.permutation(50)[:classes]]
    outputs = [('label', TensorProto.STRING if strings else TensorProto.INT64), ('scores', TensorProto.FLOAT)]
    w.case('tree_classifier', [node('TreeEnsembleClassifier', ['x'], ['label', 'scores'], post_transform=transform, **a)], {'x': x}, outputs)


def tree_ensemble(w, r):
    features, targets = int(r.integers(1, 6)), int(r.integers(1, 4))
    dtype = str(r.choice(['float32', 'float64', 'float16']))
    x = samples(r, features, dtype, holes=True)
    interior, leaves, members, roots = [], [], [], []
    # ONNX Runtime knows only sets of small positive integers.
    def grow(depth, root=False):
        if depth == 0 or (not root and r.random() < 0.15):
            leaves.append((int(r.integers(targets)), float(np.float16(r.normal()))))
            return len(leaves) - 1, 1
        at = len(interior)
        interior.append(None)
        mode = int(r.integers(7))
        value = float(np.round(r.normal() * 4) / 2)
        if mode == 6:
            members.append((at, [float(v) for v in r.permutation(np.arange(1, 9))[:int(r.integers(1, 6))]]))
        true, false = grow(depth - 1), grow(depth - 1)
        interior[at] = (int(r.integers(features)), mode, value, true, false, int(r.integers(2)))
        return at, 0
    for _ in range(int(r.integers(1, 8))):
        roots.append(grow(int(r.integers(1, 5)), True)[0])
    column = list(zip(*interior))
    how, missing = int(r.integers(4)), r.random() < 0.5

    def attributes(kind):
        tensor = lambda name, values, kind=kind: helper.make_tensor(name, kind, [len(values)], values)
        a = dict(tree_roots=roots, n_targets=targets, nodes_featureids=column[0], nodes_modes=tensor('m', column[1], TensorProto.UINT8),
                 nodes_splits=tensor('s', column[2]), nodes_truenodeids=[t[0] for t in column[3]], nodes_trueleafs=[t[1] for t in column[3]],
                 nodes_falsenodeids=[t[0] for t in column[4]], nodes_falseleafs=[t[1] for t in column[4]],
                 leaf_targetids=[v[0] for v in leaves], leaf_weights=tensor('w', [v[1] for v in leaves]), aggregate_function=how)
        if missing:
            a['nodes_missing_value_tracks_true'] = column[5]
        if members:
            a['membership_values'] = tensor('v', [v for _, values in sorted(members) for v in values + [float('nan')]])
        return a

    kind = ONNX_TYPES[dtype]
    results = None
    if dtype == 'float16':  # which ONNX Runtime computes as f32
        graph = helper.make_graph([node('TreeEnsemble', ['x'], ['y'], **attributes(TensorProto.FLOAT))], 'f32',
                                  [helper.make_tensor_value_info('x', TensorProto.FLOAT, x.shape)],
                                  [helper.make_tensor_value_info('y', TensorProto.FLOAT, None)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(ML, 5)], ir_version=8)
        results = [w.run(model, ['y'], {'x': x.astype(np.float32)})[0].astype(np.float16)]
    w.case('tree_ensemble', [node('TreeEnsemble', ['x'], ['y'], **attributes(kind))], {'x': x}, [('y', kind)], ml=5, results=results)


# ---- vectors and lines -------------------------------------------------------------------------------------------------------

def kernel(r):
    kind = str(r.choice(['LINEAR', 'POLY', 'RBF', 'SIGMOID']))
    return dict(kernel_type=kind, kernel_params=[float(abs(r.normal()) / 4), float(r.normal()), float(r.integers(1, 4))])


def svm_regressor(w, r):
    features, supports = int(r.integers(1, 6)), int(r.integers(0, 7))
    x = samples(r, features, 'float32')
    if supports:
        a = dict(n_supports=supports, coefficients=floats(r, supports), support_vectors=floats(r, supports * features), **kernel(r))
    else:
        a = dict(coefficients=floats(r, features), kernel_type='LINEAR', kernel_params=[0.0, 0.0, 0.0])
    w.case('svm_regressor', [node('SVMRegressor', ['x'], ['y'], rho=floats(r, 1), one_class=int(r.integers(2)), **a)], {'x': x},
           [('y', TensorProto.FLOAT)], rtol=2e-3, atol=1e-5)


def svm_classifier(w, r):
    features, classes = int(r.integers(1, 6)), int(r.integers(2, 6))
    x = samples(r, features)
    pairs = classes * (classes - 1) // 2
    a, transform = dict(rho=floats(r, pairs)), 'NONE'
    if r.random() < 0.8:
        each = [int(v) for v in r.integers(1, 4, classes)]
        a.update(vectors_per_class=each, support_vectors=floats(r, sum(each) * features), coefficients=floats(r, (classes - 1) * sum(each)),
                 **kernel(r))
        if r.random() < 0.5:
            a.update(prob_a=-np.abs(floats(r, pairs)), prob_b=floats(r, pairs))
            transform = str(r.choice(TRANSFORMS[:3]))
        elif classes > 2:
            transform = str(r.choice(TRANSFORMS[:3]))
    else:
        classes = max(classes, 3)
        a = dict(rho=floats(r, 1), coefficients=floats(r, classes * features), kernel_type='LINEAR', kernel_params=[0.0, 0.0, 0.0])
    strings = r.random() < 0.3
    if strings:
        a['classlabels_strings'] = ['label %d' % i for i in range(classes)]
    else:
        a['classlabels_ints'] = [int(v) for v in r.permutation(50)[:classes]]
    outputs = [('label', TensorProto.STRING if strings else TensorProto.INT64), ('scores', TensorProto.FLOAT)]
    w.case('svm_classifier', [node('SVMClassifier', ['x'], ['label', 'scores'], post_transform=transform, **a)], {'x': x}, outputs,
           rtol=2e-3, atol=1e-5)


def linear_regressor(w, r):
    features, targets = int(r.integers(1, 6)), int(r.integers(1, 5))
    x = samples(r, features, 'float32')
    transform = str(r.choice(TRANSFORMS[:3])) if targets > 1 else 'NONE'
    w.case('linear_regressor', [node('LinearRegressor', ['x'], ['y'], targets=targets, coefficients=floats(r, targets * features),
                                     intercepts=floats(r, targets) if r.random() < 0.7 else None, post_transform=transform)],
           {'x': x}, [('y', TensorProto.FLOAT)])


def linear_classifier(w, r):
    features, classes = int(r.integers(1, 6)), int(r.integers(2, 6))
    x = samples(r, features)
    strings = r.random() < 0.3
    a = {'classlabels_strings': ['label %d' % i for i in range(classes)]} if strings else {
        'classlabels_ints': [int(v) for v in r.permutation(50)[:classes]]}
    outputs = [('label', TensorProto.STRING if strings else TensorProto.INT64), ('scores', TensorProto.FLOAT)]
    transform = str(r.choice(TRANSFORMS[:4]))
    w.case('linear_classifier', [node('LinearClassifier', ['x'], ['label', 'scores'], coefficients=floats(r, classes * features),
                                      intercepts=floats(r, classes), post_transform=transform, multi_class=int(r.integers(2)), **a)],
           {'x': x}, outputs)


def probit(w, r):
    x = r.uniform(0.05, 0.95, (5, 3)).astype(np.float32)
    w.case('probit', [node('LinearRegressor', ['x'], ['y'], targets=3, coefficients=np.eye(3, dtype=np.float32).ravel(),
                           post_transform='PROBIT')], {'x': x}, [('y', TensorProto.FLOAT)], rtol=1e-2, atol=5e-3)


# ---- features and encoders ------------------------------------------------------------------------------------------------------

def features(w, r):
    count = int(r.integers(1, 6))
    x, real = samples(r, count), samples(r, count, str(r.choice(['float32'])), holes=True)
    kind = ONNX_TYPES[str(x.dtype)]
    w.case('scaler', [node('Scaler', ['x'], ['y'], offset=floats(r, count), scale=floats(r, count))], {'x': x}, [('y', TensorProto.FLOAT)])
    w.case('scaler_one', [node('Scaler', ['x'], ['y'], offset=floats(r, 1), scale=floats(r, 1))], {'x': x}, [('y', TensorProto.FLOAT)])
    w.case('normalizer', [node('Normalizer', ['x'], ['y'], norm=str(r.choice(['MAX', 'L1', 'L2'])))], {'x': x}, [('y', TensorProto.FLOAT)])
    w.case('binarizer', [node('Binarizer', ['x'], ['y'], threshold=0.5)], {'x': samples(r, count, 'float32')}, [('y', TensorProto.FLOAT)])
    w.case('imputer_nan', [node('Imputer', ['x'], ['y'], imputed_value_floats=floats(r, count if r.random() < 0.5 else 1),
                                replaced_value_float=float('nan'))], {'x': real}, [('y', TensorProto.FLOAT)])
    w.case('imputer_number', [node('Imputer', ['x'], ['y'], imputed_value_floats=floats(r, count), replaced_value_float=1.0)],
           {'x': real}, [('y', TensorProto.FLOAT)])
    w.case('imputer_integer', [node('Imputer', ['x'], ['y'], imputed_value_int64s=[int(v) for v in r.integers(-9, 9, count)],
                                    replaced_value_int64=1)], {'x': samples(r, count, 'int64')}, [('y', TensorProto.INT64)])
    more = samples(r, 3, str(x.dtype))[:1].repeat(len(x), 0)
    w.case('feature_vectorizer', [node('FeatureVectorizer', ['x', 'z'], ['y'], inputdimensions=[count, 3])], {'x': x, 'z': more},
           [('y', TensorProto.FLOAT)])
    w.case('array_feature_extractor', [node('ArrayFeatureExtractor', ['x', 'i'], ['y'])],
           {'x': x, 'i': r.integers(0, count, int(r.integers(1, 5))).astype(np.int64)}, [('y', kind)])


def encoders(w, r):
    x = r.integers(-4, 5, (4, 3))
    cats = [int(v) for v in r.permutation(np.arange(-4, 5))[:int(r.integers(1, 7))]]
    w.case('one_hot_encoder', [node('OneHotEncoder', ['x'], ['y'], cats_int64s=cats, zeros=1)],
           {'x': x.astype(str(r.choice(['int64', 'float32', 'float64'])))}, [('y', TensorProto.FLOAT)])
    count = len(cats)
    w.case('label_encoder_int', [node('LabelEncoder', ['x'], ['y'], keys_int64s=cats, values_floats=floats(r, count), default_float=-7.5)],
           {'x': x.astype(np.int64)}, [('y', TensorProto.FLOAT)], ml=2)
    keys = [float(v) / 2 for v in cats[:-1]] + [float('nan')]
    real = (x / 2).astype(np.float32)
    real[0, 0] = np.nan
    w.case('label_encoder_float', [node('LabelEncoder', ['x'], ['y'], keys_floats=keys,
                                        values_int64s=[int(v) for v in r.integers(0, 99, count)])], {'x': real}, [('y', TensorProto.INT64)],
           ml=4)  # ONNX Runtime finds no NaN in version 2
    dtype = str(r.choice(['int64', 'float32', 'float64']))
    tensor = lambda name, values: helper.make_tensor(name, ONNX_TYPES[dtype], [len(values)], values)
    w.case('label_encoder_tensor', [node('LabelEncoder', ['x'], ['y'], keys_tensor=tensor('k', cats), default_tensor=tensor('d', [99]),
                                         values_tensor=tensor('v', [int(v) for v in r.integers(0, 99, count)]))],
           {'x': x.astype(dtype)}, [('y', ONNX_TYPES[dtype])], ml=4)


# ---- strings and n-grams ------------------------------------------------------------------------------------------------------------

def words(r, *shape):
    letters = ['a', 'b', 'c', 'd', 'bad', '', 'a b', ' c  d ']
    return np.array([letters[int(i)] for i in r.integers(0, len(letters), int(np.prod(shape)))], dtype=object).reshape(shape)


def listed(values):
    return [str(v) for v in values]


def text_encoders(w, r):
    x, count = words(r, 3, 4), int(r.integers(1, 6))
    keys = listed(np.unique(words(r, 9))[:count])
    count = len(keys)
    w.case('label_encoder_text', [node('LabelEncoder', ['x'], ['y'], keys_strings=keys, values_strings=listed(words(r, count)),
                                       default_string='none')], {'x': x}, [('y', TensorProto.STRING)], ml=2)
    w.case('label_encoder_to_numbers', [node('LabelEncoder', ['x'], ['y'], keys_strings=keys, values_floats=floats(r, count),
                                             default_float=2.5)], {'x': x}, [('y', TensorProto.FLOAT)], ml=2)
    w.case('label_encoder_of_numbers', [node('LabelEncoder', ['x'], ['y'], keys_int64s=[int(v) for v in r.permutation(9)[:count]],
                                             values_strings=keys)], {'x': r.integers(0, 9, (2, 5))}, [('y', TensorProto.STRING)], ml=2)
    w.case('category_mapper', [node('CategoryMapper', ['x'], ['y'], cats_strings=keys, cats_int64s=list(range(5, 5 + count)))], {'x': x},
           [('y', TensorProto.INT64)], ml=1)
    w.case('one_hot_text', [node('OneHotEncoder', ['x'], ['y'], cats_strings=keys, zeros=1)], {'x': x}, [('y', TensorProto.FLOAT)])


def ngrams(w, r):
    """A pool of n-grams of one to three items, each once."""
    longest = int(r.integers(1, 4))
    pool, starts = [], []
    for n in range(1, longest + 1):
        starts.append(len(pool))
        grams = {tuple(int(v) for v in r.integers(0, 5, n)) for _ in range(int(r.integers(1, 6)))}
        for gram in sorted(grams):
            pool.extend(gram)
    count = sum(((starts + [len(pool)])[n + 1] - starts[n]) // (n + 1) for n in range(longest))
    a = dict(mode=str(r.choice(['TF', 'IDF', 'TFIDF'])), min_gram_length=int(r.integers(1, longest + 1)), max_gram_length=longest,
             max_skip_count=int(r.integers(0, 4)), ngram_counts=starts, ngram_indexes=[int(v) for v in r.permutation(count)])
    if r.random() < 0.7:
        a['weights'] = floats(r, count)
    shape = (int(r.integers(1, 4)), int(r.integers(longest, 12)))
    items = r.integers(0, 6, shape)
    items = items[0] if r.random() < 0.3 else items
    letter = lambda v: 'abcdef'[int(v)]
    w.case('ngrams', [helper.make_node('TfIdfVectorizer', ['x'], ['y'], pool_int64s=pool, **a)],
           {'x': items.astype(str(r.choice(['int32', 'int64'])))}, [('y', TensorProto.FLOAT)])
    w.case('ngrams_text', [helper.make_node('TfIdfVectorizer', ['x'], ['y'], pool_strings=[letter(v) for v in pool], **a)],
           {'x': np.vectorize(letter, otypes=[object])(items)}, [('y', TensorProto.FLOAT)])


def text(w, r):
    """Operators of strings, and operators that move elements, of strings."""
    op = helper.make_node
    x, y = words(r, 2, 3), words(r, 3)
    y[y == ''] = 'c'
    columns = r.integers(-3, 3, 4)
    condition = r.random((2, 3)) < 0.5
    nodes = [op('StringConcat', ['x', 'y'], ['joined']), op('Equal', ['x', 'y'], ['same']), op('Where', ['same', 'x', 'joined'], ['chosen']),
             op('Gather', ['joined', 'columns'], ['taken'], axis=1), op('Concat', ['taken', 'x'], ['both'], axis=1),
             op('Transpose', ['both'], ['turned']), op('Unique', ['x'], ['sorted', 'first', 'place', 'count'])]
    split = dict(delimiter=str(r.choice(['a', 'ba', ' ', '']))) if r.random() < 0.8 else {}
    if r.random() < 0.5:
        split['maxsplit'] = int(r.integers(0, 3))
    nodes.append(op('StringSplit', ['y'], ['parts', 'counts'], **split))
    outputs = [(k, TensorProto.STRING) for k in ('joined', 'chosen', 'taken', 'turned', 'sorted', 'parts')]
    w.case('text', nodes, {'x': x, 'y': y, 'columns': columns}, outputs + [('same', TensorProto.BOOL), ('place', TensorProto.INT64),
                                                                      ('counts', TensorProto.INT64)], opset=20)
    numbers = [str(v) for v in r.normal(size=4).astype(np.float32)] + [str(v) for v in r.integers(-9, 9, 2)] + ['1e3', 'inf']
    w.case('read_numbers', [op('Cast', ['x'], ['y'], to=TensorProto.FLOAT)], {'x': np.array(numbers, dtype=object)}, [('y', TensorProto.FLOAT)])
    whole = r.integers(-2**40, 2**40, 5)
    w.case('write_numbers', [op('Cast', ['x'], ['y'], to=TensorProto.STRING)], {'x': whole}, [('y', TensorProto.STRING)])


# ---- optimizers ---------------------------------------------------------------------------------------------------------------------

def optimizer(w, r):
    operator = str(r.choice(['Adagrad', 'Adam', 'Momentum']))
    states, count, t = 2 if operator == 'Adam' else 1, int(r.integers(1, 4)), int(r.choice([0, 1, 7]))
    dtype, rate_dtype = str(r.choice(['float32', 'float64'])), str(r.choice(['float32', 'float64']))
    shapes = [tuple(int(v) for v in r.integers(1, 4, int(r.integers(0, 3)))) for _ in range(count)]
    rate = float(np.float32(0.125))
    kinds = [[np.asarray(r.normal(size=shape)).astype(dtype) if k < 2 else np.abs(np.asarray(r.normal(size=shape))).astype(dtype)
              for shape in shapes] for k in range(2 + states)]
    a = {k: float(np.float32(v)) for k, v in dict(norm_coefficient=r.choice([0, 0.01])).items()}
    norm, news = a['norm_coefficient'], [[] for _ in range(1 + states)]
    extra = {'Adagrad': dict(decay_factor=0.1, epsilon=1e-4), 'Adam': dict(alpha=0.8, beta=0.95, epsilon=1e-3, norm_coefficient_post=0.02),
             'Momentum': dict(alpha=0.9, beta=0.5)}[operator]
    a.update({k: float(np.float32(v)) for k, v in extra.items()})
    nesterov = r.random() < 0.5
    for i in range(count):
        x, g, *h = [kinds[k][i].astype(np.float64) for k in range(2 + states)]
        g = norm * x + g
        if operator == 'Adagrad':
            h0 = h[0] + g * g
            made = [x - rate / (1 + t * a['decay_factor']) * g / (np.sqrt(h0) + a['epsilon']), h0]
        elif operator == 'Adam':
            v, h1 = a['alpha'] * h[0] + (1 - a['alpha']) * g, a['beta'] * h[1] + (1 - a['beta']) * g * g
            adjusted = rate * np.sqrt(1 - a['beta'] ** t) / (1 - a['alpha'] ** t) if t > 0 else rate
            made = [(1 - a['norm_coefficient_post']) * (x - adjusted * v / (np.sqrt(h1) + a['epsilon'])), v, h1]
        else:
            v = a['alpha'] * h[0] + (a['beta'] if t > 0 else 1) * g
            made = [x - rate * (g + a['alpha'] * v if nesterov else v), v]
        for k, value in enumerate(made):
            news[k].append(np.asarray(value).astype(dtype))
    if operator == 'Momentum':
        a['mode'] = 'nesterov' if nesterov else 'standard'
    names = ['%s%d' % (k, i) for k in 'xghv'[:2 + states] for i in range(count)]
    inputs = {'r': np.array(rate, rate_dtype), 't': np.array(t, np.int64)}
    inputs.update(zip(names, [array for kind in kinds for array in kind]))
    outputs = ['new%d' % i for i in range((1 + states) * count)]
    w.case(operator.lower(), [node(operator, list(inputs), outputs, **a)], inputs, [(k, ONNX_TYPES[dtype]) for k in outputs],
           results=[array for kind in news for array in kind], free=False)


# ---- Scan of opset 8 --------------------------------------------------------------------------------------------------------------

def scan(w, r):
    batch, length, size = (int(v) for v in r.integers(1, 5, 3))
    f = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])
    body = helper.make_graph(
        [helper.make_node('Add', ['s', 'a'], ['t']), helper.make_node('Mul', ['t', 'w'], ['u']), helper.make_node('Sub', ['u', 'b'], ['v']),
         helper.make_node('Identity', ['v'], ['o'])], 'body', [f('s'), f('a'), f('b')], [f('v'), f('o')])
    has_lengths = r.random() < 0.7
    inputs = {'lengths': r.integers(1, length + 1, batch).astype(np.int64)} if has_lengths else {}
    inputs.update(s0=floats(r, batch, size), x=floats(r, batch, length, size), z=floats(r, batch, length, size), w=floats(r, size))
    w.case('scan8', [helper.make_node('Scan', ['lengths' if has_lengths else '', 's0', 'x', 'z'], ['last', 'all'], body=body,
                                      num_scan_inputs=2, directions=[int(v) for v in r.integers(0, 2, 2)])],
           inputs, [('last', TensorProto.FLOAT), ('all', TensorProto.FLOAT)], opset=8)


# ---- recurrent layers with all activations, which the standard's reference implementation lacks ------------------------------------

ACTIVATIONS = {'Affine': (True, True), 'Elu': (True, False), 'HardSigmoid': (True, True), 'LeakyRelu': (True, False), 'Relu': (False, False),
               'ScaledTanh': (True, True), 'Sigmoid': (False, False), 'Softplus': (False, False), 'Softsign': (False, False),
               'Tanh': (False, False), 'ThresholdedRelu': (True, False)}


def recurrent(w, r):
    operator, gates, functions = (('RNN', 1, 1), ('GRU', 3, 2), ('LSTM', 4, 3))[r.integers(3)]
    steps, batch, deep, hidden = (int(v) for v in r.integers(1, 5, 4))
    direction = str(r.choice(['forward', 'reverse', 'bidirectional']))
    directions = 2 if direction == 'bidirectional' else 1
    names = [str(v) for v in r.choice(list(ACTIVATIONS), directions * functions)]
    alpha, beta = ([float(np.float32(r.choice([0.25, -1e-5, 3e-4]) if r.random() < 0.3 else r.uniform(-1, 1))) for v in names if ACTIVATIONS[v][k]]
                   for k in range(2))
    inputs = {'x': floats(r, steps, batch, deep), 'w': floats(r, directions, gates * hidden, deep) / 2,
              'r': floats(r, directions, gates * hidden, hidden) / 4}
    # without numbers, ONNX Runtime has 0 for some of those for which the standard names the defaults of its operators, or none
    more = {'activation_alpha': alpha, 'activation_beta': beta}
    if r.random() < 0.4 and not set(names) & {'Affine', 'ScaledTanh', 'ThresholdedRelu'}:
        more = {}
    made = helper.make_node(operator, list(inputs), ['y'], hidden_size=hidden, direction=direction, activations=names,
                            **{k: v for k, v in more.items() if v})
    w.case(operator.lower(), [made], inputs, [('y', TensorProto.FLOAT)], opset=14, free=False, atol=1e-5)


def main():
    folder, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    kinds = [tree_regressor, tree_classifier, tree_ensemble, svm_regressor, svm_classifier, linear_regressor, linear_classifier, probit,
             features, encoders, text_encoders, ngrams, text, optimizer, scan, recurrent]
    w = Writer(folder)
    for k, kind in enumerate(kinds):
        for i in range(count):
            kind(w, np.random.default_rng((seed, k, i)))
    print(w.count)


main()
