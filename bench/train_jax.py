#!/usr/bin/env python3
"""The layers of train_server.py in JAX: train_jax.py --version | --serve jit THREADS | --learn"""
import os
import sys
import time

if sys.argv[1] == "--serve":
    os.environ["NPROC"] = sys.argv[3]  # XLA takes as many threads
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np

import train_server

NARROW = {None: None, "bf16": jnp.bfloat16, "f16": jnp.float16}


class Layers(train_server.Layers):
    relu, relu6 = staticmethod(jax.nn.relu), staticmethod(jax.nn.relu6)
    joined, permuted = staticmethod(jnp.concatenate), staticmethod(jnp.transpose)

    def __init__(self, case, weights):
        super().__init__(case, weights)
        self.narrow = NARROW[case.parameters.get("products")]

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

    def pooled(self, x, side=2):
        pad = (side // 2 if side > 2 else 0,) * 2
        window, steps = (1, 1, side, side), (1, 1, 2, 2)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, steps, ((0, 0), (0, 0), pad, pad))

    def doubled(self, x):
        n, _, rows, columns = x.shape
        return self.einsum("nihw,iojk->nohjwk", x, self.next()).reshape(n, -1, 2 * rows, 2 * columns)

    def rows(self, ids):
        return self.next()[ids]

    def gelu(self, x):
        return jax.nn.gelu(x, approximate=False)

    def attention(self, q, k, v, causal):
        _, tokens, _, d = q.shape
        scores = self.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(d)
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -jnp.inf)
        return self.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)

    def lstm(self, x):
        for _ in range(self.case.number("layers", 2)):
            w, r = self.next()[0], self.next()[0]
            zeros = jnp.zeros((x.shape[1], r.shape[1]), x.dtype)

            def step(state, gates, r=r):
                h, c = state
                i, o, f, g = jnp.split(gates + self.einsum("bi,ji->bj", h, r), 4, axis=1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            (h, _), x = jax.lax.scan(step, (zeros, zeros), self.einsum("sbi,ji->sbj", x, w))
        return h


def loss_of(case):
    network = train_server.network_of(case)

    def loss(weights, x, labels):
        scores = jax.nn.log_softmax(network(Layers(case, weights), x), axis=1)
        return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()

    return loss


def narrowed(array):
    """Numbers of 64 bits are not enabled in JAX."""
    return jnp.array(array.astype(np.int32) if array.dtype == np.int64 else array)


def make_step(case):
    def step(weights, x, labels, rate):
        value, gradients = jax.value_and_grad(loss_of(case))(weights, x, labels)
        return [w - g * rate for w, g in zip(weights, gradients)], value

    return jax.jit(step, donate_argnums=0)


# Networks whose gradients rounding changes by more than roundings: where the input of a relu is nearly 0 behind a batch norm, its sign decides.
CONDITIONED = ("resnet18", "mobilenet2")


def own_error(case, step, operands):
    """The greatest distance of steps in f32, whose images differ from x in their last bits, from the step in f64, over the greatest magnitude."""
    x, labels, *weights, _ = operands
    with jax.enable_x64(True):
        wide = [jnp.array(w, jnp.float64) for w in weights]
        exact, loss = make_step(case)(wide, jnp.array(x, jnp.float64), jnp.array(labels), jnp.float64(1))
        exact = [np.asarray(value) for value in (loss, *exact)]
    error, random = 0, np.random.default_rng(1)
    for _ in range(3):
        noisy = x * (1 + np.float32(2**-22) * random.uniform(-1, 1, x.shape).astype(np.float32))
        first, loss = step([jnp.array(w) for w in weights], jnp.array(noisy), narrowed(labels), jnp.float32(1))
        for value, right in zip((loss, *first), exact):
            error = max(error, np.abs(np.asarray(value) - right).max() / np.abs(right).max())
    return error


def prepare(case, operands):
    x, labels, *weights, _ = (narrowed(operand) for operand in operands)
    step, state, rate = make_step(case), [w.copy() for w in weights], jnp.float32(0)
    start = time.perf_counter_ns()
    first, loss = jax.block_until_ready(step(weights, x, labels, jnp.float32(1)))
    seconds = time.perf_counter_ns() - start
    unsure = case.parameters["network"] in CONDITIONED and not case.parameters.get("products")
    error = own_error(case, step, operands) if unsure else 0

    def run(count):
        nonlocal state
        for _ in range(count):
            state, loss = step(state, x, labels, rate)
        jax.block_until_ready((state, loss))

    return [loss, *first], run, seconds, error, "jit, donated state"


def learner(case, weights):
    """Adam (Kingma and Ba 2015)."""
    state = [[narrowed(w), jnp.zeros(w.shape), jnp.zeros(w.shape)] for w in weights]

    def adam(w, m, v, g, step):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return w - 0.001 / (1 - 0.9**step) * m / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8), m, v

    @jax.jit
    def learn(state, x, labels, step):
        value, gradients = jax.value_and_grad(loss_of(case))([w for w, _, _ in state], x, labels)
        return value, [adam(*one, g, step) for one, g in zip(state, gradients)]

    def step(x, labels, number):
        nonlocal state
        value, after = learn(state, narrowed(x), narrowed(labels), jnp.float32(max(number, 1)))
        state = after if number else state
        return value

    return step


if __name__ == "__main__":
    train_server.main(f"JAX {jax.__version__}", prepare, learner)
