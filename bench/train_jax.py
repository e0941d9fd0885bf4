#!/usr/bin/env python3
"""The networks of train.c in JAX, as the process that peer_jax.c speaks with: train_jax.py --version|--serve"""
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

NARROW = {None: None, "bf16": jnp.bfloat16, "f16": jnp.float16}


class Trainer:
    """Weights in the order in which the network takes them, and the parameters of the line."""

    def __init__(self, parameters, weights):
        self.parameters, self.weights = parameters, iter(weights)
        self.narrow = NARROW[parameters.get("products")]

    def number(self, key, otherwise):
        return int(self.parameters.get(key, otherwise))

    def next(self):
        return next(self.weights)

    def cast(self, *values):
        return [v.astype(self.narrow) if self.narrow else v for v in values]

    def einsum(self, equation, x, w):
        return jnp.einsum(equation, *self.cast(x, w)).astype(x.dtype)

    def linear(self, x):
        w, bias = self.next(), self.next()
        return self.einsum("...i,ij->...j", x, w) + bias

    def norm(self, x):
        scale, bias = self.next(), self.next()
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias

    def convolution(self, x, stride=1, groups=1):
        w = self.next()
        pad = (w.shape[2] // 2,) * 2
        y = jax.lax.conv_general_dilated(*self.cast(x, w), (stride, stride), (pad, pad), feature_group_count=groups)
        return y.astype(x.dtype)

    def biased(self, x):
        return jax.nn.relu(x + self.next())

    def batch_norm(self, x):
        scale, bias = self.next(), self.next()
        mean = x.mean((0, 2, 3), keepdims=True)
        variance = jnp.square(x - mean).mean((0, 2, 3), keepdims=True)
        factor = jax.lax.rsqrt(variance + 1e-5) * scale[:, None, None]
        return (x - mean) * factor + bias[:, None, None]


def pooled(x, side=2):
    pad = (side // 2 if side > 2 else 0,) * 2
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, side, side), (1, 1, 2, 2), ((0, 0), (0, 0), pad, pad))


def perceptron(t, x):
    return t.linear(jax.nn.relu(t.linear(jax.nn.relu(t.linear(x)))))


def cnn(t, x):
    x = pooled(t.biased(t.convolution(x)))
    x = pooled(t.biased(t.convolution(x)))
    return t.linear(jax.nn.relu(t.linear(x.reshape(x.shape[0], -1))))


def resnet18(t, x):
    x = pooled(jax.nn.relu(t.batch_norm(t.convolution(x, 2))), 3)
    for i in range(8):
        stride = 2 if i in (2, 4, 6) else 1
        y = jax.nn.relu(t.batch_norm(t.convolution(x, stride)))
        y = t.batch_norm(t.convolution(y))
        x = jax.nn.relu((t.batch_norm(t.convolution(x, 2)) if stride == 2 else x) + y)
    return t.linear(x.mean((2, 3)))


def mobilenet2(t, x):
    stages = [(1, 1, 1), (6, 2, 2), (6, 3, 2), (6, 4, 2), (6, 3, 1), (6, 3, 2), (6, 1, 1)]
    x = jax.nn.relu6(t.batch_norm(t.convolution(x, 2)))
    for wider, blocks, stride in stages:
        for i in range(blocks):
            y = jax.nn.relu6(t.batch_norm(t.convolution(x))) if wider > 1 else x
            y = jax.nn.relu6(t.batch_norm(t.convolution(y, 1 if i else stride, y.shape[1])))
            y = t.batch_norm(t.convolution(y))
            x = x + y if i else y
    x = jax.nn.relu6(t.batch_norm(t.convolution(x)))
    return t.linear(x.mean((2, 3)))


def unet(t, x):
    past = []
    for i in range(3):
        x = t.biased(t.convolution(t.biased(t.convolution(x))))
        if i < 2:
            past.append(x)
            x = pooled(x)
    for skip in reversed(past):
        n, _, rows, columns = x.shape
        x = t.einsum("nihw,iojk->nohjwk", x, t.next()).reshape(n, -1, 2 * rows, 2 * columns)
        x = jnp.concatenate((skip, x), axis=1)
        x = t.biased(t.convolution(t.biased(t.convolution(x))))
    return t.linear(x.transpose(0, 2, 3, 1).reshape(-1, x.shape[1]))


def lstm(t, x):
    for _ in range(t.number("layers", 2)):
        w, r = t.next()[0], t.next()[0]
        zeros = jnp.zeros((x.shape[1], r.shape[1]), x.dtype)

        def step(state, gates, r=r):
            h, c = state
            i, o, f, g = jnp.split(gates + t.einsum("bi,ji->bj", h, r), 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        (h, _), x = jax.lax.scan(step, (zeros, zeros), t.einsum("sbi,ji->sbj", x, w))
    return t.linear(h)


def attention_layers(t, x, causal):
    heads = t.number("heads", 4)
    n, tokens, d = x.shape
    for _ in range(t.number("layers", 2)):
        q, k, v = jnp.split(t.linear(t.norm(x)), 3, axis=2)
        q, k, v = (part.reshape(n, tokens, heads, d // heads) for part in (q, k, v))
        scores = t.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(d // heads)
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -jnp.inf)
        y = t.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
        x = x + t.linear(y.reshape(n, tokens, d))
        x = x + t.linear(jax.nn.gelu(t.linear(t.norm(x)), approximate=False))
    return t.norm(x)


def transformer(t, ids):
    x = attention_layers(t, t.next()[ids] + t.next(), True)
    return t.linear(x.reshape(-1, x.shape[2]))


def vit(t, x):
    n, _, side, _ = x.shape
    x = x.reshape(n, 3, side // 16, 16, side // 16, 16).transpose(0, 2, 4, 1, 3, 5)
    x = t.linear(x.reshape(n, -1, 3 * 16 * 16)) + t.next()
    return t.linear(attention_layers(t, x, False).mean(1))


def embedding(t, ids):
    return t.linear(t.next()[ids].mean(1))


# Networks whose gradients rounding changes by more than roundings: where the input of a relu is nearly 0 behind a batch norm, its sign decides.
CONDITIONED = (resnet18, mobilenet2)
NETWORKS = {f.__name__: f for f in (perceptron, cnn, resnet18, mobilenet2, unet, lstm, transformer, vit, embedding)}


def make_step(parameters):
    network = NETWORKS[parameters["network"]]

    def loss(weights, x, labels):
        scores = jax.nn.log_softmax(network(Trainer(parameters, weights), x), axis=1)
        return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()

    def step(weights, x, labels, rate):
        value, gradients = jax.value_and_grad(loss)(weights, x, labels)
        return [w - g * rate for w, g in zip(weights, gradients)], value

    return jax.jit(step, donate_argnums=0)


def own_error(parameters, step, weights, x, labels):
    """The greatest distance of steps in f32, whose images differ from x in their last bits, from the step in f64, over the greatest magnitude."""
    with jax.enable_x64(True):
        wide = [jnp.array(w, jnp.float64) for w in weights]
        exact, loss = make_step(parameters)(wide, jnp.array(x, jnp.float64), jnp.array(labels), jnp.float64(1))
        exact = [np.asarray(value) for value in (loss, *exact)]
    error, random = 0, np.random.default_rng(1)
    for _ in range(3):
        noisy = x * (1 + np.float32(2**-22) * random.uniform(-1, 1, x.shape).astype(np.float32))
        first, loss = step([jnp.array(w) for w in weights], jnp.array(noisy), jnp.array(labels), jnp.float32(1))
        for value, right in zip((loss, *first), exact):
            error = max(error, np.abs(np.asarray(value) - right).max() / np.abs(right).max())
    return error


def read_operand(source):
    dtype, *dims = source.readline().decode().split()
    dtype = np.dtype({"f32": np.float32, "i64": np.int64}[dtype])
    dims = [int(d) for d in dims]
    data = np.frombuffer(source.read(int(np.prod(dims, dtype=np.int64)) * dtype.itemsize), dtype).reshape(dims)
    return data.astype(np.int32) if dtype == np.int64 else data


def serve(source, to):
    parameters = dict(word.split("=") for word in source.readline().decode().split() if "=" in word)
    operands, results = (int(n) for n in source.readline().split())
    x, labels, *weights, _ = [read_operand(source) for _ in range(operands)]
    sizes = [int(source.readline()) for _ in range(results)]
    if parameters.get("network") not in NETWORKS:
        to.write(b"none: another network\n")
        return to.flush()
    step = make_step(parameters)
    unsure = NETWORKS[parameters["network"]] in CONDITIONED and not parameters.get("products")
    error = own_error(parameters, step, weights, x, labels) if unsure else 0
    x, labels = jnp.array(x), jnp.array(labels)
    first, loss = step([jnp.array(w) for w in weights], x, labels, jnp.float32(1))
    answers = [np.asarray(value, np.float32).tobytes() for value in (loss, *first)]
    if [len(a) for a in answers] != sizes:
        to.write(b"none: results of other sizes\n")
        return to.flush()
    to.write(b"ready %g\n" % error + b"".join(answers))
    to.flush()
    state, rate = [jnp.array(w) for w in weights], jnp.float32(0)
    for line in source:
        start = time.perf_counter_ns()
        for _ in range(int(line)):
            state, loss = step(state, x, labels, rate)
        jax.block_until_ready((state, loss))
        to.write(b"%d\n" % (time.perf_counter_ns() - start))
        to.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--version":
        print(f"JAX {jax.__version__}")
    else:
        serve(sys.stdin.buffer, sys.stdout.buffer)
