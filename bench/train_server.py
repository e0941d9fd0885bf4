"""What peers written in Python share: the networks of train.c, and their side of the pipe to peer_python.c. A peer is a script
SCRIPT --version | --serve WAY THREADS | --learn that sets what its framework reads from the environment, and calls `main`."""
import os
import sys
import time
import traceback

import numpy as np


class Case:
    """A line of train.txt."""

    def __init__(self, line):
        words = line.split()
        at = next((i for i, word in enumerate(words) if "=" in word), len(words))
        self.kind, self.name = words[0], " ".join(words[1:at])
        self.parameters = dict(word.partition("=")[::2] for word in words[at:])

    def number(self, key, otherwise):
        return int(self.parameters.get(key, otherwise))


class Layers:
    """What the networks are made of. A framework's own layers take the weights that come next: linear(x), norm(x), biased(x),
    convolution(x, stride, groups), batch_norm(x), doubled(x), rows(ids), lstm(x); others have none: pooled(x, side), relu(x),
    relu6(x), gelu(x), permuted(x, axes), joined(parts, axis), attention(q, k, v, causal) of [batch, tokens, heads, d]."""

    def __init__(self, case, weights):
        self.case, self.weights = case, iter(weights)

    def next(self):
        return next(self.weights)


def perceptron(t, x):
    return t.linear(t.relu(t.linear(t.relu(t.linear(x)))))


def cnn(t, x):
    x = t.pooled(t.biased(t.convolution(x)))
    x = t.pooled(t.biased(t.convolution(x)))
    return t.linear(t.relu(t.linear(x.reshape(x.shape[0], -1))))


def resnet18(t, x):
    x = t.pooled(t.relu(t.batch_norm(t.convolution(x, 2))), 3)
    for i in range(8):
        stride = 2 if i in (2, 4, 6) else 1
        y = t.relu(t.batch_norm(t.convolution(x, stride)))
        y = t.batch_norm(t.convolution(y))
        x = t.relu((t.batch_norm(t.convolution(x, 2)) if stride == 2 else x) + y)
    return t.linear(x.mean((2, 3)))


def mobilenet2(t, x):
    stages = [(1, 1, 1), (6, 2, 2), (6, 3, 2), (6, 4, 2), (6, 3, 1), (6, 3, 2), (6, 1, 1)]
    x = t.relu6(t.batch_norm(t.convolution(x, 2)))
    for wider, blocks, stride in stages:
        for i in range(blocks):
            y = t.relu6(t.batch_norm(t.convolution(x))) if wider > 1 else x
            y = t.relu6(t.batch_norm(t.convolution(y, 1 if i else stride, y.shape[1])))
            y = t.batch_norm(t.convolution(y))
            x = x + y if i else y
    x = t.relu6(t.batch_norm(t.convolution(x)))
    return t.linear(x.mean((2, 3)))


def unet(t, x):
    past = []
    for i in range(3):
        x = t.biased(t.convolution(t.biased(t.convolution(x))))
        if i < 2:
            past.append(x)
            x = t.pooled(x)
    for skip in reversed(past):
        x = t.joined((skip, t.doubled(x)), 1)
        x = t.biased(t.convolution(t.biased(t.convolution(x))))
    return t.linear(t.permuted(x, (0, 2, 3, 1)).reshape(-1, x.shape[1]))


def lstm(t, x):
    return t.linear(t.lstm(x))


def attention_layers(t, x, causal):
    heads = t.case.number("heads", 4)
    n, tokens, d = x.shape
    for _ in range(t.case.number("layers", 2)):
        parts = t.linear(t.norm(x)).reshape(n, tokens, 3, heads, d // heads)
        y = t.attention(*(parts[:, :, i] for i in range(3)), causal)
        x = x + t.linear(y.reshape(n, tokens, d))
        x = x + t.linear(t.gelu(t.linear(t.norm(x))))
    return t.norm(x)


def transformer(t, ids):
    x = attention_layers(t, t.rows(ids) + t.next(), True)
    return t.linear(x.reshape(-1, x.shape[2]))


def vit(t, x):
    n, _, side, _ = x.shape
    x = t.permuted(x.reshape(n, 3, side // 16, 16, side // 16, 16), (0, 2, 4, 1, 3, 5))
    x = t.linear(x.reshape(n, -1, 3 * 16 * 16)) + t.next()
    return t.linear(attention_layers(t, x, False).mean(1))


def embedding(t, ids):
    return t.linear(t.rows(ids).mean(1))


NETWORKS = {f.__name__: f for f in (perceptron, cnn, resnet18, mobilenet2, unet, lstm, transformer, vit, embedding)}


def network_of(case):
    return NETWORKS[case.parameters["network"]]


def read_operand(source):
    dtype, *dims = source.readline().decode().split()
    dtype = np.dtype({"f32": np.float32, "i64": np.int64}[dtype])
    dims = [int(d) for d in dims]
    return np.frombuffer(source.read(int(np.prod(dims, dtype=np.int64)) * dtype.itemsize), dtype).reshape(dims)


def serve(prepare, peak, source, to):
    """prepare(case, operands): the results, in `train` lines of the first step; run(n), which makes n further steps and waits
    for them; nanoseconds of the first step; how far f32 is off (bench_peer's `error`); a note. peak(function): the most bytes
    that the framework's tensors take at once while the function runs, beyond those that were there before."""
    case = Case(source.readline().decode())
    operands, results = (int(n) for n in source.readline().split())
    operands = [read_operand(source) for _ in range(operands)]
    sizes = [int(source.readline()) for _ in range(results)]
    try:
        answers, run, first, error, note = prepare(case, operands)
        answers = [np.ascontiguousarray(answer, np.float32).tobytes() for answer in answers]
        if [len(answer) for answer in answers] != sizes:
            raise ValueError(f"results of {[len(answer) for answer in answers]} bytes, expected {sizes}")
    except Exception as raised:  # whatever a framework raises: the case is not measured, and the reason is told
        if os.environ.get("BENCH_PEER_ERRORS"):
            traceback.print_exc()
        to.write(f"none: {type(raised).__name__}: {raised}".split("\n")[0][:150].encode() + b"\n")
        return to.flush()
    to.write(f"ready {first} {error:g} {note}\n".encode() + b"".join(answers))
    to.flush()
    for line in source:
        if line == b"peak\n":
            to.write(b"%d\n" % (peak(lambda: run(1)) if peak else 0))
        else:
            start = time.perf_counter_ns()
            run(int(line))
            to.write(b"%d\n" % (time.perf_counter_ns() - start))
        to.flush()


def learn(learner, source):
    """Trains by Adam on the batches of curves.c, and prints the losses. learner(case, weights): a function of x, labels and the
    number of the step, 0 where nothing is learnt, that returns the loss."""
    case = Case(source.readline().decode())
    operands = [read_operand(source) for _ in range(int(source.readline().split()[0]))]
    step, x, labels = learner(case, operands[2:]), *operands[:2]
    batches = int(source.readline())
    for i in range(batches):
        x, labels = (np.frombuffer(source.read(old.nbytes), old.dtype).reshape(old.shape) for old in (x, labels))
        print(f"{float(step(x, labels, i + 1 if i < batches - 1 else 0)):.9g}", flush=True)


def main(version, prepare, learner, peak=None):
    if sys.argv[1] == "--version":
        return print(version)
    if sys.argv[1] == "--learn":
        return learn(learner, sys.stdin.buffer)
    to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a framework prints is no answer
    serve(prepare, peak, sys.stdin.buffer, to)
